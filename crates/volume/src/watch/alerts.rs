//! Conditions that want the operator: what happened, what is at risk, and what to do about it.
//!
//! A condition that lies in the past, as an error of a device, is told until the statistics are
//! reset; one that holds now, for as long as it does.

mod fallback;
mod member_errors;
mod memory;
mod risk;
mod slow_member;

use crate::assembly::open::OpenError;
use crate::assembly::ownership::{OwnerState, OwnerStatus};
use crate::description::settings::CacheSettings;
use crate::volume::flushed_positions::Broken;
use crate::watch::status::{CacheStatus, MirrorStatus};
use headpond_block::BLOCK_BYTES;
use headpond_cache::format::FormatError;
use headpond_cache::{CleaningPolicy, ErrorStats, OpenError as CacheOpenError};
use headpond_raid::superblock::DecodeError;
use headpond_raid::{ArrayState, ArrayStatus, AssembleError, LostStatus};
pub(crate) use member_errors::of_errors;
pub(crate) use memory::of_memory;
pub use risk::Risk;
use risk::UNFLUSHED;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub(crate) use slow_member::of_members;
use std::fmt;

/// So much of what may be dirty is dirty that writes soon have to wait.
const FULL_PERCENT: u64 = 95;

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Alert {
    pub kind: AlertKind,
    pub cause: String,
    pub at_risk: Risk,
    /// The command, where there is one.
    pub action: String,
}

/// Which conditions there are, worst first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// The volume was not opened.
    StartRefused,
    /// Another host has taken over: nothing is read or written here any more.
    OwnershipLost,
    /// The cache lost what it had promised: the volume takes no writes until that is accepted.
    FlushedDataLost,
    /// The cache device takes no more writes, and is used no more but for what only it has.
    CacheFailed,
    /// The cache device errs so often that nothing new is put on it.
    CacheFallback,
    /// The stripe journal failed, or is not there.
    JournalLost,
    /// What was promised is damaged: reads of it fail.
    DamagedBlocks,
    /// More members could not read some blocks than the array can replace: reads of them fail.
    LostBlocks,
    /// What only the cache has could not be read.
    DirtyUnreadable,
    /// Blocks of the cache did not fit their checksums.
    CacheCorruption,
    /// Reads from the cache device failed.
    CacheReadErrors,
    /// Writes to the cache device failed, or flushes.
    CacheWriteErrors,
    /// Writes to the array failed, or flushes: what is dirty stays dirty.
    ArrayWriteErrors,
    /// Operations of a member failed, and others stood in for it.
    MemberErrors,
    /// A member does not answer in time.
    SlowMember,
    /// The system gives this process no memory.
    MemoryShort,
    /// As much is dirty as may be.
    CacheFull,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; at risk: {}; to do: {}", self.cause, self.at_risk.what, self.action)
    }
}

/// Whether it is a volume's cache that has the condition, or the memory in front of it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    volume: &'a str,
    pub is_tier: bool,
    /// The copies that the device is.
    mirror: Option<&'a MirrorStatus>,
}

impl<'a> Place<'a> {
    pub fn cache(volume: &'a str) -> Self {
        Self { volume, is_tier: false, mirror: None }
    }

    pub fn tier(volume: &'a str) -> Self {
        Self { volume, is_tier: true, mirror: None }
    }

    fn of(self, cache: &'a CacheStatus) -> Self {
        Self { mirror: cache.mirror.as_ref(), ..self }
    }

    /// The copy that was wrong most often, where any was, and how often.
    fn worst_copy(self) -> Option<(&'a str, u64)> {
        let worst = self.mirror?.repaired.iter().max_by_key(|repaired| repaired.times)?;
        Some((&worst.device, worst.times))
    }

    fn blame(self) -> String {
        let told =
            |(copy, times)| format!("; {copy} was wrong {times} times, and another copy right");
        self.worst_copy().map(told).unwrap_or_default()
    }

    /// The device in words, and what lies below it.
    fn words(self) -> (&'static str, &'static str) {
        if self.is_tier { ("tier", "volume below it") } else { ("cache", "array") }
    }

    /// A command that changes a setting.
    fn set(self, key: &str, value: &str) -> String {
        let prefix = if self.is_tier { "tier." } else { "" };
        format!("`headpond set {} {prefix}{key}={value}`", self.volume)
    }

    /// A command that takes the device away, whatever is on it where that `is_forced`.
    fn detach(self, is_forced: bool) -> String {
        let tier = if self.is_tier { " --tier" } else { "" };
        let force = if is_forced { " --force" } else { "" };
        format!("`headpond cache detach {}{tier}{force}`", self.volume)
    }

    fn attach(self) -> String {
        let device = match (self.is_tier, self.mirror.is_some()) {
            (true, _) => "ram:SIZE --tier",
            (false, true) => "DEVICE DEVICE",
            (false, false) => "DEVICE",
        };
        format!("`headpond cache attach {} {device}`", self.volume)
    }

    /// Puts another device in the place of this one: memory is given back and taken anew, and of
    /// several copies the one that is bad is exchanged.
    fn replace(self) -> String {
        let volume = self.volume;
        let copy = self.worst_copy().map_or("COPY", |(copy, _)| copy);
        match (self.is_tier, self.mirror.is_some()) {
            (true, _) => format!("{}, then {}", self.detach(false), self.attach()),
            (false, true) => {
                format!("`headpond array replace {volume} {copy} --with DEVICE --cache`")
            }
            (false, false) => format!("`headpond cache replace {volume} DEVICE`"),
        }
    }

    /// Writes down what is dirty in it.
    fn flush(self) -> String {
        format!("`headpond flush {}`", self.volume)
    }

    fn scrub(self) -> String {
        format!("`headpond cache scrub {}`", self.volume)
    }
}

/// The conditions of a cache, or of a tier.
pub(crate) fn of_cache(
    place: Place<'_>,
    cache: &CacheStatus,
    settings: &CacheSettings,
    errors: &ErrorStats,
) -> Vec<Alert> {
    let place = place.of(cache);
    let mut alerts = of_contents(place, cache, errors);
    alerts.extend(fallback::in_fallback(place, cache, settings));
    alerts.extend(of_devices(place, cache, errors));
    alerts.extend(full(place, cache, settings.cleaning.policy));
    alerts.sort_by_key(|alert| alert.kind);
    alerts
}

/// The condition of an array that did not take what the cache, or a request past it, wrote; `core`
/// names it where there are several.
pub(crate) fn of_writes(
    volume: &str,
    core: Option<&str>,
    cache: &CacheStatus,
    errors: &ErrorStats,
) -> Option<Alert> {
    let failed = errors.core_write + errors.core_flush;
    let array = core.map_or("the array".into(), |core| format!("the array of core {core}"));
    (failed > 0).then(|| Alert {
        kind: AlertKind::ArrayWriteErrors,
        cause: format!("{failed} writes to {array}, or flushes, failed"),
        at_risk: Risk::of_dirty(cache),
        action: format!(
            "look at its members with `headpond status {volume}`; then {} says whether they take it now",
            Place::cache(volume).flush()
        ),
    })
}

/// The condition of a volume that another host has taken over.
pub(crate) fn of_owner(volume: &str, owner: &OwnerStatus) -> Option<Alert> {
    let OwnerState::Lost { to } = &owner.state else { return None };
    Some(Alert {
        kind: AlertKind::OwnershipLost,
        cause: format!(
            "{to} has taken {volume} over while {} was silent: nothing is read or written here any more",
            owner.host
        ),
        at_risk: Risk::none("what clients here were not told is flushed"),
        action: format!(
            "`headpond stop {volume}` here, and go on with it on {to}; once that one has stopped, \
             `headpond serve {volume}` is possible again"
        ),
    })
}

/// The condition of a volume that takes no writes because its cache broke promises.
pub(crate) fn of_lost_flushed_data(volume: &str, broken: &Broken) -> Alert {
    Alert {
        kind: AlertKind::FlushedDataLost,
        cause: format!("{broken}: the volume takes no writes"),
        at_risk: Risk {
            blocks: broken.damaged_blocks,
            bytes: broken.damaged_blocks * BLOCK_BYTES,
            what: "what was flushed last: which blocks the missing records had nobody knows, and they \
                   read as they were before; damaged ones read as errors"
                .into(),
        },
        action: format!(
            "save what is needed and compare it with a backup; `headpond stop {volume}`, then `headpond \
             serve {volume} --force` goes on with what there is; replace the cache device"
        ),
    }
}

/// The condition of an array that has lost blocks; `core` names it where it is not the first.
pub(crate) fn of_array(volume: &str, core: Option<&str>, lost: &LostStatus) -> Option<Alert> {
    const NAMED_MAX: usize = 3;
    if lost.bytes == 0 {
        return None;
    }
    let range = |it: &headpond_raid::LostRange| format!("{}..{}", it.start, it.start + it.bytes);
    let named: Vec<String> = lost.first.iter().take(NAMED_MAX).map(range).collect();
    let further = if lost.ranges > NAMED_MAX as u64 { ", ..." } else { "" };
    let served = core.map_or_else(|| volume.to_owned(), |core| format!("{volume}/{core}"));
    let what = format!(
        "{} bytes of {served} that read as errors until they are written again, in {} ranges: \
         {}{further}",
        lost.bytes,
        lost.ranges,
        named.join(", ")
    );
    Some(Alert {
        kind: AlertKind::LostBlocks,
        cause: "blocks could not be read on more members than the array can replace: nobody \
                   knows what they held"
            .into(),
        at_risk: Risk { blocks: lost.bytes.div_ceil(BLOCK_BYTES), bytes: lost.bytes, what },
        action: format!(
            "write these bytes of {served} again, from a backup; `headpond status {volume} \
             --json` lists more of them, by core"
        ),
    })
}

/// The condition of copies of a cache, parts of which none of them could give to a new one.
pub(crate) fn of_copies(volume: &str, lost: &LostStatus) -> Option<Alert> {
    if lost.bytes == 0 {
        return None;
    }
    Some(Alert {
        kind: AlertKind::LostBlocks,
        cause: "no copy of the cache could give parts of it to the one that joined".into(),
        at_risk: Risk::of_bytes(lost.bytes, "of the cache, as far as they are in use"),
        action: format!(
            "`headpond cache scrub {volume}` drops what the array has too, and lists what is lost"
        ),
    })
}

/// The condition of a core whose stripe journal is not used; `core` names it where it is not the
/// first.
pub(crate) fn of_journal(volume: &str, core: Option<&str>, array: &ArrayStatus) -> Option<Alert> {
    let journal = array.journal.as_ref().filter(|journal| journal.device.is_none())?;
    let uuid = journal.uuid;
    let of = core.map(|core| format!(" --core {core}")).unwrap_or_default();
    let (at_risk, action) = match array.state {
        ArrayState::Healthy => (
            Risk::none("nothing until a member is lost: then writes are refused"),
            format!(
                "`headpond array set-journal {volume} DEVICE{of}`, or attach its device and start {volume} \
                 again"
            ),
        ),
        ArrayState::Degraded | ArrayState::Failed => (
            Risk::none("nothing that was written; the array takes no more writes"),
            format!(
                "`headpond array set-journal {volume} DEVICE{of}`, `headpond array add-spare {volume} \
                 DEVICE{of}`, or attach the journal and start again"
            ),
        ),
    };
    let cause = format!("array {}: its stripe journal {uuid} is not used", array.name);
    Some(Alert { kind: AlertKind::JournalLost, cause, at_risk, action })
}

fn of_contents(place: Place<'_>, cache: &CacheStatus, errors: &ErrorStats) -> Vec<Alert> {
    let device = &cache.device;
    let mut alerts = Vec::new();
    if cache.failed {
        alerts.push(failed(place, cache));
    }
    if cache.lost_blocks > 0 {
        let lost = cache.lost_blocks;
        alerts.push(Alert {
            kind: AlertKind::DamagedBlocks,
            cause: format!("{lost} blocks in the {} are damaged", place.words().0),
            at_risk: Risk::of_bytes(
                lost * BLOCK_BYTES,
                "that answer with errors until written again",
            ),
            action: format!("{}, and write what is damaged again", place.scrub()),
        });
    }
    if cache.unreadable_blocks > 0 {
        alerts.push(unreadable(place, cache));
    }
    if errors.cache_checksum > 0 {
        let times = errors.cache_checksum;
        alerts.push(Alert {
            kind: AlertKind::CacheCorruption,
            cause: format!(
                "{times} reads from {device} did not fit their checksums{}",
                place.blame()
            ),
            at_risk: Risk::of_dirty(cache),
            action: match (place.is_tier, place.mirror.is_some()) {
                (true, _) => {
                    format!("{}: the memory of this machine is not sound", place.detach(false))
                }
                (false, true) => format!(
                    "{} makes the copies alike again and lists what is lost; then {}",
                    place.scrub(),
                    place.replace()
                ),
                (false, false) => format!(
                    "{} drops what is damaged and lists what is lost; then replace the device",
                    place.scrub()
                ),
            },
        });
    }
    alerts
}

/// Told for as long as it is so: no reset of the statistics makes data readable.
fn unreadable(place: Place<'_>, cache: &CacheStatus) -> Alert {
    let (device, blocks) = (&cache.device, cache.unreadable_blocks);
    let give_up = format!("give up what cannot be read with {}", place.detach(true));
    Alert {
        kind: AlertKind::DirtyUnreadable,
        cause: format!("{device} could not give {blocks} blocks that only it holds"),
        at_risk: Risk::of_bytes(
            blocks * BLOCK_BYTES,
            "that answer with errors until written again",
        ),
        action: match place.is_tier {
            true => format!("write them again, or {give_up}"),
            false => format!("{} lists the blocks: write them again, or {give_up}", place.scrub()),
        },
    }
}

fn failed(place: Place<'_>, cache: &CacheStatus) -> Alert {
    let (device, (this, below)) = (&cache.device, place.words());
    let (at_risk, action) = match cache.dirty_bytes {
        0 if cache.unflushed_bytes > 0 => (
            Risk::of_bytes(cache.unflushed_bytes, UNFLUSHED),
            format!("{}, then {}", place.flush(), place.detach(false)),
        ),
        0 => (
            Risk::none(&format!("nothing: the {below} has everything")),
            format!("{}, then {} with another one", place.detach(false), place.attach()),
        ),
        bytes => (
            Risk::of_bytes(
                bytes,
                &format!("that the {below} lacks; without the device reads of them fail"),
            ),
            format!(
                "{} writes to the {below} what the device still reads; {} gives up the rest",
                place.flush(),
                place.detach(true)
            ),
        ),
    };
    let cause = format!("the {this} device failed: writes go past {device} to the {below}");
    Alert { kind: AlertKind::CacheFailed, cause, at_risk, action }
}

fn of_devices(place: Place<'_>, cache: &CacheStatus, errors: &ErrorStats) -> Vec<Alert> {
    let device = &cache.device;
    let mut alerts = Vec::new();
    let replace = format!(
        "{} if it goes on; `headpond stats {} --reset` ends this alert",
        place.replace(),
        place.volume
    );
    if errors.cache_read > 0 {
        alerts.push(Alert {
            kind: AlertKind::CacheReadErrors,
            cause: format!("{} reads from {device} failed{}", errors.cache_read, place.blame()),
            at_risk: Risk::of_dirty(cache),
            action: match place.is_tier {
                true => replace.clone(),
                false => format!("{} reads all of it; {replace}", place.scrub()),
            },
        });
    }
    if errors.cache_write > 0 {
        alerts.push(Alert {
            kind: AlertKind::CacheWriteErrors,
            cause: format!("{} writes to {device}, or flushes, failed", errors.cache_write),
            at_risk: Risk::of_dirty(cache),
            action: replace,
        });
    }
    alerts
}

fn full(place: Place<'_>, cache: &CacheStatus, cleaning: CleaningPolicy) -> Option<Alert> {
    let (dirty, most) = (cache.dirty_bytes, cache.dirty_bytes_max);
    if dirty == 0 || dirty * 100 < most * FULL_PERCENT {
        return None;
    }
    let action = match cleaning {
        CleaningPolicy::Nop => {
            format!("{}: nothing cleans now", place.set("cleaning", "stripe"))
        }
        _ => {
            let (flush, this) = (place.flush(), place.words().0);
            format!("nothing where it passes; else {flush}, or a larger {this}")
        }
    };
    Some(Alert {
        kind: AlertKind::CacheFull,
        cause: format!("{dirty} of {most} bytes that may be dirty are"),
        at_risk: Risk::none("speed alone: writes wait for the cleaner, or go past the cache"),
        action,
    })
}

impl OpenError {
    /// Whether a format is not known, rather than broken.
    fn is_of_a_newer_program(&self) -> bool {
        match self {
            Self::Cache(CacheOpenError::NoCache { source, .. }) => {
                matches!(source, FormatError::Version { .. } | FormatError::Features { .. })
            }
            Self::Array(AssembleError::Unusable { cause, .. }) => {
                matches!(cause, DecodeError::Version { .. } | DecodeError::Incompatible { .. })
            }
            _ => false,
        }
    }

    /// Whether it is for the sake of what only the cache holds.
    pub fn is_about_the_cache(&self) -> bool {
        matches!(
            self,
            Self::Cache(_)
                | Self::NoCacheDevice { .. }
                | Self::UnnamedCache { .. }
                | Self::OlderCache { .. }
                | Self::OtherCores { .. }
                | Self::OtherCache { .. }
        )
    }

    /// The refusal as the operator's view of it.
    pub fn alert(&self, volume: &str) -> Alert {
        let serve = format!("`headpond serve {volume}`");
        let forced = format!("`headpond serve {volume} --force` does without it");
        let (what, action) = match self {
            Self::Cache(_) if self.is_of_a_newer_program() => (
                "what only that cache holds; nothing was changed",
                format!(
                    "{serve} with the newer Headpond that wrote it; {forced}, and that is lost"
                ),
            ),
            Self::Array(_) if self.is_of_a_newer_program() => {
                ("nothing was changed", format!("{serve} with the newer Headpond that wrote it"))
            }
            Self::Array(error) if error.is_about_one_device() => (
                "nothing was changed",
                format!(
                    "have the description name the right device, or leave this one out of it \
                     (`members` in {volume}.toml of the state folder), and {serve}"
                ),
            ),
            Self::NoCacheDevice { .. } | Self::UnnamedCache { .. } | Self::OlderCache { .. } => (
                "what only that cache holds; nothing was changed",
                format!("bring the cache back and {serve}; {forced}, and that is lost"),
            ),
            Self::Cache(CacheOpenError::Generation { .. }) => (
                "what only that cache held; nothing was changed",
                format!("{forced}: the array goes on, and what only the cache held is lost"),
            ),
            Self::Cache(CacheOpenError::CoreChanged { .. }) => (
                "what was written to the array meanwhile, and what lies beside it; the cache was not changed",
                format!(
                    "see what wrote to the members; `headpond serve {volume} --force` takes the array as it is, and gives it \
                     what is dirty here"
                ),
            ),
            Self::Owned(_) => (
                "nothing was changed; with two owners all of it would be",
                format!("`headpond stop {volume}` on the host that has it, then {serve}"),
            ),
            Self::OtherCores { .. } => (
                "what only that cache holds; nothing was changed",
                format!("put the cores of the description back as they were and {serve}; {forced}"),
            ),
            Self::OtherCache { .. } | Self::Cache(CacheOpenError::ForeignVolume { .. }) => (
                "what only its own cache holds, wherever that is; nothing was changed",
                format!("name the volume's own cache in its description, then {serve}"),
            ),
            Self::Cache(_) => (
                "what the cache holds; nothing was changed",
                format!("bring the device back as it was and {serve}; {forced}"),
            ),
            Self::Array(AssembleError::TooFew { .. }) => (
                "all of it, without them; nothing was changed",
                format!("bring as many of them back as the level needs, and {serve}"),
            ),
            _ => (
                "nothing was changed",
                format!(
                    "bring every device back and {serve}; `--force` gives up what only parity tells \
                     that may be torn, and the devices that are missing"
                ),
            ),
        };
        Alert {
            kind: AlertKind::StartRefused,
            cause: self.to_string(),
            at_risk: Risk::none(what),
            action,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_raid::LostRange;

    fn lost(ranges: u64) -> LostStatus {
        let range = |index| LostRange { start: index * 65536, bytes: 512 };
        LostStatus { bytes: ranges * 512, ranges, first: (0..ranges).map(range).collect() }
    }

    #[test]
    fn lost_blocks_are_named_by_their_place_in_what_clients_see() {
        let alert = of_array("hv0", None, &lost(4)).expect("blocks are lost");
        assert_eq!((alert.kind, alert.at_risk.bytes), (AlertKind::LostBlocks, 2048));
        let named = "4 ranges: 0..512, 65536..66048, 131072..131584, ...";
        assert!(alert.at_risk.what.ends_with(named), "{alert}");
        assert!(alert.action.contains("headpond status hv0 --json"), "{alert}");
        let further = of_array("hv0", Some("logs"), &lost(4)).expect("blocks are lost");
        assert!(further.at_risk.what.contains("bytes of hv0/logs"), "{further}");
    }

    #[test]
    fn an_array_that_has_lost_nothing_has_no_alert() {
        assert_eq!(of_array("hv0", None, &lost(0)), None);
    }
}
