//! Lives in which the array is given more members.

use super::{Case, Next};
use crate::faults::Ill;
use crate::life::{Cut, Order};
use crate::machine::Machine;
use crate::offence::Offence;
use crate::steps::Step;
use headpond_sim::Random;
use headpond_volume::{BackgroundRate, Size};
use headpond_witness::Workload;
use std::time::Duration;

impl Case<'_> {
    /// Where nothing has happened to the array that keeps it from growing: it does, over several
    /// lives with all that befalls them.
    pub(super) fn live_growing(&mut self, machine: &mut Machine) -> Result<Next, Offence> {
        let mut aside = self.random.clone().fork();
        let is_sound = {
            let excuses = self.excuses.borrow();
            excuses.lost.is_empty() && !excuses.errors
        };
        if !machine.topology.can_grow() || !is_sound || !aside.one_in(2) {
            return Ok(Next::Live);
        }
        let next = self.live_aside(aside, |case| case.live_until_grown(machine));
        machine.pace.set(BackgroundRate::default());
        next
    }

    fn live_until_grown(&mut self, machine: &mut Machine) -> Result<Next, Offence> {
        let most = machine.topology.further_members();
        let has_groups = machine.topology.level.has_groups();
        let more = if has_groups { most } else { 1 + self.random.below(most as u64) as usize };
        let lives = 1 + self.random.below(5);
        let loses_in = self.random.one_in(3).then(|| self.random.below(lives));
        for life in 0..lives {
            machine.pace.set(draw_pace(&mut self.random));
            let mut order = self.draw_growing(machine, more);
            order.cut = draw_late_cut(&mut self.random);
            if loses_in == Some(life) {
                self.draw_loss_meanwhile(machine, &mut order);
            }
            if let Next::Over = self.live(machine, order)? {
                return Ok(Next::Over);
            }
            if !self.excuses.borrow().lost.is_empty() {
                self.draw_returns(machine);
            }
            self.take_new_shape(machine);
        }
        match self.end_reshape(machine)? {
            // Nothing is signed any more.
            Next::Live if !machine.reshape.may_be_under_way() => self.live_signing(machine),
            next => Ok(next),
        }
    }

    fn draw_growing(&mut self, machine: &Machine, more: usize) -> Order {
        let mut order = self.draw_life(machine, false);
        if !self.excuses.borrow().lost.is_empty() || machine.topology.redundancy() == 0 {
            // Nothing replaces such a block.
            order.steps.retain(|(_, step)| !is_latent(step));
        }
        let at = Duration::from_micros(1 << (8 + self.random.below(6)));
        order.steps.push((at, Step::Grow(more)));
        order.steps.sort_by_key(|(at, _)| *at);
        // The cache is detached in the middle.
        order.workload = order.workload.map(|it| Workload { sector_percent: 0, ..it });
        order
    }

    /// One of the members is lost in that life, or one of those to be.
    fn draw_loss_meanwhile(&mut self, machine: &Machine, order: &mut Order) {
        if machine.topology.redundancy() == 0 {
            return;
        }
        let known = machine.belonging_members().len().max(machine.topology.members + 1);
        let member = self.random.below(known as u64) as usize;
        let all = [
            Ill::MemberWrite { member },
            Ill::MemberFlush { member },
            Ill::MemberGone { member },
            Ill::Hang { member },
        ];
        let ill = *self.random.pick(&all);
        order.steps.retain(|(_, step)| !is_latent(step));
        let at = Duration::from_micros(1 << (8 + self.random.below(10)));
        order.steps.push((at, Step::Ill(ill)));
        order.steps.sort_by_key(|(at, _)| *at);
    }

    /// What has not ended by now does, and the array has its new size in the life after that.
    fn end_reshape(&mut self, machine: &mut Machine) -> Result<Next, Offence> {
        for _ in 0..2 {
            machine.pace.set(BackgroundRate::default());
            let workload = self.draw_growing(machine, 0).workload;
            let steps = match machine.reshape.may_be_under_way() {
                true => vec![(Duration::ZERO, Step::AwaitReshape)],
                false => Vec::new(),
            };
            let quiet = self.quiet(self.settings.clone());
            let order = Order { workload, absent: self.absent.clone(), steps, ..quiet };
            if let Next::Over = self.live(machine, order)? {
                return Ok(Next::Over);
            }
            self.take_new_shape(machine);
        }
        Ok(Next::Live)
    }

    fn take_new_shape(&self, machine: &mut Machine) {
        if machine.take_new_shape() {
            self.tally.borrow_mut().grown += 1;
        }
    }
}

pub(super) fn is_latent(step: &Step) -> bool {
    matches!(step, Step::Ill(Ill::MemberLatent { .. }))
}

/// Most often when data has begun to move.
pub(super) fn draw_late_cut(random: &mut Random) -> Cut {
    match random.below(6) {
        0 => Cut::Never,
        1 => Cut::InOpening(random.below(400)),
        2 => Cut::InStopping(random.below(60)),
        _ => {
            let most = 256 << random.below(6);
            Cut::InWork(random.below(most))
        }
    }
}

/// Such that moving takes one life, or several.
pub(super) fn draw_pace(random: &mut Random) -> BackgroundRate {
    let slow = |rate| BackgroundRate { min: Size(rate), max: Some(Size(rate)) };
    *random.pick(&[
        BackgroundRate::default(),
        slow(16 << 20),
        slow(4 << 20),
        slow(1 << 20),
        slow(256 << 10),
    ])
}
