use super::*;
use headpond_block::{ErrorCause, ErrorKind, LastError, UtcTime};
use headpond_cache::Way;
use headpond_raid::{ScrubReport, ScrubState};
use headpond_volume::Risk;
use uuid::Uuid;

const AT: UtcTime = UtcTime::from_unix_s(0);

fn member(device: &str, state: MemberState) -> MemberView {
    MemberView { device: Some(device.into()), state }
}

fn array(state: ArrayState, members: [MemberView; 2]) -> ArrayView {
    ArrayView {
        state,
        members: (0..).zip(members).collect(),
        is_scrubbing: false,
        scrub: None,
        failure: None,
    }
}

fn healthy() -> Snapshot {
    let members = ["a", "b"].map(|device| member(device, MemberState::Active));
    of_array(array(ArrayState::Optimal, members))
}

fn of_array(array: ArrayView) -> Snapshot {
    Snapshot { arrays: [("array v".to_owned(), array)].into(), ..Snapshot::default() }
}

fn degraded() -> Snapshot {
    let members = [member("a", MemberState::Active), member("b", MemberState::Failed)];
    of_array(array(ArrayState::Degraded, members))
}

fn first(snapshot: &mut Snapshot) -> &mut ArrayView {
    snapshot.arrays.values_mut().next().unwrap()
}

fn texts(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    changes(Some(before), after).into_iter().map(|event| event.text).collect()
}

#[test]
fn nothing_happens_where_nothing_changes_and_a_start_tells_what_is_not_well() {
    assert!(changes(None, &healthy()).is_empty());
    assert!(changes(Some(&degraded()), &degraded()).is_empty());
    let events = changes(None, &degraded());
    let kinds: Vec<EventKind> = events.iter().map(|event| event.event).collect();
    assert_eq!(kinds, [EventKind::MemberState, EventKind::ArrayState]);
    let old = with_errors(degraded(), DeviceErrors { read: 7, ..DeviceErrors::default() });
    assert_eq!(changes(None, &old).len(), 2, "errors of an earlier life are no news");
}

#[test]
fn a_loss_names_member_and_device_and_a_rebuild_is_followed_to_its_end() {
    let [lost, state] = &changes(Some(&healthy()), &degraded())[..] else { panic!("two events") };
    assert_eq!((lost.member, lost.device.as_deref()), (Some(1), Some("b")));
    assert_eq!((lost.severity, &lost.details["state"]), (Severity::Error, &json!("failed")));
    assert_eq!(lost.text, "member 1 of array v (b) has failed");
    assert_eq!((&*state.text, state.severity), ("array v is degraded", Severity::Warning));
    let filling = member("b", MemberState::RebuildingOnto("c".into()));
    let mut rebuilding =
        of_array(array(ArrayState::Degraded, [member("a", MemberState::Active), filling]));
    rebuilding.jobs.insert("rebuild".into());
    assert_eq!(
        texts(&degraded(), &rebuilding),
        ["member 1 of array v is being rebuilt onto c", "rebuild has started"]
    );
    let members = ["a", "c"].map(|device| member(device, MemberState::Active));
    assert_eq!(
        texts(&rebuilding, &of_array(array(ArrayState::Optimal, members))),
        ["member 1 of array v (c) is active", "array v is optimal", "rebuild has ended"]
    );
}

/// Of member 1.
fn with_errors(mut snapshot: Snapshot, errors: DeviceErrors) -> Snapshot {
    let last_error = Some(LastError {
        kind: ErrorKind::Write,
        cause: ErrorCause::Full,
        text: "No space left on device".into(),
        at: AT,
    });
    let report = DeviceReport {
        role: DeviceRole::Member,
        number: Some(1),
        core: None,
        uuid: Uuid::from_u128(7),
        device: Some("b".into()),
        errors,
        last_error,
    };
    snapshot.errors.insert(report.uuid, report);
    snapshot
}

#[test]
fn errors_are_those_since_and_in_all_with_the_cause_and_a_clear_makes_none() {
    let of = |write, flush| {
        with_errors(healthy(), DeviceErrors { write, flush, ..DeviceErrors::default() })
    };
    let [event] = &changes(Some(&of(5, 0)), &of(7, 1))[..] else { panic!("one event") };
    assert_eq!(
        event.text,
        "member 1 (b): 2 write errors, 1 flush error; until now 7 write errors, 1 flush error; \
         write: No space left on device"
    );
    assert_eq!((event.member, event.device.as_deref()), (Some(1), Some("b")));
    assert_eq!(
        (&event.details["since"]["write"], &event.details["errors"]["write"]),
        (&json!(2), &json!(7))
    );
    assert_eq!(changes(Some(&healthy()), &of(1, 0)).len(), 1, "the first");
    assert!(changes(Some(&of(7, 1)), &of(5, 0)).is_empty(), "after `clear`, and more since");
    assert!(changes(Some(&of(7, 1)), &healthy()).is_empty(), "`clear`");
}

#[test]
fn a_scrub_has_an_outcome_even_where_it_took_less_than_a_second() {
    let (mut before, mut after) = (healthy(), healthy());
    first(&mut before).is_scrubbing = true;
    assert_eq!(texts(&healthy(), &before), ["scrub of array v has started"]);
    first(&mut after).scrub = Some(LastScrub {
        state: ScrubState::Complete,
        began_at: AT,
        ended_at: Some(AT),
        took_s: 0,
        is_cleared: false,
        report: ScrubReport { stripes: 9, corrected_sectors: 3, ..ScrubReport::default() },
        members: Vec::new(),
    });
    assert!(texts(&after, &after).is_empty(), "it is the same one");
    for earlier in [&before, &healthy()] {
        let [event] = &changes(Some(earlier), &after)[..] else { panic!("one event") };
        assert_eq!(event.text, "scrub of array v has ended: 9 stripes, 3 sectors repaired");
        assert_eq!(event.severity, Severity::Warning);
        assert_eq!(event.details["sectors_repaired"], 3);
    }
}

#[test]
fn work_that_stopped_says_why_once() {
    let mut after = healthy();
    first(&mut after).failure = Some("no spare".into());
    assert_eq!(texts(&healthy(), &after), ["background work on array v has stopped: no spare"]);
    assert!(texts(&after, &after).is_empty());
}

#[test]
fn caches_come_go_and_fail() {
    let with = |device: &str, state| {
        let cache = CacheView { device: device.into(), state };
        Snapshot { caches: [("cache", cache)].into(), ..Snapshot::default() }
    };
    let (none, used) = (Snapshot::default(), with("n", CacheState::InUse));
    assert!(changes(None, &used).is_empty());
    assert_eq!(texts(&none, &used), ["cache n is in use"]);
    assert_eq!(texts(&used, &none), ["cache n is detached"]);
    assert_eq!(texts(&used, &with("m", CacheState::InUse)), ["cache m is in use"]);
    let failed = with("n", CacheState::Failed);
    for before in [Some(&used), None] {
        let [event] = &changes(before, &failed)[..] else { panic!("one event") };
        assert_eq!(
            (&*event.text, event.severity),
            ("cache n is out of use: it has failed", Severity::Error)
        );
    }
}

#[test]
fn alerts_are_raised_once_and_cleared() {
    let alert = Alert {
        kind: AlertKind::MemberErrors,
        cause: "member 1 (b): 3 read errors".into(),
        at_risk: Risk { blocks: 0, bytes: 0, what: "nothing".into() },
        action: "look".into(),
    };
    let subject = (alert.kind, "member (b)".to_owned(), 0);
    let raised =
        Snapshot { alerts: [(subject.clone(), alert.clone())].into(), ..Snapshot::default() };
    let more = Alert { cause: "member 1 (b): 4 read errors".into(), ..alert };
    let later = Snapshot { alerts: [(subject, more)].into(), ..Snapshot::default() };
    for before in [Some(&Snapshot::default()), None] {
        let [event] = &changes(before, &raised)[..] else { panic!("one event") };
        assert_eq!(
            (event.event, &event.details["action"]),
            (EventKind::AlertRaised, &json!("look"))
        );
        assert_eq!(event.details["alert"], "member_errors");
    }
    assert!(changes(Some(&raised), &later).is_empty(), "it is the same one");
    assert_eq!(texts(&later, &Snapshot::default()), ["no longer: member 1 (b): 4 read errors"]);
}

#[test]
fn slow_requests_are_counted_by_their_path() {
    let with = |slow| Snapshot { slow, ..Snapshot::default() };
    let before = with(vec![(Way::Flush, 2), (Way::ReadMiss, 5)]);
    let after = with(vec![(Way::Flush, 3), (Way::ReadMiss, 5)]);
    assert_eq!(texts(&before, &after), ["requests that took 1 s or more: 1 flush"]);
    assert!(changes(None, &after).is_empty());
    assert_eq!(
        texts(&with(vec![(Way::Flush, 9)]), &with(vec![(Way::Flush, 1)])),
        ["requests that took 1 s or more: 1 flush"],
        "since a reset"
    );
}
