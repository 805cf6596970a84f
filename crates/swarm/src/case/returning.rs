//! Lives in which members are lost and come back.

use super::growing::draw_late_cut;
use super::{Case, Next, is_latent};
use crate::faults::Ill;
use crate::life::{Cut, Order};
use crate::machine::Machine;
use crate::offence::Offence;
use crate::steps::Step;
use std::collections::BTreeSet;
use std::time::Duration;

impl Case<'_> {
    /// Where no more was lost than the array replaces: whoever was comes back, and others are lost
    /// after that.
    pub(super) fn live_returning(&mut self, machine: &Machine) -> Result<Next, Offence> {
        let mut aside = self.random.clone().fork().fork();
        let is_within = {
            let excuses = self.excuses.borrow();
            !excuses.errors && !excuses.is_beyond_redundancy(&machine.topology)
        };
        let is_known = machine.topology.has_intent || aside.one_in(8);
        let is_wanted = machine.topology.redundancy() > 0 && is_within && is_known;
        if !is_wanted || !aside.one_in(2) {
            return Ok(Next::Live);
        }
        let next = self.live_aside(aside, |case| case.lose_and_return(machine));
        self.absent.members.clear();
        next
    }

    fn lose_and_return(&mut self, machine: &Machine) -> Result<Next, Offence> {
        for _ in 0..1 + self.random.below(3) {
            let lose = self.draw_losing(machine);
            let mut lives = vec![lose];
            for _ in 0..self.random.below(3) {
                lives.push(self.draw_return(machine));
            }
            for order in lives {
                if let Next::Over = self.live(machine, order)? {
                    return Ok(Next::Over);
                }
            }
            if let Next::Over = self.make_whole(machine)? {
                return Ok(Next::Over);
            }
        }
        Ok(Next::Live)
    }

    /// A life in which a member is away, or is lost and comes back at once.
    fn draw_losing(&mut self, machine: &Machine) -> Order {
        let topology = &machine.topology;
        let may_be_away = !self.excuses.borrow().unclean && self.random.one_in(2);
        let members = machine.belonging_members();
        let member = *self.random.pick(&members);
        let is_spared = self.excuses.borrow().lost.len() >= topology.redundancy();
        let mut order = self.draw_calm(machine);
        if is_spared {
            return order;
        }
        if may_be_away {
            self.excuses.borrow_mut().lost.insert(member);
            order.absent.members = self.excuses.borrow().lost.clone();
            return order;
        }
        let ills = [Ill::MemberWrite { member }, Ill::MemberGone { member }, Ill::Hang { member }];
        let ill = *self.random.pick(&ills);
        let at = Duration::from_micros(1 << (8 + self.random.below(6)));
        order.steps.push((at, Step::Ill(ill)));
        order.steps.push((2 * at, Step::ReAdd));
        order.steps.sort_by_key(|(at, _)| *at);
        order
    }

    fn draw_return(&mut self, machine: &Machine) -> Order {
        let mut order = self.draw_calm(machine);
        let at = Duration::from_micros(1 << (6 + self.random.below(8)));
        order.steps.push((at, Step::ReAdd));
        order.steps.sort_by_key(|(at, _)| *at);
        order
    }

    /// Nothing is unreadable but what is lost, and a cut does not end the case where a degraded
    /// array is refused after one.
    fn draw_calm(&mut self, machine: &Machine) -> Order {
        let mut order = self.draw_life(machine, false);
        order.steps.retain(|(_, step)| !is_latent(step));
        order.absent.members = BTreeSet::new();
        let topology = &machine.topology;
        let is_refused = topology.has_parity() && topology.journal.is_none();
        order.cut = match is_refused && !self.random.one_in(8) {
            true => Cut::Never,
            false => draw_late_cut(&mut self.random),
        };
        order
    }

    /// Everybody comes back and is waited for; the life after that finds nobody missing.
    pub(super) fn make_whole(&mut self, machine: &Machine) -> Result<Next, Offence> {
        let mut steps = vec![Step::ReAdd, Step::AwaitWhole];
        if machine.copy_count.may_lack() {
            steps.insert(1, Step::MendCopies);
        }
        let steps = steps.into_iter().map(|step| (Duration::ZERO, step)).collect();
        let order = Order { steps, ..self.quiet(self.settings.clone()) };
        if let Next::Over = self.live(machine, order)? {
            return Ok(Next::Over);
        }
        let order = self.quiet(self.settings.clone());
        self.live(machine, order)
    }
}
