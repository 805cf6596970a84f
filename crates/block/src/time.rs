//! Time of the runtime: monotonic, in nanoseconds, real or virtual; and the time of day, for what
//! people read.

use chrono::{DateTime, NaiveDateTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Nanoseconds since the start of the runtime. Never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    pub const START: Instant = Instant(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to this instant; zero where `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The time of day in whole seconds, as `2026-11-22 00:12:05 UTC`. It may go back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct UtcTime {
    unix_s: u64,
}

/// Not a time of day.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no time such as 2026-11-22 00:12:05 UTC")]
pub struct UtcTimeError {
    text: String,
}

const UTC_FORMAT: &str = "%F %T UTC";
/// The end of the year 9999.
const UNIX_S_MAX: u64 = 253_402_300_799;

impl UtcTime {
    /// Seconds since 1970; later than the year 9999 is the end of it.
    pub const fn from_unix_s(unix_s: u64) -> Self {
        Self { unix_s: if unix_s < UNIX_S_MAX { unix_s } else { UNIX_S_MAX } }
    }

    /// Seconds from `earlier` to this time; zero where `earlier` is later.
    pub const fn seconds_since(self, earlier: Self) -> u64 {
        self.unix_s.saturating_sub(earlier.unix_s)
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::from_timestamp(self.unix_s as i64, 0).expect("before the year 10000");
        write!(f, "{}", time.format(UTC_FORMAT))
    }
}

impl From<UtcTime> for String {
    fn from(time: UtcTime) -> Self {
        time.to_string()
    }
}

impl TryFrom<String> for UtcTime {
    type Error = UtcTimeError;

    fn try_from(text: String) -> Result<Self, UtcTimeError> {
        let time = NaiveDateTime::parse_from_str(&text, UTC_FORMAT).ok();
        let unix_s = time.and_then(|time| u64::try_from(time.and_utc().timestamp()).ok());
        unix_s.map(Self::from_unix_s).ok_or(UtcTimeError { text })
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_of_day_is_read_as_it_was_written(unix_s: u64) {
            let time = UtcTime::from_unix_s(unix_s);
            prop_assert_eq!(UtcTime::try_from(time.to_string()).unwrap(), time);
        }

        #[test]
        fn no_text_is_taken_for_a_time_that_it_is_not(text in ".*") {
            if let Ok(time) = UtcTime::try_from(text.clone()) {
                prop_assert!(text.trim().ends_with("UTC"), "{} of {:?}", time, text);
            }
        }
    }

    #[test]
    fn days_around_leap_days_and_centuries_are_right() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_795_307_525, "2026-11-22 00:32:05 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (u64::MAX, "9999-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(UtcTime::from_unix_s(unix_s).to_string(), text);
        }
        let early = UtcTime::from_unix_s(5);
        assert_eq!(UtcTime::from_unix_s(7).seconds_since(early), 2);
        assert_eq!(early.seconds_since(UtcTime::from_unix_s(7)), 0);
    }
}
