//! A whole case: what a seed draws, lived to its end.

mod copies;
mod counting;
mod draws;
mod growing;
mod images;
mod returning;
mod signing;
mod switching;

use crate::expect::Excuses;
use crate::faults::{CacheIll, Ill, Theme};
use crate::life::{Cut, End, Order, World};
use crate::machine::{Absent, Machine};
use crate::offence::Offence;
use crate::remains::Remains;
use crate::steps::Step;
use crate::tally::Tally;
use crate::topology::{Topology, all_logged, draw_settings};
use growing::is_latent;
use headpond_cache::Mode;
use headpond_sim::Random;
use headpond_volume::CacheSettings;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// What every case does at least.
const REQUESTS_MIN: u64 = 1000;
const CRASHES_MIN: u64 = 3;
const FAULTS_MIN: u64 = 2;
/// Cases are ended after so many lives, whatever they lack.
const LIVES_MAX: u64 = 40;

/// Between two lives of a case with an unreliable cache, one time in so many.
const ROT_ONE_IN: u64 = 6;
/// The cases whose seeds are multiples of it have settings with which all writes are logged: only
/// those write parts of blocks, and drawn settings seldom are such.
const LOGGED_ONE_IN: u64 = 6;

/// Whether a case has settings with which all writes are logged.
fn is_all_logged(seed: u64) -> bool {
    seed.is_multiple_of(LOGGED_ONE_IN)
}

/// A case that went wrong.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub offence: Offence,
    /// What was drawn and what came of it, a line each.
    pub story: Vec<String>,
    pub tally: Tally,
}

/// Lives the case of `seed` to its end.
///
/// # Errors
/// What went wrong, with the story so far.
///
/// # Panics
/// Where the engine does; the caller catches it.
pub fn run_case(seed: u64, tell: &mut dyn FnMut(&str)) -> Result<Tally, Box<Failure>> {
    let mut case = Case::new(seed, tell);
    let outcome = case.run();
    case.tally.borrow_mut().full_cases = u64::from(case.is_full());
    let (story, tally) = (case.story, case.tally.into_inner());
    match outcome {
        Ok(()) => Ok(tally),
        Err(offence) => Err(Box::new(Failure { seed, offence, story, tally })),
    }
}

/// Whether the case goes on after a life.
enum Next {
    Live,
    Over,
}

struct Case<'a> {
    seed: u64,
    random: Random,
    /// For what is drawn while a life is lived.
    live_random: RefCell<Random>,
    theme: Theme,
    settings: CacheSettings,
    absent: Absent,
    excuses: RefCell<Excuses>,
    tally: RefCell<Tally>,
    story: Vec<String>,
    tell: &'a mut dyn FnMut(&str),
}

impl<'a> Case<'a> {
    fn new(seed: u64, tell: &'a mut dyn FnMut(&str)) -> Self {
        let mut random = Random::new(seed);
        let theme = if random.one_in(3) { Theme::Cache } else { Theme::Array };
        let drawn = draw_settings(&mut random);
        Self {
            seed,
            settings: if is_all_logged(seed) { all_logged(drawn) } else { drawn },
            live_random: RefCell::new(random.fork()),
            random,
            theme,
            absent: Absent::default(),
            excuses: RefCell::default(),
            tally: RefCell::new(Tally { cases: 1, ..Tally::default() }),
            story: Vec::new(),
            tell,
        }
    }

    fn run(&mut self) -> Result<(), Offence> {
        let topology = Topology::draw(&mut self.random);
        topology.put_right(&mut self.settings);
        self.say(format!("seed {}: {topology}", self.seed));
        let machine = Machine::new(topology, self.seed);
        let mut machine = machine.map_err(|error| Offence::Setup(error.to_string()))?;
        let copies = machine.topology.copies().unwrap_or(0);
        self.excuses.borrow_mut().copies.made_on(0..copies);
        while !self.has_seen_enough() {
            let order = self.draw_life(&machine, false);
            if let Next::Over = self.live(&machine, order)? {
                return Ok(());
            }
            if let Next::Over = self.fill_copies(&machine)? {
                return Ok(());
            }
        }
        if let Next::Over = self.live_signing(&machine)? {
            return Ok(());
        }
        if let Next::Over = self.live_switching(&machine)? {
            return Ok(());
        }
        if let Next::Over = self.live_growing(&mut machine)? {
            return Ok(());
        }
        if let Next::Over = self.live_counting(&mut machine)? {
            return Ok(());
        }
        if let Next::Over = self.live_returning(&machine)? {
            return Ok(());
        }
        if !self.random.one_in(3) {
            for _ in 0..2 {
                let order = self.draw_life(&machine, true);
                if let Next::Over = self.live(&machine, order)? {
                    return Ok(());
                }
                self.draw_returns(&machine);
            }
        }
        if let Next::Over = self.live_degraded(&machine)? {
            return Ok(());
        }
        self.finish(&machine)
    }

    /// Lives that are drawn from `aside`: what comes later is drawn as it is without them.
    fn live_aside(
        &mut self,
        mut aside: Random,
        live: impl FnOnce(&mut Self) -> Result<Next, Offence>,
    ) -> Result<Next, Offence> {
        let live_random = self.live_random.replace(aside.fork());
        let random = std::mem::replace(&mut self.random, aside);
        let next = live(self);
        self.random = random;
        self.live_random.replace(live_random);
        next
    }

    /// Where there is a stripe journal: members are lost while nothing runs, while writes are under
    /// way, or with a cut, and the journal may fail.
    fn live_degraded(&mut self, machine: &Machine) -> Result<Next, Offence> {
        if machine.topology.journal.is_none() {
            return Ok(Next::Live);
        }
        for _ in 0..4 {
            self.draw_loss(machine);
            // Drawn aside: the other lives are what they are.
            let may_lose = self.excuses.borrow().lost.len() < machine.topology.redundancy();
            let is_severe = may_lose && self.random.clone().fork().one_in(2);
            let mut order = self.draw_life(machine, is_severe);
            self.draw_journal_ill(&mut order);
            self.draw_exchange_of_journal(&mut order);
            if !self.excuses.borrow().lost.is_empty() {
                // What replaces a block that cannot be read may be what was lost.
                order.steps.retain(|(_, step)| !is_latent(step));
            }
            if let Next::Over = self.live(machine, order)? {
                return Ok(Next::Over);
            }
        }
        Ok(Next::Live)
    }

    fn has_seen_enough(&self) -> bool {
        self.is_full() || self.tally.borrow().lives >= LIVES_MAX
    }

    fn is_full(&self) -> bool {
        let tally = self.tally.borrow();
        tally.requests >= REQUESTS_MIN
            && tally.crashes() >= CRASHES_MIN
            && tally.faults_total() >= FAULTS_MIN
    }

    /// Everything is cleaned and read once more.
    fn finish(&mut self, machine: &Machine) -> Result<(), Offence> {
        let order = Order {
            absent: self.absent.clone(),
            steps: vec![(Duration::ZERO, Step::CleanAll)],
            ..self.quiet(self.settings.clone())
        };
        self.live(machine, order).map(|_| ())
    }

    /// A life in which nothing is asked but that everything can be read.
    fn quiet(&mut self, settings: CacheSettings) -> Order {
        quiet(self.random.number(), settings)
    }

    /// Copies of the disks, as many missing as may be lost, hold the same: the redundancy is right.
    /// What is in the cache may hide what the members hold, but for what is clean.
    fn check_redundancy(&mut self, machine: &Machine) -> Result<(), Offence> {
        let redundancy = machine.redundancy();
        if redundancy == 0 || !self.is_whole() {
            return Ok(());
        }
        let copy = machine.duplicate();
        let mut members = machine.belonging_members();
        self.random.shuffle(&mut members);
        let missing: BTreeSet<usize> = members.into_iter().take(redundancy).collect();
        self.say(format!("  a copy without members {missing:?}"));
        let absent = Absent { members: missing.clone(), ..Absent::default() };
        let seed = self.random.number();
        let torn = self.excuses.borrow().torn;
        let excuses = Excuses { lost: missing, torn, ..Excuses::default() };
        self.check_copy(&copy, Order { absent, ..quiet(seed, self.settings.clone()) }, excuses)
    }

    fn is_whole(&self) -> bool {
        let excuses = self.excuses.borrow();
        excuses.lost.is_empty() && !excuses.errors
    }

    /// Everything can be read of a copy of the disks, but for what is excused. What is in the cache
    /// would hide what the members hold.
    fn check_copy(&self, copy: &Machine, order: Order, excuses: Excuses) -> Result<(), Offence> {
        let settings = CacheSettings { mode: Mode::PassThrough, ..order.settings };
        let order = Order { settings, ..order };
        let excuses = RefCell::new(excuses);
        let world = World {
            machine: copy,
            excuses: &excuses,
            tally: &self.tally,
            random: &self.live_random,
        };
        match world.live(&order).0 {
            End::Offence(offence) => Err(offence),
            _ => Ok(()),
        }
    }

    fn live(&mut self, machine: &Machine, order: Order) -> Result<Next, Offence> {
        let order = Order { copied: self.draw_copy(machine), ..order };
        self.tell_life(&order);
        let returned = self.excuses.borrow().lost.difference(&order.absent.members).count() > 0;
        self.excuses.borrow_mut().note_opening(&machine.topology);
        self.excuses.borrow_mut().note_absent_copies(&order.absent.copies);
        let world = World {
            machine,
            excuses: &self.excuses,
            tally: &self.tally,
            random: &self.live_random,
        };
        let (end, remains) = world.live(&order);
        let sent = remains.of_client();
        {
            let mut tally = self.tally.borrow_mut();
            tally.lives += 1;
            tally.requests += sent.sent;
            tally.failed_requests += sent.failed_reads + sent.failed_others;
            if returned && remains.volume.borrow().is_some() {
                tally.row(35);
            }
        }
        self.settings = remains.settings().unwrap_or_else(|| self.settings.clone());
        self.say(format!(
            "  {}: {} requests, {} failed",
            describe(&end),
            sent.sent,
            sent.failed_reads + sent.failed_others
        ));
        self.conclude(machine, end, &remains)
    }

    fn conclude(
        &mut self,
        machine: &Machine,
        end: End,
        remains: &Remains,
    ) -> Result<Next, Offence> {
        match end {
            End::Stopped => {
                self.tally.borrow_mut().clean_stops += 1;
                self.excuses.borrow_mut().unclean = false;
                machine.media().for_each(|medium| medium.rest());
                let memory = machine.cache_disk().filter(|it| crate::machine::is_memory(it));
                if let Some(memory) = memory {
                    memory.lose_power(&mut self.random);
                }
                self.check_redundancy(machine)?;
                self.check_copies(machine)?;
                self.check_image(machine, remains)?;
                self.rot(machine);
                Ok(Next::Live)
            }
            End::Cut | End::StopFailed => {
                let is_power_cut = !self.random.one_in(4);
                self.count_crash(machine, is_power_cut, remains);
                self.excuses.borrow_mut().note_unclean(&machine.topology);
                machine.crash(is_power_cut, &mut self.random, &mut self.tally.borrow_mut());
                self.check_copies(machine)?;
                self.rot(machine);
                Ok(Next::Live)
            }
            End::Refused(reason) => {
                let mut tally = self.tally.borrow_mut();
                *tally.refusals.entry(reason).or_default() += 1;
                match reason {
                    "stale cache" => tally.row(27),
                    "degraded and unclean" => tally.row(7),
                    _ => {}
                }
                Ok(Next::Over)
            }
            End::Offence(offence) => Err(offence),
        }
    }

    /// The cache device may be damaged while it lies there: whatever was stable is to be missed.
    fn rot(&mut self, machine: &Machine) {
        // Drawn aside: a case is what it is without it.
        let mut aside = self.random.clone().fork();
        if self.theme != Theme::Cache || !aside.one_in(ROT_ONE_IN) {
            return;
        }
        let Some(copy) = self.draw_rotting(machine, &mut aside) else { return };
        let Some((damage, aim, address)) = machine.rot(copy, &mut aside) else { return };
        let ill = Ill::Cache { copy, ill: CacheIll::Damage(damage) };
        self.say(format!("  {ill} while nothing runs, at {address} ({aim:?})"));
        self.excuses.borrow_mut().note(ill, &machine.topology);
        self.tally.borrow_mut().note(ill);
    }

    fn count_crash(&self, machine: &Machine, is_power_cut: bool, remains: &Remains) {
        let mut tally = self.tally.borrow_mut();
        if !is_power_cut {
            tally.kills += 1;
            tally.row(14);
            return;
        }
        tally.power_cuts += 1;
        tally.row(1);
        if remains.was_cleaning() {
            tally.row(11);
        }
        if remains.was_draining() {
            tally.row(12);
        }
        if machine.topology.has_parity() && !self.excuses.borrow().lost.is_empty() {
            tally.row(7);
        }
        if remains.was_growing() {
            tally.row(10);
        }
        let (was_rebuilding, was_scrubbing) = remains.was_rebuilding_or_scrubbing();
        if was_rebuilding {
            tally.row(8);
        }
        if was_scrubbing {
            tally.row(9);
        }
    }

    fn tell_life(&mut self, order: &Order) {
        let number = self.tally.borrow().lives + 1;
        let mut text = format!("life {number}: {:?}", order.settings);
        if order.absent != Absent::default() {
            let _ = write!(text, ", absent: {:?}", order.absent);
        }
        if let Some((after, disks)) = order.copied {
            let _ = write!(text, ", {disks} copied after {after:?}");
        }
        match order.cut {
            Cut::Never => {}
            cut => drop(write!(text, ", cut {cut:?}")),
        }
        self.say(text);
        if let Some(workload) = order.workload {
            self.say(format!("  {workload:?}"));
        }
        for (at, step) in &order.steps {
            self.say(format!("  from {:.3} ms: {step}", at.as_secs_f64() * 1e3));
        }
    }

    fn say(&mut self, line: String) {
        (self.tell)(&line);
        self.story.push(line);
    }
}

fn quiet(seed: u64, settings: CacheSettings) -> Order {
    Order {
        seed,
        settings,
        absent: Absent::default(),
        workload: None,
        steps: Vec::new(),
        rotted: 0,
        copied: None,
        cut: Cut::Never,
    }
}

fn describe(end: &End) -> String {
    match end {
        End::Stopped => "stopped".into(),
        End::StopFailed => "could not be stopped".into(),
        End::Cut => "cut".into(),
        End::Refused(reason) => format!("refused: {reason}"),
        End::Offence(offence) => format!("offence: {offence}"),
    }
}
