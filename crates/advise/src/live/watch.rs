//! The watch: when to advise, when to set the advice, and when to take it back.
//!
//! 1. Looks at one workload are gathered; with enough of them there is advice.
//! 2. Three looks in a row that are unlike the ones advised on begin again.
//! 3. With leave to apply, advice that is worth a change is set, if it weakens nothing.
//! 4. The looks after it are judged against those before; where the workload is another one by
//!    then, the models judge, with the settings from before as the shadow.
//! 5. What was kept is watched on.
//!
//! **Invariants**: one trial at a time; nothing is set that is not in the journal first; a trial is
//! over only when what was decided is set.

use super::{Change, Character, Event, Look, Weakening, delivered};
use crate::search::{Gain, Goal, NEARLY_AS_MUCH, Setting};
use std::collections::VecDeque;

/// Looks at one workload that are kept.
const LOOKS_MAX: usize = 8;
/// Looks of which there is advice, unless one alone is full.
const LOOKS_MIN: usize = 3;
/// Looks after a change, of settings or of the workload, that it is judged by. The one after a
/// change of settings is for things to settle.
const JUDGED: usize = 3;
/// Trials that are remembered, so that none is repeated.
const FAILED_MAX: usize = 8;
/// Fewer requests are no look.
const REQUESTS_MIN: usize = 200;

/// A volume that is served, and who advises on it.
pub trait Served {
    type Error;

    /// The best settings for such a workload, beside what is set now.
    ///
    /// # Errors
    /// Where the volume is gone, or nobody can say.
    fn advise(&mut self, looks: &[Look]) -> Result<Proposal, Self::Error>;

    /// What of these would be less safe than what is set now, where nobody gave leave.
    ///
    /// # Errors
    /// Where the volume is gone.
    fn weakened_by(&mut self, settings: &[Setting]) -> Result<Option<Weakening>, Self::Error>;

    /// What to set to come back from these settings to what is set now, as `key=value`.
    ///
    /// # Errors
    /// Where the volume is gone.
    fn way_back(&mut self, settings: &[Setting]) -> Result<Vec<String>, Self::Error>;

    /// Why what is seen now says nothing about the settings, and none should be changed: there is
    /// work on the volume that will be over.
    ///
    /// # Errors
    /// Where the volume is gone.
    fn unsettled(&mut self) -> Result<Option<String>, Self::Error>;

    /// # Errors
    /// What the volume refuses.
    fn set(&mut self, settings: &[String]) -> Result<(), Self::Error>;

    /// Goes the way back from settings, but for what somebody else has set meanwhile.
    ///
    /// # Errors
    /// What the volume refuses.
    fn take_back(&mut self, settings: &[String], back: &[String]) -> Result<(), Self::Error>;

    /// What the models say is gained over settings of before by those of now, for these looks.
    ///
    /// # Errors
    /// Where nobody can say.
    fn shadow(&mut self, looks: &[Look], back: &[String]) -> Result<Gain, Self::Error>;

    /// # Errors
    /// Where it cannot be written.
    fn note(&mut self, event: Event) -> Result<(), Self::Error>;
}

/// Advice, as far as a watch is concerned.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub settings: Vec<Setting>,
    /// Over what is set now.
    pub gain: Option<Gain>,
    pub is_worth_changing: bool,
    pub reasons: Vec<String>,
    pub requests_per_second: f64,
}

/// What is wanted of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    pub goal: Goal,
    /// Advice may be set.
    pub apply: bool,
    /// Requests of a full look.
    pub full: usize,
}

/// Watches one volume.
pub struct Watch {
    orders: Orders,
    /// At the present workload.
    looks: VecDeque<Look>,
    advised_on: Option<Character>,
    unlike: Vec<Look>,
    /// Looks since it was last seen how what was kept does.
    unseen: usize,
    /// Why looks do not count at present, where that was said.
    idle: Option<Idle>,
    trial: Option<Trial>,
    kept: Option<Trial>,
    /// What did not deliver, and for which workload.
    failed: Vec<(Vec<String>, Character)>,
}

/// Why a look does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    Quiet,
    Unsettled,
}

/// Settings that must show what they are worth.
#[derive(Clone)]
struct Trial {
    settings: Vec<String>,
    back: Vec<String>,
    before: Vec<Look>,
    /// None before things have settled.
    after: Option<Vec<Look>>,
}

impl Watch {
    pub fn new(orders: Orders) -> Self {
        Self {
            orders,
            looks: VecDeque::new(),
            advised_on: None,
            unlike: Vec::new(),
            unseen: 0,
            idle: None,
            trial: None,
            kept: None,
            failed: Vec::new(),
        }
    }

    /// Whether settings are on trial, which would be left there if the watch ended now.
    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Takes the next look.
    ///
    /// # Errors
    /// What the volume, the models or the journal say.
    pub fn next<S: Served>(&mut self, look: Look, served: &mut S) -> Result<(), S::Error> {
        if self.is_idle(&look, served)? {
            return Ok(());
        }
        if self.trial.is_some() {
            return self.go_on_trying(look, served);
        }
        let Some(known) = &self.advised_on else {
            self.remember(look);
            return if self.is_enough() { self.advise(served) } else { Ok(()) };
        };
        let change = Character::of(std::slice::from_ref(&look)).change_since(known);
        let Some(change) = change else {
            self.unlike.clear();
            self.remember(look);
            self.unseen += 1;
            if self.unseen < JUDGED {
                return Ok(());
            }
            self.unseen = 0;
            return self.look_after_what_was_kept(served).map(|_| ());
        };
        self.unlike.push(look);
        if self.unlike.len() < JUDGED {
            return Ok(());
        }
        self.looks = std::mem::take(&mut self.unlike).into();
        if self.look_after_what_was_kept(served)? {
            self.advised_on = Some(Character::of(self.looks.make_contiguous()));
            return Ok(());
        }
        served.note(Event::changed(change))?;
        self.kept = None;
        self.advise(served)
    }

    /// Ends the watch: what is on trial is taken back.
    ///
    /// # Errors
    /// What the volume or the journal say.
    pub fn end<S: Served>(&mut self, served: &mut S) -> Result<(), S::Error> {
        match self.trial.clone() {
            Some(trial) => self.roll_back(&trial, "the watch ended before it was judged", served),
            None => Ok(()),
        }
    }

    /// Whether a look says nothing, which is told once.
    fn is_idle<S: Served>(&mut self, look: &Look, served: &mut S) -> Result<bool, S::Error> {
        let requests = look.records.len();
        let (idle, event) = match requests < REQUESTS_MIN {
            true => (Some(Idle::Quiet), Some(Event::Quiet { requests })),
            false => match served.unsettled()?.filter(|_| self.orders.apply) {
                Some(why) => (Some(Idle::Unsettled), Some(Event::Unsettled { why })),
                None => (None, None),
            },
        };
        if let Some(event) = event.filter(|_| idle != self.idle) {
            served.note(event)?;
        }
        self.idle = idle;
        Ok(idle.is_some())
    }

    fn remember(&mut self, look: Look) {
        self.looks.push_back(look);
        if self.looks.len() > LOOKS_MAX {
            self.looks.pop_front();
        }
    }

    fn is_enough(&self) -> bool {
        // What is set is compared with several looks.
        let is_full = |look: &Look| !self.orders.apply && look.records.len() >= self.orders.full;
        self.looks.len() >= LOOKS_MIN || self.looks.iter().any(is_full)
    }

    fn advise<S: Served>(&mut self, served: &mut S) -> Result<(), S::Error> {
        let looks = self.looks.make_contiguous();
        let present = Character::of(looks);
        self.advised_on = Some(present.clone());
        let proposal = served.advise(looks)?;
        let settings: Vec<String> = proposal.settings.iter().map(Setting::to_string).collect();
        served.note(Event::Advised {
            settings: settings.clone(),
            gain: proposal.gain,
            proposed: proposal.is_worth_changing,
            reasons: proposal.reasons,
            requests_per_second: proposal.requests_per_second,
        })?;
        if !proposal.is_worth_changing || !self.orders.apply {
            return Ok(());
        }
        let is_again =
            |it: &(Vec<String>, Character)| it.0 == settings && is_alike(&present, &it.1);
        if self.failed.iter().any(is_again) {
            return served.note(Event::TriedBefore { settings });
        }
        if let Some(weakening) = served.weakened_by(&proposal.settings)? {
            return served.note(Event::withheld(&weakening));
        }
        let back = served.way_back(&proposal.settings)?;
        served.note(Event::Applied { settings: settings.clone(), back: back.clone() })?;
        let before = self.looks.iter().cloned().collect();
        self.trial = Some(Trial { settings: settings.clone(), back, before, after: None });
        served.set(&settings)
    }

    fn go_on_trying<S: Served>(&mut self, look: Look, served: &mut S) -> Result<(), S::Error> {
        let Some(trial) = &mut self.trial else { return Ok(()) };
        match &mut trial.after {
            None => trial.after = Some(Vec::new()),
            Some(after) => after.push(look),
        }
        match trial.after.take_if(|after| after.len() == JUDGED) {
            Some(after) => {
                let trial = trial.clone();
                self.judge(trial, after, served)
            }
            None => Ok(()),
        }
    }

    fn judge<S: Served>(
        &mut self,
        trial: Trial,
        after: Vec<Look>,
        served: &mut S,
    ) -> Result<(), S::Error> {
        let shadow = served.shadow(&after, &trial.back)?;
        let measured = match is_comparable(&trial.before, &after) {
            true => delivered(&trial.before, &after, self.orders.goal),
            false => None,
        };
        let (gain, against, besides) = match measured {
            Some(gain) => (gain, "the time before", Some(shadow)),
            None => (shadow, "the models, as the workload is another one", None),
        };
        served.note(Event::Judged { gain, against: against.into(), besides })?;
        self.looks = after.into();
        if gain.factor < NEARLY_AS_MUCH {
            return self.give_up(trial, "it does not deliver", served);
        }
        served.note(Event::Kept { settings: trial.settings.clone() })?;
        self.trial = None;
        // Another workload than it was advised for is one that is still to be advised on.
        if measured.is_some() {
            self.advised_on = Some(Character::of(self.looks.make_contiguous()));
            self.kept = Some(trial);
        }
        Ok(())
    }

    /// A cache that is new is empty; only later is it seen what it does in the long run. True where
    /// what was kept is taken back after all.
    ///
    /// Longer responses may be those of a deeper queue: the models must agree that it is not that.
    fn look_after_what_was_kept<S: Served>(&mut self, served: &mut S) -> Result<bool, S::Error> {
        let Some(kept) = &self.kept else { return Ok(false) };
        let last: Vec<Look> = self.looks.iter().rev().take(JUDGED).cloned().collect();
        if last.len() < JUDGED || !is_comparable(&kept.before, &last) {
            return Ok(false);
        }
        let is_worse = |gain: &Gain| gain.high < 1.0;
        let Some(gain) = delivered(&kept.before, &last, self.orders.goal).filter(is_worse) else {
            return Ok(false);
        };
        let shadow = served.shadow(&last, &kept.back)?;
        if shadow.factor >= NEARLY_AS_MUCH {
            return Ok(false);
        }
        let against = "the time before".to_owned();
        served.note(Event::Judged { gain, against, besides: Some(shadow) })?;
        let kept = kept.clone();
        self.give_up(kept, "it delivers no longer", served)?;
        Ok(true)
    }

    fn give_up<S: Served>(
        &mut self,
        trial: Trial,
        why: &str,
        served: &mut S,
    ) -> Result<(), S::Error> {
        self.roll_back(&trial, why, served)?;
        self.failed.push((trial.settings, Character::of(&trial.before)));
        if self.failed.len() > FAILED_MAX {
            self.failed.remove(0);
        }
        Ok(())
    }

    /// It is over when it is set, and only then.
    fn roll_back<S: Served>(
        &mut self,
        trial: &Trial,
        why: &str,
        served: &mut S,
    ) -> Result<(), S::Error> {
        let settings = trial.back.clone();
        served.note(Event::RollingBack { why: why.to_owned(), settings: settings.clone() })?;
        served.take_back(&trial.settings, &trial.back)?;
        (self.trial, self.kept) = (None, None);
        served.note(Event::RolledBack { settings })
    }
}

/// Whether two stretches ask for the same things. How many are in flight may be a result of how
/// soon they are answered, and does not count.
fn is_comparable(before: &[Look], after: &[Look]) -> bool {
    is_alike(&Character::of(after), &Character::of(before))
}

fn is_alike(after: &Character, before: &Character) -> bool {
    matches!(after.change_since(before), None | Some(Change::Depth { .. }))
}
