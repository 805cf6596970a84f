//! Conditions that need the operator: the cause, the data at risk, and the action to take.
//!
//! A past event, such as a device error, is reported until it is cleared; a present condition for
//! as long as it holds.

mod array_writes;
mod daemon;
mod fallback;
mod kind;
mod member_errors;
mod memory;
mod missing;
mod remote;
mod risk;
mod scrub;
mod slow_member;

use crate::assembly::open::OpenError;
use crate::assembly::ownership::{OwnerState, OwnerStatus};
use crate::description::settings::CacheSettings;
use crate::volume::flushed_positions::Broken;
use crate::watch::status::{CacheStatus, MirrorStatus};
pub(crate) use array_writes::of_writes;
use headpond_block::BLOCK_BYTES;
use headpond_cache::format::FormatError;
use headpond_cache::{CleaningPolicy, OpenError as CacheOpenError};
use headpond_raid::superblock::DecodeError;
use headpond_raid::{ArrayState, ArrayStatus, AssembleError, LostStatus};
pub use kind::AlertKind;
pub(crate) use member_errors::of_errors;
use member_errors::way_out;
pub(crate) use memory::of_memory;
pub use risk::Risk;
use risk::UNFLUSHED;
use schemars::JsonSchema;
pub(crate) use scrub::of_scrub;
use serde::{Deserialize, Serialize};
pub(crate) use slow_member::of_members;
use std::fmt;

/// Share of the dirty limit from which writes are about to wait.
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

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; at risk: {}; action: {}", self.cause, self.at_risk.what, self.action)
    }
}

/// Whether the condition is the cache's, or the tier's in front of it.
#[derive(Clone, Copy)]
pub(crate) struct CacheRole<'a> {
    volume: &'a str,
    pub is_tier: bool,
    /// Its copies, where it is a mirror.
    mirror: Option<&'a MirrorStatus>,
}

impl<'a> CacheRole<'a> {
    pub fn cache(volume: &'a str) -> Self {
        Self { volume, is_tier: false, mirror: None }
    }

    pub fn tier(volume: &'a str) -> Self {
        Self { volume, is_tier: true, mirror: None }
    }

    fn of(self, cache: &'a CacheStatus) -> Self {
        Self { mirror: cache.mirror.as_ref(), ..self }
    }

    /// The copy that was wrong most often, and how often.
    fn worst_copy(self) -> Option<(&'a str, u64)> {
        let worst = self.mirror?.repaired.iter().max_by_key(|repaired| repaired.times)?;
        Some((&worst.device, worst.times))
    }

    fn blame(self) -> String {
        let blame =
            |(copy, times)| format!("; {copy} was wrong {times} times, another copy was correct");
        self.worst_copy().map(blame).unwrap_or_default()
    }

    /// Name of the device, and of the layer below it.
    fn words(self) -> (&'static str, &'static str) {
        if self.is_tier { ("tier", "volume below it") } else { ("cache", "array") }
    }

    /// A command that changes a setting.
    fn set(self, key: &str, value: &str) -> String {
        let prefix = if self.is_tier { "tier." } else { "" };
        format!("`headpond set {} {prefix}{key}={value}`", self.volume)
    }

    /// A command that detaches the device; where it `is_forced`, with its dirty data.
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

    /// Replaces the device: memory is released and allocated again; of a mirror the bad copy is
    /// replaced.
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

    /// Flushes its dirty data.
    fn flush(self) -> String {
        format!("`headpond flush {}`", self.volume)
    }

    fn scrub(self) -> String {
        format!("`headpond cache scrub {}`", self.volume)
    }

    fn clear(self) -> String {
        format!("`headpond clear {}` clears this alert", self.volume)
    }
}

/// The conditions of a cache, or of a tier.
pub(crate) fn of_cache(
    place: CacheRole<'_>,
    cache: &CacheStatus,
    settings: &CacheSettings,
) -> Vec<Alert> {
    let place = place.of(cache);
    let mut alerts = of_contents(place, cache);
    alerts.extend(fallback::in_fallback(place, cache, settings));
    alerts.extend(of_devices(place, cache));
    alerts.extend(full(place, cache, settings.cleaning.policy));
    alerts.sort_by_key(|alert| alert.kind);
    alerts
}

/// The condition of a volume that another host has taken over.
pub(crate) fn of_owner(volume: &str, owner: &OwnerStatus) -> Option<Alert> {
    let to = match &owner.state {
        OwnerState::Held | OwnerState::Late => return None,
        OwnerState::LockLost { device, reason } => {
            return Some(remote::of_lock(volume, device, reason));
        }
        OwnerState::Lost { to } => to,
    };
    Some(Alert {
        kind: AlertKind::OwnershipLost,
        cause: format!(
            "{to} has taken over {volume} while {} sent no heartbeat: all I/O is stopped here",
            owner.host
        ),
        at_risk: Risk::none("writes of clients here that were not acknowledged as flushed"),
        action: format!(
            "`headpond stop {volume}` here, and use it on {to}; once it is stopped there, \
             `headpond serve {volume}` is possible here again"
        ),
    })
}

/// The condition of a volume that takes no writes because its cache lost flushed data.
pub(crate) fn of_lost_flushed_data(volume: &str, broken: &Broken) -> Alert {
    Alert {
        kind: AlertKind::FlushedDataLost,
        cause: format!("{broken}: the volume takes no writes"),
        at_risk: Risk {
            blocks: broken.damaged_blocks,
            bytes: broken.damaged_blocks * BLOCK_BYTES,
            what: "the data flushed last: blocks of missing log records are unknown, and read as they were \
                   before; damaged ones read as errors"
                .into(),
        },
        action: format!(
            "save the data and compare it with a backup; `headpond stop {volume}`, then `headpond \
             serve {volume} --force` serves it as it is; replace the cache device"
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
        cause: "blocks were unreadable on more members than the redundancy covers: their data is \
                   lost"
            .into(),
        at_risk: Risk { blocks: lost.bytes.div_ceil(BLOCK_BYTES), bytes: lost.bytes, what },
        action: format!(
            "restore these bytes of {served} from a backup; `headpond status {volume} --json` lists \
             more of them, by core"
        ),
    })
}

/// The condition of a cache mirror, parts of which no copy could read for the resync.
pub(crate) fn of_copies(volume: &str, lost: &LostStatus) -> Option<Alert> {
    if lost.bytes == 0 {
        return None;
    }
    Some(Alert {
        kind: AlertKind::LostBlocks,
        cause: "parts of the cache were unreadable on all copies while a copy was resynced".into(),
        at_risk: Risk::of_bytes(lost.bytes, "of the cache, where they are in use"),
        action: format!(
            "`headpond cache scrub {volume}` drops clean blocks, and lists the lost ones"
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
        ArrayState::Optimal => (
            Risk::none("nothing while the array is healthy; degraded, it refuses writes"),
            format!(
                "`headpond array set-journal {volume} DEVICE{of}`, or connect its device and restart \
                 {volume}"
            ),
        ),
        ArrayState::Degraded | ArrayState::Failed => (
            Risk::none("no written data; the array refuses writes"),
            format!(
                "`headpond array set-journal {volume} DEVICE{of}`, `headpond array add-spare {volume} \
                 DEVICE{of}`, or connect the journal device and restart"
            ),
        ),
    };
    let cause = format!("array {}: its stripe journal {uuid} failed or is missing", array.name);
    Some(Alert { kind: AlertKind::JournalLost, cause, at_risk, action })
}

fn of_contents(place: CacheRole<'_>, cache: &CacheStatus) -> Vec<Alert> {
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
            at_risk: Risk::of_bytes(lost * BLOCK_BYTES, "that read as errors until written again"),
            action: format!("{}, and write the damaged blocks again", place.scrub()),
        });
    }
    if cache.unreadable_blocks > 0 {
        alerts.push(unreadable(place, cache));
    }
    if cache.device_errors.errors.checksum > 0 {
        let times = cache.device_errors.errors.checksum;
        alerts.push(Alert {
            kind: AlertKind::CacheCorruption,
            cause: format!(
                "{times} reads from {device} did not match their checksums{}",
                place.blame()
            ),
            at_risk: Risk::of_dirty(cache),
            action: with_clear(place, match (place.is_tier, place.mirror.is_some()) {
                (true, _) => {
                    format!("{}, and test the memory of this machine", place.detach(false))
                }
                (false, true) => format!(
                    "{} repairs the copies and lists lost blocks; then {}",
                    place.scrub(),
                    place.replace()
                ),
                (false, false) => format!(
                    "{} drops damaged clean blocks and lists lost ones; then replace the device",
                    place.scrub()
                ),
            }),
        });
    }
    alerts
}

fn with_clear(place: CacheRole<'_>, action: String) -> String {
    format!("{action}; {}", place.clear())
}

/// Reported for as long as it holds: clearing errors makes no data readable.
fn unreadable(place: CacheRole<'_>, cache: &CacheStatus) -> Alert {
    let (device, blocks) = (&cache.device, cache.unreadable_blocks);
    let discard = format!("discard them with {}", place.detach(true));
    Alert {
        kind: AlertKind::DirtyUnreadable,
        cause: format!("{blocks} dirty blocks on {device} are unreadable"),
        at_risk: Risk::of_bytes(blocks * BLOCK_BYTES, "that read as errors until written again"),
        action: match place.is_tier {
            true => format!("write them again, or {discard}"),
            false => format!("{} lists the blocks: write them again, or {discard}", place.scrub()),
        },
    }
}

fn failed(place: CacheRole<'_>, cache: &CacheStatus) -> Alert {
    let (device, (this, below)) = (&cache.device, place.words());
    let (at_risk, action) = match cache.dirty_bytes {
        0 if cache.unflushed_bytes > 0 => (
            Risk::of_bytes(cache.unflushed_bytes, UNFLUSHED),
            format!("{}, then {}", place.flush(), place.detach(false)),
        ),
        0 => (
            Risk::none(&format!("nothing: the {below} has all data")),
            format!("{}, then {} with another device", place.detach(false), place.attach()),
        ),
        bytes => (
            Risk::of_bytes(
                bytes,
                &format!("not yet on the {below}; without the device reads of them fail"),
            ),
            format!(
                "{} writes the dirty data that is still readable to the {below}; {} discards the rest",
                place.flush(),
                place.detach(true)
            ),
        ),
    };
    let cause = format!("the {this} device failed: writes bypass {device} and go to the {below}");
    Alert { kind: AlertKind::CacheFailed, cause, at_risk, action }
}

fn of_devices(place: CacheRole<'_>, cache: &CacheStatus) -> Vec<Alert> {
    let (device, errors) = (&cache.device, cache.device_errors.errors);
    let last = cache.device_errors.last_error.as_ref().map(|last| format!("; the last: {last}"));
    let last = last.unwrap_or_default();
    let mut alerts = Vec::new();
    let replace = format!("{} if errors recur; {}", place.replace(), place.clear());
    if errors.read > 0 {
        alerts.push(Alert {
            kind: AlertKind::CacheReadErrors,
            cause: format!("{} reads from {device} failed{}{last}", errors.read, place.blame()),
            at_risk: Risk::of_dirty(cache),
            action: match place.is_tier {
                true => replace.clone(),
                false => format!("{} reads all of it; {replace}", place.scrub()),
            },
        });
    }
    let written = errors.write + errors.flush + errors.timeout;
    if written > 0 {
        let way_out =
            cache.device_errors.last_error.as_ref().and_then(|last| way_out(last, device));
        alerts.push(Alert {
            kind: AlertKind::CacheWriteErrors,
            cause: format!("{written} writes or flushes of {device} failed{last}"),
            at_risk: Risk::of_dirty(cache),
            action: way_out.map_or_else(|| replace.clone(), |way| format!("{way}; {replace}")),
        });
    }
    alerts
}

fn full(place: CacheRole<'_>, cache: &CacheStatus, cleaning: CleaningPolicy) -> Option<Alert> {
    let (dirty, most) = (cache.dirty_bytes, cache.dirty_bytes_max);
    if dirty == 0 || dirty * 100 < most * FULL_PERCENT {
        return None;
    }
    let action = match cleaning {
        CleaningPolicy::Nop => {
            format!("{}: no cleaner runs now", place.set("cleaning", "stripe"))
        }
        _ => {
            let (flush, this) = (place.flush(), place.words().0);
            format!("none if it is temporary; otherwise {flush}, or a larger {this}")
        }
    };
    Some(Alert {
        kind: AlertKind::CacheFull,
        cause: format!("{dirty} of at most {most} bytes are dirty"),
        at_risk: Risk::none("no data; writes wait for the cleaner, or bypass the cache"),
        action,
    })
}

impl OpenError {
    /// Whether the format is of a newer version, rather than damaged.
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

    /// Whether it protects dirty data in the cache.
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

    /// The refusal as an alert.
    pub fn alert(&self, volume: &str) -> Alert {
        let serve = format!("`headpond serve {volume}`");
        let forced = format!("`headpond serve {volume} --force` starts without it");
        let (what, action) = match self {
            Self::Cache(_) if self.is_of_a_newer_program() => (
                "dirty data in that cache; nothing was changed",
                format!(
                    "{serve} with the newer Headpond that wrote it; {forced}, and that data is lost"
                ),
            ),
            Self::Array(_) if self.is_of_a_newer_program() => {
                ("nothing was changed", format!("{serve} with the newer Headpond that wrote it"))
            }
            Self::Array(error) if error.is_about_one_device() => (
                "nothing was changed",
                format!(
                    "correct the device in the description, or remove it there (`members` in \
                     {volume}.toml of the state folder), and {serve}"
                ),
            ),
            Self::NoCacheDevice { .. } | Self::UnnamedCache { .. } | Self::OlderCache { .. } => (
                "dirty data in that cache; nothing was changed",
                format!("reconnect the cache and {serve}; {forced}, and that data is lost"),
            ),
            Self::Cache(CacheOpenError::Generation { .. }) => (
                "dirty data of that cache; nothing was changed",
                format!("{forced}: the array is used as it is, and that data is lost"),
            ),
            Self::Cache(CacheOpenError::CoreChanged { .. }) => (
                "data written to the array since, and blocks next to it; the cache was not changed",
                format!(
                    "find out what wrote to the members; `headpond serve {volume} --force` accepts the array as it is, and \
                     cleans the dirty data to it"
                ),
            ),
            Self::Owned(_) => (
                "nothing was changed; two owners would damage all data",
                format!("`headpond stop {volume}` on the host that serves it, then {serve}"),
            ),
            Self::OtherCores { .. } => (
                "dirty data in that cache; nothing was changed",
                format!("restore the cores of the description and {serve}; {forced}"),
            ),
            Self::OtherCache { .. } | Self::Cache(CacheOpenError::ForeignVolume { .. }) => (
                "dirty data in the volume's own cache; nothing was changed",
                format!("name the volume's own cache in its description, then {serve}"),
            ),
            Self::Cache(_) => (
                "dirty data in the cache; nothing was changed",
                format!("reconnect the device as it was and {serve}; {forced}"),
            ),
            Self::Array(AssembleError::TooFew { .. }) => (
                "all data, without the missing members; nothing was changed",
                format!("reconnect as many members as the level needs, and {serve}"),
            ),
            _ => (
                "nothing was changed",
                format!(
                    "reconnect every device and {serve}; `--force` starts without missing devices, and \
                     discards data that only suspect parity could reconstruct"
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
    fn lost_blocks_are_named_by_client_address() {
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
