//! A limit on events that a failing device causes again and again.
//!
//! The first of a kind on a device pass; then one in an interval, the newest, with the number of
//! those that it stands for. Intervals double while it goes on, so that a day of errors leaves room
//! for other events. Counts in events are totals, so nothing is lost with those held back.

use headpond_api::events::{Event, EventKind};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Passed at once.
const FIRST: u32 = 3;
const INTERVAL_MIN: Duration = Duration::from_secs(60);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Of all devices.
#[derive(Default)]
pub struct Limit {
    recent: BTreeMap<(EventKind, String), Recent>,
}

/// Events of a kind on a device within an interval.
struct Recent {
    begun: Instant,
    interval: Duration,
    passed: u32,
    held: Option<Event>,
    held_count: u64,
}

impl Limit {
    /// The event, unless it is held back; `subject` is what it is about.
    pub fn offer(&mut self, event: Event, subject: &str, now: Instant) -> Option<Event> {
        if !is_limited(event.event) {
            return Some(event);
        }
        let new =
            Recent { begun: now, interval: INTERVAL_MIN, passed: 0, held: None, held_count: 0 };
        let recent = self.recent.entry((event.event, subject.to_owned())).or_insert(new);
        if recent.passed < FIRST {
            recent.passed += 1;
            return Some(event);
        }
        recent.held = Some(event);
        recent.held_count += 1;
        None
    }

    /// What was held back in intervals that are over.
    pub fn due(&mut self, now: Instant) -> Vec<Event> {
        let mut due = Vec::new();
        self.recent.retain(|_, recent| {
            if now.duration_since(recent.begun) < recent.interval {
                return true;
            }
            let Some(held) = recent.held.take() else { return false };
            due.push(summed_up(held, recent.held_count, recent.interval));
            recent.held_count = 0;
            recent.begun = now;
            recent.interval = (recent.interval * 2).min(INTERVAL_MAX);
            true
        });
        due
    }

    /// All that is held back: nothing follows.
    pub fn end(&mut self) -> Vec<Event> {
        let recent = std::mem::take(&mut self.recent).into_values();
        recent.filter_map(|it| Some(summed_up(it.held?, it.held_count, it.interval))).collect()
    }
}

/// Those of devices that may come each second, and not what somebody does.
fn is_limited(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::DeviceErrors
            | EventKind::SlowRequests
            | EventKind::AlertRaised
            | EventKind::AlertCleared
    )
}

fn summed_up(held: Event, count: u64, interval: Duration) -> Event {
    let text = match count {
        1 => held.text.clone(),
        _ => format!("{} (the last of {count} within {} s)", held.text, interval.as_secs()),
    };
    Event { text, ..held }.with("stands_for", count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_api::events::Severity;

    fn errors(total: u64) -> Event {
        Event::new(EventKind::DeviceErrors, Severity::Warning, format!("{total} write errors"))
    }

    /// Second by second; what passes, with the second.
    fn storm(limit: &mut Limit, begun: Instant, seconds: u64) -> Vec<(u64, Event)> {
        let mut passed = Vec::new();
        for second in 0..seconds {
            let now = begun + Duration::from_secs(second);
            passed.extend(limit.offer(errors(second * 7), "/dev/a", now).map(|it| (second, it)));
            passed.extend(limit.due(now).into_iter().map(|it| (second, it)));
        }
        passed
    }

    #[test]
    fn a_storm_of_one_device_is_its_first_events_and_then_counts() {
        let (mut limit, begun) = (Limit::default(), Instant::now());
        let passed = storm(&mut limit, begun, 86_400);
        let seconds: Vec<u64> = passed.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds[..7], [0, 1, 2, 60, 180, 420, 900]);
        assert!(passed.len() < 40, "{} in a day", passed.len());
        let (_, fourth) = &passed[3];
        assert_eq!(fourth.text, "420 write errors (the last of 58 within 60 s)");
        assert_eq!(fourth.details["stands_for"], 58);
        let stands: u64 =
            passed[3..].iter().map(|it| it.1.details["stands_for"].as_u64().unwrap()).sum();
        let held: u64 =
            limit.end().iter().map(|it| it.details["stands_for"].as_u64().unwrap()).sum();
        assert_eq!(3 + stands + held, 86_400, "each is counted");
        assert!(limit.end().is_empty());
    }

    #[test]
    fn another_device_and_another_kind_have_limits_of_their_own() {
        let (mut limit, begun) = (Limit::default(), Instant::now());
        assert_eq!(storm(&mut limit, begun, 10).len(), 3);
        assert!(limit.offer(errors(1), "/dev/b", begun).is_some());
        let slow = Event::new(EventKind::SlowRequests, Severity::Warning, "1 read");
        assert!(limit.offer(slow, "/dev/a", begun).is_some());
        let command = || Event::new(EventKind::Command, Severity::Info, "array fail");
        assert!((0..100).all(|_| limit.offer(command(), "", begun).is_some()), "who did what");
    }

    #[test]
    fn a_device_that_is_quiet_for_an_interval_is_told_at_once_again() {
        let (mut limit, begun) = (Limit::default(), Instant::now());
        assert_eq!(storm(&mut limit, begun, 3).len(), 3);
        let later = begun + INTERVAL_MIN;
        assert!(limit.due(later).is_empty());
        assert!(limit.offer(errors(4), "/dev/a", later).is_some());
    }
}
