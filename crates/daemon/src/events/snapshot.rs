//! What of a volume's status makes events when it changes.

use headpond_api::events::Severity;
use headpond_cache::Way;
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayState, ArrayStatus, LastScrub, MemberStatus, ScrubState};
use headpond_volume::{
    Alert, AlertKind, BackgroundStatus, CACHE_COPIES, CacheStatus, DeviceReport, JobKind,
    JobStatus, VolumeStatus,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A volume at one time.
#[derive(Default)]
pub struct Snapshot {
    /// By the name for people: those of the cores, and that of the copies of a cache.
    pub arrays: BTreeMap<String, ArrayView>,
    /// `cache` and `tier`.
    pub caches: BTreeMap<&'static str, CacheView>,
    /// Devices with errors that were not cleared.
    pub errors: BTreeMap<Uuid, DeviceReport>,
    /// Their names; that of scrubs is in the arrays.
    pub jobs: BTreeSet<String>,
    /// By what they are about.
    pub alerts: BTreeMap<AlertSubject, Alert>,
    /// Requests until now that took too long.
    pub slow: Vec<(Way, u64)>,
}

/// The kind, the text without its numbers, and the place among several of these.
pub type AlertSubject = (AlertKind, String, usize);

pub struct ArrayView {
    pub state: ArrayState,
    /// By role.
    pub members: BTreeMap<u16, MemberView>,
    pub is_scrubbing: bool,
    /// The newest complete one.
    pub scrub: Option<LastScrub>,
    /// Why background work ended before its end.
    pub failure: Option<String>,
}

pub struct MemberView {
    pub device: Option<String>,
    pub state: MemberState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberState {
    Active,
    Failed,
    Missing,
    RebuildingOnto(String),
}

pub struct CacheView {
    pub device: String,
    pub state: CacheState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheState {
    InUse,
    InFallback,
    Failed,
}

impl Snapshot {
    pub fn of(volume: &VolumeStatus, slow: Vec<(Way, u64)>) -> Self {
        let mut arrays: BTreeMap<String, ArrayView> = volume
            .cores
            .iter()
            .map(|core| {
                (format!("array {}", core.name), ArrayView::of(&core.array, &core.background))
            })
            .collect();
        let mirror = volume.cache.as_ref().and_then(|cache| cache.mirror.as_ref());
        arrays.extend(mirror.map(|mirror| {
            ("the cache mirror".to_owned(), ArrayView::of(&mirror.array, &mirror.background))
        }));
        let caches = [("cache", &volume.cache), ("tier", &volume.tier)].into_iter();
        let caches =
            caches.filter_map(|(place, cache)| Some((place, CacheView::of(cache.as_ref()?))));
        let jobs = volume.jobs.iter().filter(|job| job.job != JobKind::ArrayScrub);
        Self {
            arrays,
            caches: caches.collect(),
            errors: volume.errors.iter().map(|it| (it.uuid, it.clone())).collect(),
            jobs: jobs.map(job_name).collect(),
            alerts: by_subject(&volume.alerts),
            slow,
        }
    }
}

impl ArrayView {
    fn of(array: &ArrayStatus, background: &BackgroundStatus) -> Self {
        let member = |member: &MemberStatus| (member.role, MemberView::of(member));
        Self {
            state: array.state,
            members: array.members.iter().map(member).collect(),
            is_scrubbing: array.progress.scrubbing.is_some() || background.scrub_wanted,
            scrub: array.last_scrub.clone().filter(|it| it.state == ScrubState::Complete),
            failure: background.failure.clone(),
        }
    }
}

impl MemberView {
    fn of(member: &MemberStatus) -> Self {
        let state = match (&member.filling, member.state) {
            (Some(filling), _) => MemberState::RebuildingOnto(filling.device.clone()),
            (None, RoleState::Active) => MemberState::Active,
            (None, RoleState::Failed) => MemberState::Failed,
            (None, RoleState::Missing) => MemberState::Missing,
        };
        Self { device: member.device.clone(), state }
    }
}

impl MemberState {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::RebuildingOnto(_) => "rebuilding",
        }
    }

    pub fn severity(&self) -> Severity {
        match self {
            Self::Active | Self::RebuildingOnto(_) => Severity::Info,
            Self::Failed | Self::Missing => Severity::Error,
        }
    }
}

impl CacheView {
    fn of(cache: &CacheStatus) -> Self {
        let state = match (cache.failed, cache.in_fallback) {
            (true, _) => CacheState::Failed,
            (false, true) => CacheState::InFallback,
            (false, false) => CacheState::InUse,
        };
        Self { device: cache.device.clone(), state }
    }
}

fn job_name(job: &JobStatus) -> String {
    let name = match job.job {
        JobKind::Cleaning => "cleaning of the dirty data",
        JobKind::Scrubbing => "scrub of the cache",
        JobKind::Parity => "sync of the redundancy",
        JobKind::Rebuild => "rebuild",
        JobKind::StandIn => "rebuild to distributed spare space",
        JobKind::ArrayScrub => "scrub",
        JobKind::Reshape => "reshape",
    };
    match job.core.as_deref() {
        None => name.to_owned(),
        Some(CACHE_COPIES) => format!("{name} of the cache mirror"),
        Some(core) => format!("{name} of core {core}"),
    }
}

/// A cache that is full of dirty data is in its usual state.
fn by_subject(alerts: &[Alert]) -> BTreeMap<AlertSubject, Alert> {
    let mut found = BTreeMap::new();
    for alert in alerts.iter().filter(|alert| alert.kind != AlertKind::CacheFull) {
        let subject = subject_of(&alert.cause);
        let is_same = |it: &&AlertSubject| it.0 == alert.kind && it.1 == subject;
        let place = found.keys().filter(is_same).count();
        found.insert((alert.kind, subject, place), alert.clone());
    }
    found
}

/// What a text is about: its beginning, without numbers, which change while it is about the same.
pub fn subject_of(text: &str) -> String {
    let subject = text.split(": ").next().unwrap_or(text);
    let is_number = |word: &&str| {
        let digits = word.trim_matches(|c: char| !c.is_alphanumeric());
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || ",.".contains(c))
    };
    subject.split(' ').filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::Risk;

    fn alert(kind: AlertKind, cause: &str) -> Alert {
        let (cause, action) = (cause.to_owned(), String::new());
        let at_risk = Risk { blocks: 0, bytes: 0, what: String::new() };
        Alert { kind, cause, at_risk, action }
    }

    #[test]
    fn an_alert_whose_count_rises_is_about_the_same_and_one_of_another_device_is_not() {
        for (one, other) in [
            (
                "member 2 (/dev/sd2) of array v: 3 read errors",
                "member 2 (/dev/sd2) of array v: 4 read errors, 1 flush error",
            ),
            ("3 reads from /dev/x failed", "19,443 reads from /dev/x failed"),
            (
                "denied memory (5 times since its start): 3 MiB",
                "denied memory (6 times since its start): 9",
            ),
        ] {
            assert_eq!(subject_of(one), subject_of(other), "{one}");
        }
        let [one, other] = ["m1.img", "m2.img"].map(|it| format!("member 1 ({it}) of array v: 1"));
        assert_ne!(subject_of(&one), subject_of(&other));
        assert_ne!(
            subject_of("3 reads from ram:64M failed"),
            subject_of("3 reads from ram:65M failed")
        );
    }

    #[test]
    fn alerts_with_the_same_text_are_several_and_a_full_cache_is_none() {
        let alerts = [
            alert(AlertKind::LostBlocks, "their data is lost"),
            alert(AlertKind::LostBlocks, "their data is lost"),
            alert(AlertKind::CacheFull, "7 of at most 8 bytes are dirty"),
        ];
        assert_eq!(by_subject(&alerts).len(), 2);
    }
}
