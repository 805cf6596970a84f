//! The time of day, for people and for logs.

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, Utc};
use std::time::{Duration, SystemTime};

/// `2026-11-22 00:12:05 UTC`.
pub fn utc(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).format("%F %T UTC").to_string()
}

/// `2026-11-22T00:12:05.123Z`: of two such texts that of the earlier time is the smaller.
pub fn rfc3339(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A time as people write it, in UTC unless it has an offset: RFC 3339, `2026-11-22`,
/// `2026-11-22 00:12`, with seconds or a `T`; or how long before `now`: `90s`, `15m`, `6h`, `2d`.
pub fn parse(text: &str, now: SystemTime) -> Option<SystemTime> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.into());
    }
    for (unit, seconds) in [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)] {
        if let Some(count) = text.strip_suffix(unit) {
            let seconds = count.parse::<u64>().ok()?.checked_mul(seconds)?;
            return now.checked_sub(Duration::from_secs(seconds));
        }
    }
    let text = text.trim_end_matches(" UTC").replace('T', " ");
    let formats = ["%F %T%.f", "%F %R"];
    let time = formats.iter().find_map(|it| NaiveDateTime::parse_from_str(&text, it).ok());
    let midnight = || NaiveDate::parse_from_str(&text, "%F").ok()?.and_hms_opt(0, 0, 0);
    Some(time.or_else(midnight)?.and_utc().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

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
    #[test]
    fn times_are_read_as_people_write_them() {
        let now = UNIX_EPOCH + Duration::from_secs(1_795_307_525);
        for (text, time) in [
            ("2026-11-22T00:32:05.250Z", "2026-11-22T00:32:05.250Z"),
            ("2026-11-22T02:32:05+02:00", "2026-11-22T00:32:05.000Z"),
            ("2026-11-22 00:32:05 UTC", "2026-11-22T00:32:05.000Z"),
            ("2026-11-22T00:32", "2026-11-22T00:32:00.000Z"),
            ("2026-11-22", "2026-11-22T00:00:00.000Z"),
            ("90s", "2026-11-22T00:30:35.000Z"),
            ("2d", "2026-11-20T00:32:05.000Z"),
        ] {
            assert_eq!(parse(text, now).map(rfc3339).as_deref(), Some(time), "{text}");
        }
        for text in
            ["", "yesterday", "2026-13-01", "d", "-1h", "2dd", "99999999999999999999d", "1e3s"]
        {
            assert_eq!(parse(text, now), None, "{text}");
        }
    }
}
