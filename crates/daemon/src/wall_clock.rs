//! The time of day, for people.

use chrono::{DateTime, Utc};
use std::time::SystemTime;

/// `2026-11-22 00:12:05 UTC`.
pub fn utc(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).format("%F %T UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn days_around_leap_days_and_centuries_are_right() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_795_307_525, "2026-11-22 00:32:05 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
