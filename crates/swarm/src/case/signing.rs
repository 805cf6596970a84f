//! Lives in which a scrub signs what it finds whole, others in which that is written to, and what
//! changes underneath while nothing runs.

use super::{Case, Next};
use crate::life::{Cut, Order};
use crate::machine::Machine;
use crate::offence::Offence;
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
        let aside = self.random.clone().fork();
        self.live_aside(aside, |case| case.sign_and_write(machine))
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
        let mut last = Order { cut: Cut::Never, ..self.draw_signing() };
        // A scrub that a cut left goes on by itself, and has seen what is cleaned meanwhile change.
        let first = [Step::CleanAll, Step::AwaitParity, Step::AwaitScrub];
        let first = first.map(|step| (Duration::ZERO, step));
        last.steps.splice(0..0, first);
        last.steps.push((Duration::ZERO, Step::ExpectSigned));
        if let Next::Over = self.live(machine, last)? {
            return Ok(Next::Over);
        }
        self.rot_and_heal(machine)
    }

    /// Everything was signed, and nothing was written since: whatever changes underneath, within
    /// what the redundancy replaces, the next scrub puts right.
    fn rot_and_heal(&mut self, machine: &Machine) -> Result<Next, Offence> {
        let is_signed = {
            let excuses = self.excuses.borrow();
            excuses.lost.is_empty() && !excuses.errors && !excuses.unclean
        };
        if !is_signed {
            return Ok(Next::Live);
        }
        // A cut that an earlier life did not come to would leave it half healed.
        machine.power.restore();
        let rotted = machine.rot_members(&mut self.random);
        self.say(format!("  {rotted} sectors of members change while nothing runs"));
        let order = Order { rotted, ..self.quiet(self.settings.clone()) };
        self.live(machine, order)
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
