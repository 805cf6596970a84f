//! Lives in which a scrub signs what it finds whole, and others in which that is written to.

use super::{Case, Next, Offence};
use crate::life::{Cut, Order};
use crate::machine::Machine;
use crate::steps::Step;
use std::time::Duration;

impl Case<'_> {
    /// Where the array has an integrity region, and nothing is lost.
    pub(super) fn live_signing(&mut self, machine: &Machine) -> Result<Next, Offence> {
        let is_whole = {
            let excuses = self.excuses.borrow();
            excuses.lost.is_empty() && !excuses.errors
        };
        if !machine.topology.has_integrity || !is_whole {
            return Ok(Next::Live);
        }
        // Drawn aside: what comes later is drawn as it is without.
        let mut aside = self.random.clone().fork();
        let live_random = self.live_random.replace(aside.fork());
        let random = std::mem::replace(&mut self.random, aside);
        let next = self.sign_and_write(machine);
        self.random = random;
        self.live_random.replace(live_random);
        next
    }

    fn sign_and_write(&mut self, machine: &Machine) -> Result<Next, Offence> {
        for _ in 0..2 + self.random.below(3) {
            let signed = self.draw_signing();
            let written = self.draw_life(machine, false);
            for order in [signed, written] {
                if let Next::Over = self.live(machine, order)? {
                    return Ok(Next::Over);
                }
            }
        }
        let last = Order { cut: Cut::Never, ..self.draw_signing() };
        self.live(machine, last)
    }

    /// Nothing is asked but a scrub.
    fn draw_signing(&mut self) -> Order {
        let cut = match self.random.one_in(3) {
            true => Cut::InWork(self.random.below(600)),
            false => Cut::Never,
        };
        let steps = vec![(Duration::ZERO, Step::ScrubArray), (Duration::ZERO, Step::AwaitScrub)];
        Order { steps, cut, absent: self.absent.clone(), ..self.quiet(self.settings.clone()) }
    }
}
