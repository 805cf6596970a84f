//! Lives in which another core goes and comes.

use super::growing::draw_late_cut;
use super::{Case, Next};
use crate::machine::Machine;
use crate::offence::Offence;
use crate::steps::Step;
use headpond_witness::Workload;
use std::time::Duration;

impl Case<'_> {
    /// Where there is a core of which nothing is asked: it is taken away and added, with all that
    /// befalls the lives meanwhile.
    pub(super) fn live_switching(&mut self, machine: &Machine) -> Result<Next, Offence> {
        if !machine.topology.core_may_go() {
            return Ok(Next::Live);
        }
        let aside = self.random.clone().fork();
        self.live_aside(aside, |case| case.switch_back_and_forth(machine))
    }

    fn switch_back_and_forth(&mut self, machine: &Machine) -> Result<Next, Offence> {
        for _ in 0..2 + self.random.below(3) {
            let mut order = self.draw_life(machine, false);
            for _ in 0..1 + self.random.below(2) {
                let at = Duration::from_micros(1 << (8 + self.random.below(9)));
                order.steps.push((at, Step::SwitchCore));
            }
            order.steps.sort_by_key(|(at, _)| *at);
            order.cut = draw_late_cut(&mut self.random);
            // The cache is detached in the middle.
            order.workload = order.workload.map(|it| Workload { sector_percent: 0, ..it });
            if let Next::Over = self.live(machine, order)? {
                return Ok(Next::Over);
            }
        }
        Ok(Next::Live)
    }
}
