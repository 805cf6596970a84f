//! The errors of all devices of a volume and its scrubs, as they are now and as its members keep
//! them.
//!
//! **Invariants**: what is kept is bounded; settings never lack room for it.
//! **Not here**: which devices there are (`volume::devices`), and when it is written
//! (`volume::kept`).

use headpond_block::{DeviceErrors, LastError, UtcTime};
use headpond_cache::{CacheTraffic, ScrubReport};
use headpond_raid::{History, LastScrub};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::cmp::Reverse;
use uuid::Uuid;

/// Findings of one scrub that are kept.
pub(crate) const FINDINGS_KEPT: usize = 16;

/// A device of a volume, and its errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceReport {
    pub role: DeviceRole,
    /// The role of a member or of a copy.
    pub number: Option<u16>,
    /// Of a further core.
    pub core: Option<String>,
    pub uuid: Uuid,
    /// Null where it is missing.
    pub device: Option<String>,
    #[serde(flatten)]
    pub errors: DeviceErrors,
    pub last_error: Option<LastError>,
}

/// What a device is in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceRole {
    Member,
    /// A hot spare, or one that a role is being rebuilt onto.
    Spare,
    Journal,
    Cache,
    /// One of several devices of a cache.
    CacheCopy,
    CacheSpare,
    Tier,
}

/// The newest complete scrub of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheScrub {
    pub began_at: UtcTime,
    pub ended_at: UtcTime,
    pub took_s: u64,
    pub blocks: u64,
    /// Damaged and clean: the array has them.
    pub dropped_blocks: u64,
    /// Damaged and dirty.
    pub lost_blocks: u64,
}

/// The same as members keep it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptHistory {
    /// Of the writes; the highest counts.
    pub sequence: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<KeptErrors>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scrubs: Vec<KeptScrub>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_scrub: Option<KeptCacheScrub>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_wear: Option<KeptWear>,
}

/// Errors of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptErrors {
    pub device: Uuid,
    #[serde(flatten)]
    pub errors: DeviceErrors,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastError>,
}

/// The newest scrub of an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptScrub {
    pub array: Uuid,
    #[serde(flatten)]
    pub scrub: LastScrub,
}

/// The newest scrub of a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptCacheScrub {
    pub cache: Uuid,
    #[serde(flatten)]
    pub scrub: CacheScrub,
}

/// Bytes that entered a cache, and what was written to its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WornBytes {
    /// Written by clients, or read from the array, and inserted.
    pub entered_bytes: u64,
    pub written_bytes: u64,
}

/// The same of a cache, in all its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWear {
    pub cache: Uuid,
    #[serde(flatten)]
    pub worn: WornBytes,
}

impl WornBytes {
    pub(crate) fn of(traffic: &CacheTraffic) -> Self {
        Self { entered_bytes: traffic.written_data, written_bytes: traffic.written() }
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            entered_bytes: self.entered_bytes.saturating_add(other.entered_bytes),
            written_bytes: self.written_bytes.saturating_add(other.written_bytes),
        }
    }
}

impl CacheScrub {
    pub(crate) fn new(report: &ScrubReport, began_at: UtcTime, ended_at: UtcTime) -> Self {
        Self {
            began_at,
            ended_at,
            took_s: ended_at.seconds_since(began_at),
            blocks: report.blocks,
            dropped_blocks: report.dropped_blocks,
            lost_blocks: report.lost.len() as u64,
        }
    }
}

impl DeviceReport {
    /// `member 1`, `journal of core logs`.
    pub fn place(&self) -> String {
        let role = match self.role {
            DeviceRole::Member => "member",
            DeviceRole::Spare => "spare",
            DeviceRole::Journal => "journal",
            DeviceRole::Cache => "cache",
            DeviceRole::CacheCopy => "copy of the cache",
            DeviceRole::CacheSpare => "spare of the cache",
            DeviceRole::Tier => "tier",
        };
        let number = self.number.map(|number| format!(" {number}")).unwrap_or_default();
        let core = self.core.as_ref().map(|core| format!(" of core {core}")).unwrap_or_default();
        format!("{role}{number}{core}")
    }

    /// Whether a word on the command line means it.
    pub(crate) fn is_named(&self, word: &str) -> bool {
        self.device.as_deref() == Some(word) || word.parse() == Ok(self.uuid)
    }
}

impl KeptHistory {
    pub fn is_empty(&self) -> bool {
        let has_cache = self.cache_scrub.is_some() || self.cache_wear.is_some();
        self.devices.is_empty() && self.scrubs.is_empty() && !has_cache
    }

    /// Goes on counting from what was kept.
    pub(crate) fn restore(&self, history: &History) {
        for KeptErrors { device, errors, last } in &self.devices {
            history.errors_of(*device).restore(*errors, last.clone());
        }
        for KeptScrub { array, scrub } in &self.scrubs {
            history.restore_scrub(*array, scrub.clone());
        }
    }

    /// The newest scrub of this cache.
    pub(crate) fn scrub_of_cache(&self, cache: Uuid) -> Option<CacheScrub> {
        let kept = self.cache_scrub.as_ref().filter(|kept| kept.cache == cache)?;
        Some(kept.scrub.clone())
    }

    /// What was written to the device of this cache before.
    pub(crate) fn wear_of_cache(&self, cache: Uuid) -> WornBytes {
        let kept = self.cache_wear.filter(|kept| kept.cache == cache);
        kept.map(|kept| kept.worn).unwrap_or_default()
    }

    /// Forgets the errors of these devices; without any, of all, and what scrubs have found.
    pub(crate) fn clear(&mut self, devices: Option<&[Uuid]>) {
        match devices {
            Some(named) => self.devices.retain(|kept| !named.contains(&kept.device)),
            None => {
                self.devices.clear();
                self.scrubs.iter_mut().for_each(|kept| kept.scrub.is_cleared = true);
            }
        }
    }

    /// Forgets the least important of it, and returns whether there was any.
    pub(crate) fn shorten(&mut self) -> bool {
        if self.scrubs.iter().any(|kept| !kept.scrub.report.findings.is_empty()) {
            self.scrubs.iter_mut().for_each(|kept| kept.scrub.report.findings.clear());
            return true;
        }
        if self.devices.len() > 1 {
            self.devices.sort_by_key(|kept| Reverse(kept.errors.total()));
            self.devices.truncate(self.devices.len() / 2);
            return true;
        }
        let was_empty = self.is_empty();
        *self = Self { sequence: self.sequence, ..Self::default() };
        !was_empty
    }

    /// What is not understood is of a newer program, and left out: settings count without it.
    pub(crate) fn lenient<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let found = toml::Value::deserialize(from)?;
        Ok(found.try_into().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::{ErrorCause, ErrorKind};
    use headpond_raid::{Finding, MemberScrub, ScrubState, Trouble};
    use proptest::prelude::*;

    fn last_errors() -> impl Strategy<Value = LastError> {
        let kinds = [ErrorKind::Read, ErrorKind::Write, ErrorKind::Checksum, ErrorKind::Timeout];
        let causes = [ErrorCause::Full, ErrorCause::ReadOnly, ErrorCause::Other];
        let (kinds, causes) =
            (prop::sample::select(kinds.to_vec()), prop::sample::select(causes.to_vec()));
        (kinds, causes, ".*", any::<u64>()).prop_map(|(kind, cause, text, at)| LastError {
            kind,
            cause,
            text,
            at: UtcTime::from_unix_s(at),
        })
    }

    // The text has integers of 63 bits.
    fn counts() -> impl Strategy<Value = u64> {
        0..=i64::MAX as u64
    }

    fn devices() -> impl Strategy<Value = Vec<KeptErrors>> {
        let errors = [counts(), counts(), counts(), counts(), counts()];
        let device = (any::<u128>(), errors, prop::option::of(last_errors()));
        let kept = device.prop_map(|(device, [read, write, flush, checksum, timeout], last)| {
            let errors = DeviceErrors { read, write, flush, checksum, timeout };
            KeptErrors { device: Uuid::from_u128(device), errors, last }
        });
        prop::collection::vec(kept, 0..9)
    }

    fn scrub(stripe_start: u64, took_s: u64) -> LastScrub {
        let stripe_bytes = 65_536;
        let finding = Finding { stripe_start, stripe_bytes, what: Trouble::Unexplained };
        LastScrub {
            state: ScrubState::Complete,
            began_at: UtcTime::default(),
            ended_at: Some(UtcTime::from_unix_s(took_s)),
            took_s,
            is_cleared: false,
            report: headpond_raid::ScrubReport {
                unexplained_sectors: 1,
                findings: vec![finding],
                ..<_>::default()
            },
            members: vec![MemberScrub { unexplained_sectors: 1, ..<_>::default() }],
        }
    }

    proptest! {
        #[test]
        fn a_history_is_read_as_it_was_written(
            sequence in counts(), devices in devices(), start in counts(), took_s in counts()
        ) {
            let array = Uuid::from_u128(7);
            let scrubs = vec![KeptScrub { array, scrub: scrub(start, took_s) }];
            let history = KeptHistory { sequence, devices, scrubs, cache_scrub: None, cache_wear: None };
            let text = toml::to_string(&history).unwrap();
            prop_assert_eq!(toml::from_str::<KeptHistory>(&text).unwrap(), history);
        }
    }

    #[test]
    fn it_is_shortened_until_nothing_is_left_and_the_worst_device_last() {
        let device = |id, write| KeptErrors {
            device: Uuid::from_u128(id),
            errors: DeviceErrors { write, ..DeviceErrors::default() },
            last: None,
        };
        let array = Uuid::from_u128(9);
        let mut history = KeptHistory {
            sequence: 4,
            devices: vec![device(1, 1), device(2, 9), device(3, 5)],
            scrubs: vec![KeptScrub { array, scrub: scrub(0, 1) }],
            cache_scrub: None,
            cache_wear: None,
        };
        assert!(history.shorten() && history.scrubs[0].scrub.report.findings.is_empty());
        assert!(history.shorten());
        assert_eq!(history.devices, [device(2, 9)]);
        assert!(history.shorten() && history.is_empty() && !history.shorten());
        assert_eq!(history.sequence, 4);
    }

    #[test]
    fn a_device_is_cleared_alone_or_all_with_what_scrubs_have_found() {
        let device = |id| KeptErrors {
            device: Uuid::from_u128(id),
            errors: DeviceErrors { read: 1, ..DeviceErrors::default() },
            last: None,
        };
        let array = Uuid::from_u128(9);
        let mut history = KeptHistory {
            sequence: 1,
            devices: vec![device(1), device(2)],
            scrubs: vec![KeptScrub { array, scrub: scrub(0, 1) }],
            cache_scrub: None,
            cache_wear: None,
        };
        history.clear(Some(&[Uuid::from_u128(1)]));
        assert!(history.devices == [device(2)] && history.scrubs[0].scrub.is_unsound());
        history.clear(None);
        assert!(history.devices.is_empty() && !history.scrubs[0].scrub.is_unsound());
    }
}
