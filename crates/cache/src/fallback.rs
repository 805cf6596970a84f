//! Fallback to pass-through after too many errors of the cache device.
//!
//! Each error is handled where it occurs. This module detects that they accumulate: a failing
//! device. After a number of errors within a window the slice is in pass-through, with dirty data
//! served and cleaned, until a command ends it.
//!
//! **Source**: Open CAS's `fallback_pt_error_threshold`, which counts without a window.

use headpond_block::{ErrorLog, Instant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// The error threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, try_from = "Unchecked")]
pub struct FallbackConfig {
    /// So many errors of the cache device; 0: never.
    pub errors: u32,
    /// Within so many seconds.
    pub window_s: u32,
}

const ERRORS_MAX: u32 = 10_000;
const WINDOW_S_MAX: u32 = 86_400;

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Unchecked {
    errors: u32,
    window_s: u32,
}

impl Default for FallbackConfig {
    fn default() -> Self {
        Self { errors: 100, window_s: 60 }
    }
}

impl Default for Unchecked {
    fn default() -> Self {
        let FallbackConfig { errors, window_s } = FallbackConfig::default();
        Self { errors, window_s }
    }
}

impl TryFrom<Unchecked> for FallbackConfig {
    type Error = String;

    fn try_from(unchecked: Unchecked) -> Result<Self, String> {
        let Unchecked { errors, window_s } = unchecked;
        let refuse = |name, found, least, most| {
            format!("fallback.{name} = {found} is out of range: {least} to {most}")
        };
        if errors > ERRORS_MAX {
            return Err(refuse("errors", errors, 0, ERRORS_MAX));
        }
        if !(1..=WINDOW_S_MAX).contains(&window_s) {
            return Err(refuse("window-s", window_s, 1, WINDOW_S_MAX));
        }
        Ok(Self { errors, window_s })
    }
}

/// Errors of the cache device: all, and the recent ones.
#[derive(Default)]
pub(crate) struct Fallback {
    pub errors: Rc<ErrorLog>,
    times: VecDeque<Instant>,
    is_in_force: bool,
}

impl Fallback {
    pub fn counting_in(errors: Rc<ErrorLog>) -> Self {
        Self { errors, ..Self::default() }
    }

    pub fn is_in_force(&self) -> bool {
        self.is_in_force
    }

    /// One more error; answers whether it was the one too many.
    pub fn note(&mut self, now: Instant, config: FallbackConfig) -> bool {
        if config.errors == 0 || self.is_in_force {
            return false;
        }
        let window = Duration::from_secs(u64::from(config.window_s));
        self.times.push_back(now);
        while self.times.front().is_some_and(|at| *at + window < now)
            || self.times.len() > config.errors as usize
        {
            self.times.pop_front();
        }
        self.is_in_force = self.times.len() >= config.errors as usize;
        self.is_in_force
    }

    /// Resets the fallback by command.
    pub fn leave(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    #[test]
    fn the_last_of_enough_errors_within_the_window_is_the_one_too_many() {
        let config = FallbackConfig { errors: 3, window_s: 1 };
        let mut fallback = Fallback::default();
        let noted = [0, 500, 1600, 2000, 2500].map(|ms| fallback.note(at(ms), config));
        assert_eq!(noted, [false, false, false, false, true]);
        assert!(!fallback.note(at(2600), config), "told once");
        assert!(fallback.is_in_force());
        fallback.leave();
        assert!(!fallback.note(at(2700), config) && !fallback.is_in_force());
    }

    #[test]
    fn no_number_of_errors_is_too_many_where_none_is_set() {
        let config = FallbackConfig { errors: 0, ..FallbackConfig::default() };
        let mut fallback = Fallback::default();
        assert!((0..1000).all(|ms| !fallback.note(at(ms), config)));
    }

    #[test]
    fn fewer_errors_allowed_than_have_been_counted_is_no_trouble() {
        let mut fallback = Fallback::default();
        for ms in 0..50 {
            fallback.note(at(ms), FallbackConfig::default());
        }
        assert!(fallback.note(at(50), FallbackConfig { errors: 2, window_s: 60 }));
    }
}
