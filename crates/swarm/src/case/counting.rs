//! Lives in which a RAID 1 is given more copies, and gives some up.

use super::growing::{draw_late_cut, draw_pace};
use super::{Case, Next, is_latent};
use crate::faults::Ill;
use crate::life::Order;
use crate::machine::Machine;
use crate::offence::Offence;
use crate::steps::Step;
use headpond_raid::Level;
use headpond_volume::BackgroundRate;
use headpond_witness::Workload;
use std::time::Duration;

impl Case<'_> {
    /// Where nothing has happened to the copies yet: their number changes over several lives, one
    /// of them is lost now and then, and in the end all that there are have everything.
    pub(super) fn live_counting(&mut self, machine: &mut Machine) -> Result<Next, Offence> {
        let mut aside = self.random.clone().fork().fork().fork();
        let is_sound = {
            let excuses = self.excuses.borrow();
            excuses.lost.is_empty() && !excuses.errors
        };
        if machine.topology.level != Level::Raid1 || !is_sound || !aside.one_in(2) {
            return Ok(Next::Live);
        }
        let next = self.live_aside(aside, |case| case.add_and_drop(machine));
        machine.pace.set(BackgroundRate::default());
        self.absent.members.clear();
        next
    }

    fn add_and_drop(&mut self, machine: &mut Machine) -> Result<Next, Offence> {
        for _ in 0..2 + self.random.below(4) {
            machine.pace.set(draw_pace(&mut self.random));
            let order = self.draw_counting(machine);
            if let Next::Over = self.live(machine, order)? {
                return Ok(Next::Over);
            }
            if !self.excuses.borrow().lost.is_empty() {
                self.draw_returns(machine);
            }
            machine.take_new_count();
        }
        machine.pace.set(BackgroundRate::default());
        let next = self.make_whole(machine)?;
        machine.take_new_count();
        Ok(next)
    }

    fn draw_counting(&mut self, machine: &Machine) -> Order {
        let mut order = self.draw_life(machine, false);
        // What replaces such a block may be the copy that goes.
        order.steps.retain(|(_, step)| !is_latent(step));
        let is_lost = !self.excuses.borrow().lost.is_empty();
        for _ in 0..1 + self.random.below(3) {
            let step = match self.random.below(6) {
                0 if is_lost => Step::ReAdd,
                0..=2 => Step::AddCopies(1 + self.random.below(2) as usize),
                _ => Step::DropCopy,
            };
            let at = Duration::from_micros(1 << (8 + self.random.below(9)));
            order.steps.push((at, step));
        }
        if !is_lost && self.random.one_in(3) {
            let at = Duration::from_micros(1 << (8 + self.random.below(9)));
            order.steps.push((at, Step::Ill(self.draw_loss_of_copy(machine))));
        }
        order.steps.sort_by_key(|(at, _)| *at);
        order.cut = draw_late_cut(&mut self.random);
        // The cache may be detached in the middle.
        order.workload = order.workload.map(|it| Workload { sector_percent: 0, ..it });
        order
    }

    /// One that belongs to the array, or is about to.
    fn draw_loss_of_copy(&mut self, machine: &Machine) -> Ill {
        let members = machine.belonging_members();
        let next = members.iter().max().map_or(0, |last| last + 1);
        let is_new = next < machine.members.len() && self.random.one_in(4);
        let member = if is_new { next } else { *self.random.pick(&members) };
        let all = [
            Ill::MemberWrite { member },
            Ill::MemberFlush { member },
            Ill::MemberGone { member },
            Ill::Hang { member },
        ];
        *self.random.pick(&all)
    }
}
