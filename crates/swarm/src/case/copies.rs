//! What befalls the copies of a cache that lies on several devices, in all lives of a case.

use super::{Case, Next};
use crate::expect::Excuses;
use crate::faults::{CacheIll, Ill};
use crate::life::{Cut, End, Order, World};
use crate::machine::{Absent, Machine};
use crate::offence::Offence;
use crate::steps::CopyCommand;
use crate::steps::Exchange;
use crate::steps::Step;
use headpond_sim::Random;
use std::cell::RefCell;
use std::time::Duration;

impl Case<'_> {
    /// Says which copy each fault of the cache befalls, and adds what befalls the copies themselves
    /// and what is done about it.
    pub(super) fn draw_copies(&mut self, machine: &Machine, order: &mut Order, is_severe: bool) {
        if machine.topology.copies().is_none() {
            return;
        }
        let random = &mut self.random;
        let mut book = self.excuses.borrow().copies.clone();
        book.begin_life();
        let whole = book.whole();
        if whole.len() > 1 && random.one_in(8) {
            let away = *random.pick(&whole);
            book.lose(away);
            order.absent.copies.insert(away);
        }
        order.steps.retain_mut(|(_, step)| match step {
            Step::Ill(Ill::Cache { copy, ill }) => {
                let chosen = draw_copy(random, &book.whole(), |it| {
                    is_severe && ill.costs_copy() || book.would_hold(it, *ill)
                });
                *copy = chosen;
                chosen.is_some_and(|chosen| {
                    book.note(chosen, *ill);
                    true
                })
            }
            Step::Exchange(Exchange::Replace) => {
                *step = Step::Copies(CopyCommand::draw(random));
                true
            }
            _ => true,
        });
        let at = Duration::from_micros(1 << (8 + random.below(9)));
        match random.below(4) {
            0 => order.steps.push((at, Step::Copies(CopyCommand::draw(random)))),
            1 => {
                let ill = draw_loss(random);
                let chosen = draw_copy(random, &book.whole(), |it| book.would_hold(it, ill));
                let ill = Ill::Cache { copy: chosen, ill };
                order.steps.extend(chosen.map(|_| (at, Step::Ill(ill))));
            }
            _ => {}
        }
        if random.one_in(2) {
            order.steps.push((2 * at, Step::Copies(CopyCommand::ReAdd)));
        }
        if random.one_in(3) {
            order.steps.push((3 * at, Step::Copies(CopyCommand::Await)));
        }
        order.steps.sort_by_key(|(at, _)| *at);
    }

    /// Now and then a life in which nothing is asked but that lost copies come back.
    pub(super) fn fill_copies(&mut self, machine: &Machine) -> Result<Next, Offence> {
        let is_due = machine.topology.copies().is_some()
            && !self.excuses.borrow().copies.lost().is_empty()
            && self.random.one_in(2);
        if !is_due {
            return Ok(Next::Live);
        }
        let cut = match self.random.one_in(3) {
            true => Cut::InWork(self.random.below(4000)),
            false => Cut::Never,
        };
        let steps = [CopyCommand::ReAdd, CopyCommand::Await];
        let steps = steps.map(|step| (Duration::ZERO, Step::Copies(step))).into();
        let absent = self.absent.clone();
        let order = Order { steps, cut, absent, ..self.quiet(self.settings.clone()) };
        self.live(machine, order)
    }

    /// Which copy rots while nothing runs: the outer `None` where none may, the inner one where the
    /// cache lies on one device.
    #[allow(clippy::option_option)]
    pub(super) fn draw_rotting(
        &self,
        machine: &Machine,
        random: &mut Random,
    ) -> Option<Option<usize>> {
        if machine.topology.copies().is_none() {
            return Some(None);
        }
        let mut book = self.excuses.borrow().copies.clone();
        book.begin_life();
        let may_rot = |copy| book.would_hold(copy, CacheIll::Damage(crate::faults::Damage::Flip));
        draw_copy(random, &book.whole(), may_rot).map(Some)
    }

    /// A start with one of the copies alone finds everything, or says that it cannot: which, what
    /// was done to the copies says.
    pub(super) fn check_copies(&mut self, machine: &Machine) -> Result<(), Offence> {
        if machine.topology.copies().is_none() || !machine.names_cache.get() {
            return Ok(());
        }
        let alone = self.excuses.borrow().copies.alone();
        if self.excuses.borrow().errors || alone.is_empty() || self.random.one_in(2) {
            return Ok(());
        }
        let (copy, must_start) = *self.random.pick(&alone);
        let belonging = machine.belonging_copies();
        if !belonging.contains(&copy) {
            return Ok(());
        }
        self.say(format!("  with copy {copy} of the cache alone"));
        let before = self.excuses.borrow();
        let mut excuses = Excuses {
            copies: before.copies.with_only(copy),
            cache_failed: !must_start,
            ..before.clone()
        };
        drop(before);
        excuses.note_opening(&machine.topology);
        let others = belonging.into_iter().filter(|other| *other != copy).collect();
        let absent = Absent { copies: others, ..self.absent.clone() };
        let order = Order { absent, ..self.quiet(self.settings.clone()) };
        let (machine, excuses) = (&machine.duplicate(), &RefCell::new(excuses));
        let world = World {
            machine,
            excuses,
            tally: &self.tally,
            random: &RefCell::new(self.random.fork()),
        };
        match world.live(&order).0 {
            End::Offence(offence) => Err(offence),
            _ => Ok(()),
        }
    }
}

fn draw_copy(random: &mut Random, copies: &[usize], may: impl Fn(usize) -> bool) -> Option<usize> {
    let fit: Vec<usize> = copies.iter().copied().filter(|copy| may(*copy)).collect();
    (!fit.is_empty()).then(|| *random.pick(&fit))
}

/// Something that costs a copy.
fn draw_loss(random: &mut Random) -> CacheIll {
    let times = 1 + random.below(3);
    let all = [
        CacheIll::Gone,
        CacheIll::Gone,
        CacheIll::Writes { times },
        CacheIll::Writes { times },
        CacheIll::Flush,
        CacheIll::Hang,
    ];
    *random.pick(&all)
}
