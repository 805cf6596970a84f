//! The watch: when to advise, when to set the advice, and when to take it back.
//!
//! 1. Looks at one workload are gathered; with enough of them there is advice.
//! 2. A look that is unlike the ones advised on, and another one like it, begin again.
//! 3. With leave to apply, advice that is worth a change is set, if it weakens nothing.
//! 4. The looks after it are judged against those before; where the workload is another one by
//!    then, the models judge, with the settings from before as the shadow.
//! 5. What was kept is watched on.
//!
//! **Invariants**: one trial at a time; nothing is set that is not in the journal first.

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

    /// # Errors
    /// What the volume refuses.
    fn set(&mut self, settings: &[String]) -> Result<(), Self::Error>;

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
    is_quiet: bool,
    trial: Option<Trial>,
    kept: Option<Trial>,
    /// What did not deliver.
    failed: Vec<Trial>,
}

/// Settings that must show what they are worth.
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
            is_quiet: false,
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
        let is_quiet = look.records.len() < REQUESTS_MIN;
        if is_quiet && !self.is_quiet {
            served.note(Event::Quiet { requests: look.records.len() })?;
        }
        self.is_quiet = is_quiet;
        if is_quiet {
            return Ok(());
        }
        if let Some(trial) = self.trial.take() {
            return self.go_on_trying(trial, look, served);
        }
        let Some(known) = &self.advised_on else {
            self.remember(look);
            return if self.is_enough() { self.advise(served) } else { Ok(()) };
        };
        let change = Character::of(std::slice::from_ref(&look)).change_since(known);
        let Some(change) = change else {
            self.unlike.clear();
            self.remember(look);
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
        match self.trial.take() {
            Some(trial) => roll_back(&trial, "the watch ended before it was judged", served),
            None => Ok(()),
        }
    }

    fn remember(&mut self, look: Look) {
        self.looks.push_back(look);
        if self.looks.len() > LOOKS_MAX {
            self.looks.pop_front();
        }
    }

    fn is_enough(&self) -> bool {
        let is_full = |look: &Look| look.records.len() >= self.orders.full;
        self.looks.len() >= LOOKS_MIN || self.looks.iter().any(is_full)
    }

    fn advise<S: Served>(&mut self, served: &mut S) -> Result<(), S::Error> {
        let looks = self.looks.make_contiguous();
        self.advised_on = Some(Character::of(looks));
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
        let looks = self.looks.make_contiguous();
        let is_again = |it: &Trial| it.settings == settings && is_comparable(&it.before, looks);
        if self.failed.iter().any(is_again) {
            return served.note(Event::TriedBefore { settings });
        }
        if let Some(weakening) = served.weakened_by(&proposal.settings)? {
            return served.note(Event::withheld(&weakening));
        }
        let back = served.way_back(&proposal.settings)?;
        served.note(Event::Applied { settings: settings.clone(), back: back.clone() })?;
        served.set(&settings)?;
        let before = self.looks.iter().cloned().collect();
        self.trial = Some(Trial { settings, back, before, after: None });
        Ok(())
    }

    fn go_on_trying<S: Served>(
        &mut self,
        mut trial: Trial,
        look: Look,
        served: &mut S,
    ) -> Result<(), S::Error> {
        match &mut trial.after {
            None => trial.after = Some(Vec::new()),
            Some(after) => after.push(look),
        }
        match &trial.after {
            Some(after) if after.len() == JUDGED => self.judge(trial, served),
            _ => {
                self.trial = Some(trial);
                Ok(())
            }
        }
    }

    fn judge<S: Served>(&mut self, mut trial: Trial, served: &mut S) -> Result<(), S::Error> {
        let after = trial.after.take().unwrap_or_default();
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
        self.advised_on = Some(Character::of(self.looks.make_contiguous()));
        served.note(Event::Kept { settings: trial.settings.clone() })?;
        self.kept = Some(trial);
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
        let kept = self.kept.take().expect("just seen");
        self.give_up(kept, "it delivers no longer", served)?;
        Ok(true)
    }

    fn give_up<S: Served>(
        &mut self,
        trial: Trial,
        why: &str,
        served: &mut S,
    ) -> Result<(), S::Error> {
        roll_back(&trial, why, served)?;
        self.failed.push(trial);
        if self.failed.len() > FAILED_MAX {
            self.failed.remove(0);
        }
        Ok(())
    }
}

/// Whether two stretches ask for the same things. How many are in flight may be a result of how
/// soon they are answered, and does not count.
fn is_comparable(before: &[Look], after: &[Look]) -> bool {
    let change = Character::of(after).change_since(&Character::of(before));
    matches!(change, None | Some(Change::Depth { .. }))
}

fn roll_back<S: Served>(trial: &Trial, why: &str, served: &mut S) -> Result<(), S::Error> {
    served.note(Event::RolledBack { why: why.to_owned(), settings: trial.back.clone() })?;
    served.set(&trial.back)
}
