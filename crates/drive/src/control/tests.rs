//! Switching, against drives that do as they are told and drives that do not.

use super::*;
use std::cell::{Cell, RefCell};

/// A drive that writes down what is asked of it.
struct Fake {
    state: Cell<CacheState>,
    obeys: bool,
    speaks: bool,
    /// Of a refusal by the drive, whether it comes after the deed.
    refuses: Option<bool>,
    steps: RefCell<Vec<String>>,
}

impl Fake {
    fn new(state: CacheState) -> Self {
        Self {
            state: Cell::new(state),
            obeys: true,
            speaks: true,
            refuses: None,
            steps: RefCell::default(),
        }
    }

    fn note(&self, step: impl Into<String>) {
        self.steps.borrow_mut().push(step.into());
    }

    fn keep(&self, was: Setting) -> io::Result<()> {
        self.note(format!("keep {was}"));
        Ok(())
    }
}

impl CacheControl for Fake {
    fn read(&self) -> Result<CacheState, AskError> {
        match self.speaks {
            true => Ok(self.state.get()),
            false => Err(AskError::NoWay),
        }
    }

    fn flush(&self) -> Result<(), ControlError> {
        self.note("flush");
        Ok(())
    }

    fn write(&self, to: Setting, lasting: Lasting) -> Result<Lasting, ControlError> {
        self.note(format!("write {to}"));
        if self.obeys && self.refuses != Some(false) {
            self.state.set(to.into());
        }
        match self.refuses {
            None => Ok(lasting),
            Some(_) => Err(ControlError::Unsaveable { why: "it cannot" }),
        }
    }
}

fn switch_off(fake: &Fake) -> Result<Switched, SetError> {
    switch(fake, Setting::Off, Lasting::UntilPowerCycle, |was| fake.keep(was))
}

#[test]
fn a_cache_is_kept_in_mind_then_flushed_then_switched_off() {
    let fake = Fake::new(CacheState::On);
    let switched = switch_off(&fake).unwrap();
    assert_eq!(*fake.steps.borrow(), ["keep on", "flush", "write off"]);
    assert_eq!((switched.before, switched.after), (Some(CacheState::On), Some(CacheState::Off)));
    assert!(switched.flushed);
}

#[test]
fn switching_on_needs_no_flush() {
    let fake = Fake::new(CacheState::Off);
    switch(&fake, Setting::On, Lasting::UntilPowerCycle, |was| fake.keep(was)).unwrap();
    assert_eq!(*fake.steps.borrow(), ["keep off", "write on"]);
}

#[test]
fn what_is_so_already_is_not_touched_unless_it_is_to_be_saved() {
    let fake = Fake::new(CacheState::Off);
    assert_eq!(switch_off(&fake).unwrap().lasting, None);
    assert!(fake.steps.borrow().is_empty());
    let saved = switch(&fake, Setting::Off, Lasting::Saved, |was| fake.keep(was)).unwrap();
    assert_eq!(saved.lasting, Some(Lasting::Saved));
}

#[test]
fn a_drive_that_does_not_take_it_is_an_error_that_says_what_it_is() {
    let fake = Fake { obeys: false, ..Fake::new(CacheState::On) };
    let error = switch_off(&fake).unwrap_err();
    assert_eq!(error.to_string(), "the drive ignored the setting: its write cache is on, not off");
}

#[test]
fn nothing_is_switched_where_what_was_cannot_be_read_or_kept() {
    let mute = Fake { speaks: false, ..Fake::new(CacheState::On) };
    let refused = switch_off(&mute).unwrap_err();
    assert!(matches!(refused, SetError::Before(_)));
    assert!(refused.to_string().ends_with("use its vendor's tool (--hook)"), "{refused}");
    let fake = Fake::new(CacheState::On);
    let full = |_| Err(io::ErrorKind::StorageFull.into());
    let failed = switch(&fake, Setting::Off, Lasting::UntilPowerCycle, full);
    assert!(matches!(failed, Err(SetError::Keep(_))));
    assert!(mute.steps.borrow().is_empty() && fake.steps.borrow().is_empty());
    assert!(matches!(switch_off(&Fake::new(CacheState::Absent)), Err(SetError::Absent)));
}

#[test]
fn a_hook_is_run_whatever_the_drive_says_and_judged_by_what_it_says_then() {
    let words = |text: &str| vec![text.to_owned()];
    let mute = Fake { speaks: false, ..Fake::new(CacheState::On) };
    let by = |fake: &Fake, program: &str, to| {
        switch_by_hook(fake, &words(program), to, |was| fake.keep(was))
    };
    let switched = by(&mute, "true", Setting::Off).unwrap();
    assert_eq!((switched.before, switched.after, switched.flushed), (None, None, true));
    assert_eq!(*mute.steps.borrow(), ["flush"]);
    let failed = by(&mute, "false", Setting::Off);
    assert!(matches!(failed, Err(SetError::Half(ControlError::Hook(_)))));
    let fake = Fake::new(CacheState::On);
    let unmoved = by(&fake, "true", Setting::Off);
    assert!(matches!(unmoved, Err(SetError::NotTaken { is: CacheState::On, .. })));
    assert_eq!(*fake.steps.borrow(), ["keep on", "flush"]);
}

#[test]
fn a_refusal_is_harmless_only_where_the_drive_says_that_it_is_as_it_was() {
    let refused = |after| {
        let fake = Fake { refuses: Some(after), ..Fake::new(CacheState::On) };
        switch_off(&fake).unwrap_err()
    };
    assert!(matches!(refused(false), SetError::Write(_)) && refused(false).changed_nothing());
    assert!(matches!(refused(true), SetError::Half(_)) && !refused(true).changed_nothing());
}
