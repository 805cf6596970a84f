//! A member is copied while a life goes on that is ended by a stop, and then the copy is put back:
//! nothing old is read as new. The case itself goes on without it.

use super::{Case, Offence, quiet};
use crate::machine::Machine;
use crate::remains::Remains;
use std::rc::Rc;
use std::time::Duration;

/// Lives in which a member is copied: one in so many.
const ONE_IN: u64 = 3;

impl Case<'_> {
    /// When a member is copied in the next life, and which.
    pub(super) fn draw_copy(&self, machine: &Machine) -> Option<(Duration, usize)> {
        // Drawn aside: a case is what it is without it.
        let mut aside = self.random.clone().fork().fork().fork();
        if machine.redundancy() == 0 || !self.is_whole() || !aside.one_in(ONE_IN) {
            return None;
        }
        let after = Duration::from_micros(1 << (6 + aside.below(12)));
        Some((after, *aside.pick(&machine.belonging_members())))
    }

    /// The copy takes the place of the member, which has gone on meanwhile.
    pub(super) fn check_image(
        &mut self,
        machine: &Machine,
        remains: &Remains,
    ) -> Result<(), Offence> {
        let Some(image) = remains.image.take() else { return Ok(()) };
        let is_same = Rc::ptr_eq(&machine.members[image.member], &image.of);
        let belongs = is_same && machine.belonging_members().contains(&image.member);
        if !belongs || !self.is_whole() {
            return Ok(());
        }
        let mut copy = machine.duplicate();
        copy.members[image.member] = image.then;
        self.say(format!("  an older image of member {}", image.member));
        let order = quiet(self.random.clone().fork().number(), self.settings.clone());
        self.check_copy(&copy, order, [image.member].into())
    }
}
