//! Members, spares and journals whose operations failed. Failed reads were reconstructed, unseen by
//! clients.
//!
//! Reported until they are cleared: such a device is failing, or was truncated, or what it lies on
//! is full or read-only.

use super::slow_member::of_core;
use super::{Alert, AlertKind, Risk};
use headpond_block::{DeviceErrors, ErrorCause, LastError};
use headpond_raid::{ArrayStatus, Level};

/// A device with errors.
struct Failing<'a> {
    kind: AlertKind,
    /// `member 1`.
    place: String,
    device: Option<&'a str>,
    errors: DeviceErrors,
    last: Option<&'a LastError>,
}

/// The devices of an array with errors; `core` names it where there are several.
pub(crate) fn of_errors(volume: &str, core: Option<&str>, array: &ArrayStatus) -> Vec<Alert> {
    let mut failing = Vec::new();
    for it in &array.members {
        let (place, device) = (format!("member {}", it.role), it.device.as_deref());
        let (errors, last) = (it.errors, it.last_error.as_ref());
        failing.push(Failing { kind: AlertKind::MemberErrors, place, device, errors, last });
        failing.extend(it.filling.as_ref().map(|it| spare(&it.device, it.errors, &it.last_error)));
    }
    failing.extend(array.spares.iter().map(|it| spare(&it.device, it.errors, &it.last_error)));
    failing.extend(array.journal.as_ref().map(|it| Failing {
        kind: AlertKind::JournalErrors,
        place: "the stripe journal".into(),
        device: it.device.as_deref(),
        errors: it.errors,
        last: it.last_error.as_ref(),
    }));
    let failing = failing.iter().filter(|it| it.errors.total() > 0);
    failing.map(|it| alert(volume, core, array, it)).collect()
}

fn spare<'a>(device: &'a str, errors: DeviceErrors, last: &'a Option<LastError>) -> Failing<'a> {
    let (kind, place) = (AlertKind::MemberErrors, "spare".into());
    Failing { kind, place, device: Some(device), errors, last: last.as_ref() }
}

fn alert(volume: &str, core: Option<&str>, array: &ArrayStatus, failing: &Failing<'_>) -> Alert {
    let Failing { kind, place, device, errors, last } = failing;
    let word = device.unwrap_or("DEVICE");
    let last = last.map(|last| (last, format!("; the last: {last}")));
    let (what, told) = match &last {
        Some((last, told)) => (what(last, word), told.as_str()),
        None => (None, ""),
    };
    let what = what.map(|what| format!("; {what}")).unwrap_or_default();
    let cause = format!("{place} ({word}) of array {}: {errors}{told}{what}", array.name);
    let at_risk = match (kind, array.level) {
        (AlertKind::JournalErrors, _) => "nothing while the array is not degraded",
        (_, Level::Raid0) => "the data of the failed requests; their clients received errors",
        _ => "nothing while the other members are readable; redundancy is reduced",
    };
    let look = || format!("check the device (`dmesg`, `smartctl -a {word}`, its size)");
    let look = last.and_then(|(last, _)| way_out(last, word)).unwrap_or_else(look);
    let of_core = of_core(core);
    let exchange = match (kind, array.level) {
        (AlertKind::JournalErrors, _) => {
            format!(", `headpond array set-journal {volume} DEVICE{of_core}`")
        }
        (_, Level::Raid0) => String::new(),
        _ => format!(", `headpond array replace {volume} {word} --with DEVICE{of_core}`"),
    };
    let action = format!("{look}{exchange}; `headpond clear {volume} {word}` clears this alert");
    Alert { kind: *kind, cause, at_risk: Risk::none(at_risk), action }
}

/// What is wrong with what the device lies on.
fn what(last: &LastError, device: &str) -> Option<String> {
    match last.cause {
        ErrorCause::Full => Some(format!("the file system that holds {device} is full")),
        ErrorCause::ReadOnly => {
            Some(format!("{device}, or the file system that holds it, is read-only"))
        }
        ErrorCause::Other => None,
    }
}

/// How a device that is in order can take writes again.
pub(super) fn way_out(last: &LastError, device: &str) -> Option<String> {
    match last.cause {
        ErrorCause::Full => Some(format!(
            "free space in the file system that holds {device} (`df {device}`; quotas and the \
             largest file size count too)"
        )),
        ErrorCause::ReadOnly => Some(format!(
            "find out why it is read-only (`dmesg`), and make it writable again (`findmnt -T {device}`, \
             `mount -o remount,rw`)"
        )),
        ErrorCause::Other => None,
    }
}

impl Alert {
    /// Whether it tells of something that failed, or of data that is lost.
    pub fn is_of_errors(&self) -> bool {
        use AlertKind::*;
        match self.kind {
            FlushedDataLost | CacheFailed | CacheFallback | JournalLost | DamagedBlocks
            | LostBlocks | DirtyUnreadable | CacheCorruption | CacheReadErrors
            | CacheWriteErrors | ArrayWriteErrors | ScrubFindings | MemberErrors
            | JournalErrors => true,
            StartRefused | DevicesMissing | DaemonEnded | DaemonSilent | OwnershipLost
            | SlowMember | MemoryShort | CacheFull => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::{ErrorKind, UtcTime};

    #[test]
    fn a_file_system_that_is_read_only_is_named_with_the_way_out() {
        let last = |cause| LastError {
            kind: ErrorKind::Write,
            cause,
            text: "Read-only file system".into(),
            at: UtcTime::default(),
        };
        let told = what(&last(ErrorCause::ReadOnly), "/srv/m1.img").unwrap();
        assert_eq!(told, "/srv/m1.img, or the file system that holds it, is read-only");
        let way = way_out(&last(ErrorCause::ReadOnly), "/srv/m1.img").unwrap();
        assert!(way.contains("findmnt -T /srv/m1.img"), "{way}");
        let other = last(ErrorCause::Other);
        assert_eq!((what(&other, "m"), way_out(&other, "m")), (None, None));
    }
}
