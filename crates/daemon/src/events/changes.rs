//! The events between two snapshots of a volume.
//!
//! **Invariant**: without an earlier snapshot, as at a start, what is not well makes events, and
//! counts of earlier errors make none.

use super::snapshot::{
    AlertSubject, ArrayView, CacheState, CacheView, MemberState, MemberView, Snapshot,
};
use headpond_api::events::{Event, EventKind, Severity};
use headpond_raid::{ArrayState, DeviceErrors, LastScrub};
use headpond_volume::{Alert, AlertKind, DeviceReport, DeviceRole};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What happened between two snapshots.
pub fn changes(before: Option<&Snapshot>, after: &Snapshot) -> Vec<Event> {
    let mut events = Vec::new();
    for (name, array) in &after.arrays {
        let earlier = before.and_then(|before| before.arrays.get(name));
        events.extend(array_changes(name, earlier, array));
    }
    let places = after.caches.keys().chain(before.iter().flat_map(|it| it.caches.keys()));
    let mut places: Vec<&str> = places.copied().collect();
    places.sort_unstable();
    places.dedup();
    for place in places {
        let earlier = before.map(|before| before.caches.get(place));
        events.extend(cache_changes(place, earlier, after.caches.get(place)));
    }
    if let Some(before) = before {
        let earlier = |report: &DeviceReport| before.errors.get(&report.uuid);
        let told = |report| errors(earlier(report).map(|it| it.errors), report);
        events.extend(after.errors.values().filter_map(told));
    }
    events.extend(job_changes(before, after));
    let none = BTreeMap::new();
    events.extend(alert_changes(before.map_or(&none, |it| &it.alerts), &after.alerts));
    events.extend(before.and_then(|before| slow_requests(before, after)));
    events
}

fn array_changes(name: &str, before: Option<&ArrayView>, after: &ArrayView) -> Vec<Event> {
    let mut events = Vec::new();
    for (role, member) in &after.members {
        let earlier = before.and_then(|before| before.members.get(role));
        let about = format!("member {role} of {name}");
        let told = member_changes(&about, earlier, member);
        events.extend(told.into_iter().map(|event| event.of_member(*role)));
    }
    if before.map_or(ArrayState::Optimal, |before| before.state) != after.state {
        let (word, severity) = match after.state {
            ArrayState::Optimal => ("optimal", Severity::Info),
            ArrayState::Degraded => ("degraded", Severity::Warning),
            ArrayState::Failed => ("failed", Severity::Error),
        };
        let event = Event::new(EventKind::ArrayState, severity, format!("{name} is {word}"));
        events.push(event.with("array", name).with("state", word));
    }
    if let Some(before) = before {
        events.extend(scrub_changes(name, before, after));
        let failure = after.failure.as_ref().filter(|_| before.failure != after.failure);
        events.extend(failure.map(|why| {
            let text = format!("background work on {name} has stopped: {why}");
            Event::new(EventKind::JobEnded, Severity::Error, text).with("array", name)
        }));
    }
    events
}

fn member_changes(about: &str, before: Option<&MemberView>, after: &MemberView) -> Vec<Event> {
    let device = after.device.as_deref();
    let earlier = before.map_or(&MemberState::Active, |before| &before.state);
    let is_another = before.is_some_and(|before| before.device != after.device);
    let mut events = Vec::new();
    if *earlier != after.state || is_another {
        let on = device.map(|device| format!(" ({device})")).unwrap_or_default();
        let text = match &after.state {
            MemberState::Active => format!("{about}{on} is active"),
            MemberState::Failed => format!("{about}{on} has failed"),
            MemberState::Missing => format!("{about}{on} is missing"),
            MemberState::RebuildingOnto(spare) => format!("{about} is being rebuilt onto {spare}"),
        };
        let event = Event::new(EventKind::MemberState, after.state.severity(), text);
        let event = match &after.state {
            MemberState::RebuildingOnto(spare) => event.of_device(Some(spare)),
            _ => event.of_device(device),
        };
        events.push(event.with("state", after.state.word()));
    }
    events
}

/// How many errors a device had since, and in all, with the cause of the newest.
fn errors(before: Option<DeviceErrors>, after: &DeviceReport) -> Option<Event> {
    let since = after.errors.since(before.unwrap_or_default());
    if since.total() == 0 {
        return None;
    }
    let device = after.device.as_deref();
    let on = device.map(|device| format!(" ({device})")).unwrap_or_default();
    let cause = after.last_error.as_ref().map(|it| format!("; {}: {}", it.kind, it.text));
    let (place, cause) = (after.place(), cause.unwrap_or_default());
    let text = format!("{place}{on}: {since}; until now {}{cause}", after.errors);
    let event = Event::new(EventKind::DeviceErrors, Severity::Warning, text).of_device(device);
    let member = after.number.filter(|_| after.role == DeviceRole::Member);
    let event = member.into_iter().fold(event, Event::of_member);
    Some(event.with("since", json!(since)).with("errors", json!(after)))
}

/// `before` is `Some(None)` where there was no such cache.
fn cache_changes(
    place: &str,
    before: Option<Option<&CacheView>>,
    after: Option<&CacheView>,
) -> Vec<Event> {
    let earlier = before.flatten();
    let Some(after) = after else {
        let gone = earlier.map(|earlier| {
            let text = format!("{place} {} is detached", earlier.device);
            cache_state(&earlier.device, Severity::Info, text, "detached")
        });
        return gone.into_iter().collect();
    };
    let (word, what, severity) = match after.state {
        CacheState::InUse => ("in_use", "in use", Severity::Info),
        CacheState::InFallback => ("in_fallback", "bypassed: too many errors", Severity::Error),
        CacheState::Failed => ("failed", "out of use: it has failed", Severity::Error),
    };
    let is_another = before.is_some() && earlier.is_none_or(|it| it.device != after.device);
    let state = earlier.map_or(CacheState::InUse, |earlier| earlier.state);
    let mut events = Vec::new();
    if is_another || state != after.state {
        let text = format!("{place} {} is {what}", after.device);
        events.push(cache_state(&after.device, severity, text, word));
    }
    events
}

fn cache_state(device: &str, severity: Severity, text: String, state: &str) -> Event {
    let event = Event::new(EventKind::CacheState, severity, text);
    event.of_device(Some(device)).with("state", state)
}

fn scrub_changes(name: &str, before: &ArrayView, after: &ArrayView) -> Vec<Event> {
    let has_begun = after.is_scrubbing && !before.is_scrubbing;
    let begun = has_begun.then(|| {
        let text = format!("scrub of {name} has started");
        Event::new(EventKind::JobStarted, Severity::Info, text).with("array", name)
    });
    // One that was shorter than the time between two snapshots is seen by its end alone.
    let began = |scrub: &LastScrub| scrub.began_at;
    let is_new = before.scrub.as_ref().map(began) != after.scrub.as_ref().map(began);
    let ended = after.scrub.as_ref().filter(|_| is_new).map(|scrub| scrub_ended(name, scrub));
    ended.into_iter().chain(begun).collect()
}

fn scrub_ended(name: &str, scrub: &LastScrub) -> Event {
    let report = &scrub.report;
    let found = [
        (report.rewritten, "unreadable strips rewritten"),
        (report.corrected_sectors, "sectors repaired"),
        (report.unexplained_sectors, "sectors unexplained"),
        (report.unreadable_stripes, "stripes unreadable"),
    ];
    let told: Vec<String> = found
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let is_well = told.is_empty();
    let told = if is_well { "no errors".to_owned() } else { told.join(", ") };
    let text = format!("scrub of {name} has ended: {} stripes, {told}", report.stripes);
    let severity = if is_well { Severity::Info } else { Severity::Warning };
    let event = Event::new(EventKind::JobEnded, severity, text).with("array", name);
    found.into_iter().fold(event, |event, (count, what)| event.with(&what.replace(' ', "_"), count))
}

fn job_changes(before: Option<&Snapshot>, after: &Snapshot) -> Vec<Event> {
    let has_begun = |job: &&String| before.is_none_or(|before| !before.jobs.contains(*job));
    let begun =
        after.jobs.iter().filter(has_begun).map(|job| {
            Event::new(EventKind::JobStarted, Severity::Info, format!("{job} has started"))
        });
    let earlier = before.iter().flat_map(|before| &before.jobs);
    let ended = earlier
        .filter(|job| !after.jobs.contains(*job))
        .map(|job| Event::new(EventKind::JobEnded, Severity::Info, format!("{job} has ended")));
    begun.chain(ended).collect()
}

fn alert_changes(
    before: &BTreeMap<AlertSubject, Alert>,
    after: &BTreeMap<AlertSubject, Alert>,
) -> Vec<Event> {
    let new = after.iter().filter(|(subject, _)| !before.contains_key(subject));
    let cleared = before.iter().filter(|(subject, _)| !after.contains_key(subject));
    let cleared = cleared.map(|(_, alert)| {
        let text = format!("no longer: {}", alert.cause);
        Event::new(EventKind::AlertCleared, Severity::Info, text).with("alert", json!(alert.kind))
    });
    new.map(|(_, alert)| raised(alert)).chain(cleared).collect()
}

/// The event of a new alert.
pub fn raised(alert: &Alert) -> Event {
    let severity = match alert.kind {
        AlertKind::DevicesMissing
        | AlertKind::MemberErrors
        | AlertKind::SlowMember
        | AlertKind::MemoryShort => Severity::Warning,
        _ => Severity::Error,
    };
    Event::new(EventKind::AlertRaised, severity, &alert.cause)
        .with("alert", json!(alert.kind))
        .with("at_risk", alert.at_risk.what.as_str())
        .with("action", alert.action.as_str())
}

fn slow_requests(before: &Snapshot, after: &Snapshot) -> Option<Event> {
    let earlier = |way| before.slow.iter().find(|it| it.0 == way).map_or(0, |it| it.1);
    let since = after.slow.iter().map(|(way, count)| {
        // Less than before: the statistics were reset.
        let base = Some(earlier(*way)).filter(|earlier| earlier <= count).unwrap_or(0);
        (json!(way), count - base)
    });
    let since: Vec<(Value, u64)> = since.filter(|(_, count)| *count > 0).collect();
    if since.is_empty() {
        return None;
    }
    let told: Vec<String> = since
        .iter()
        .map(|(way, count)| format!("{count} {}", way.as_str().unwrap_or_default()))
        .collect();
    let text =
        format!("requests that took {} s or more: {}", super::SLOW.as_secs(), told.join(", "));
    let details = since.into_iter().map(|(way, count)| json!({ "way": way, "requests": count }));
    let event = Event::new(EventKind::SlowRequests, Severity::Warning, text);
    Some(event.with("requests", details.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests;
