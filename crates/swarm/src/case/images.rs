//! A member, or the cache, is copied while a life goes on that is ended by a stop. Then the copy is
//! put back: nothing old is read as new. The case itself goes on without it.

use super::{Case, quiet};
use crate::expect::Excuses;
use crate::machine::{Disks, Machine};
use crate::offence::Offence;
use crate::remains::Remains;
use std::collections::BTreeSet;
use std::time::Duration;

/// Lives in which something is copied: one in so many.
const ONE_IN: u64 = 3;

impl Case<'_> {
    /// When something is copied in the next life, and what.
    pub(super) fn draw_copy(&self, machine: &Machine) -> Option<(Duration, Disks)> {
        // Drawn aside: a case is what it is without it.
        let mut aside = self.random.clone().fork().fork().fork();
        let is_due = self.is_whole() && aside.one_in(ONE_IN);
        let after = Duration::from_micros(1 << (6 + aside.below(12)));
        let members = machine.belonging_members().into_iter().map(Disks::Member);
        let copies = machine.belonging_copies().into_iter().map(Disks::CacheCopy);
        let mut choices = vec![Disks::Cache, Disks::Cache];
        choices.extend(members.filter(|_| machine.redundancy() > 0));
        choices.extend(copies);
        let disks = *aside.pick(&choices);
        (is_due && !machine.disks(disks).is_empty()).then_some((after, disks))
    }

    /// The copy takes the place of what has gone on meanwhile.
    pub(super) fn check_image(
        &mut self,
        machine: &Machine,
        remains: &Remains,
    ) -> Result<(), Offence> {
        let Some(image) = remains.image.take() else { return Ok(()) };
        let Some(copy) = machine.with_image(&image).filter(|_| self.is_whole()) else {
            return Ok(());
        };
        let excuses = self.excuses.borrow();
        let lost = match image.disks {
            Disks::Member(member) => [member].into(),
            // Where a header may be damaged nobody can tell how far the cache has lived.
            Disks::Cache | Disks::CacheCopy(_) if excuses.cache_failed || excuses.cache_damaged => {
                return Ok(());
            }
            Disks::Cache | Disks::CacheCopy(_) => BTreeSet::new(),
        };
        let is_last = match image.disks {
            Disks::Member(_) => false,
            Disks::Cache => true,
            // Another one that counts as whole may have left meanwhile, or be on its way.
            Disks::CacheCopy(copy) => {
                let copies = &excuses.copies;
                copies.may_lack_one() || copies.whole().iter().all(|other| *other == copy)
            }
        };
        let torn = excuses.torn;
        drop(excuses);
        let excuses = Excuses { lost, torn, is_older_cache: is_last, ..Excuses::default() };
        self.say(format!("  an older image of {}", image.disks));
        let order = quiet(self.random.clone().fork().number(), self.settings.clone());
        self.check_copy(&copy, order, excuses)
    }
}
