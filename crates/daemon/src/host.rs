//! Identity of this host and process: recorded on a volume's devices for other hosts that reach
//! them.

use crate::systemd::{Notifier, PROGRESS_TIME};
use headpond_rbd::Opener;
use headpond_volume::{Claimant, Host, Process, Watching};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use uuid::Uuid;

/// The owner of volumes that are opened here. `notifier` hears of another owner that is watched.
pub fn claimant(notifier: &Notifier) -> Claimant {
    let notifier = notifier.clone();
    let watch = move |watching: &Watching| {
        tell(watching);
        notifier.status(&format!("watching devices for a heartbeat of {}", watching.host));
        notifier.extend(watching.at_most + PROGRESS_TIME);
    };
    let (number, boot) = (std::process::id(), boot());
    let started = started(number).unwrap_or_default();
    let process = Process { number, started };
    Claimant {
        host: Host { name: name(), machine: machine(), boot, process },
        token: Uuid::new_v4(),
        is_running: Rc::new(started_is),
        watch: Some(Rc::new(watch)),
    }
}

/// This process as the holder of locks on images of Ceph: those that processes of this host have
/// left when they ended are broken at once.
pub fn image_opener() -> Opener {
    let (number, machine, boot) = (std::process::id(), machine(), boot());
    let started = started(number).unwrap_or_default();
    Opener {
        tag: format!("{machine} {boot} {number} {started}"),
        is_gone: Box::new(move |tag| has_ended(tag, machine, boot)),
    }
}

/// Whether a process noted by its tag certainly runs no more: of this host, but of another boot, or
/// not there.
fn has_ended(tag: &str, machine: Uuid, boot: Uuid) -> bool {
    let [of, then, number, started] = tag.split(' ').collect::<Vec<_>>()[..] else { return false };
    let (Ok(of), Ok(then)) = (of.parse::<Uuid>(), then.parse::<Uuid>()) else { return false };
    let (Ok(number), Ok(started)) = (number.parse(), started.parse()) else { return false };
    of == machine && (then != boot || !started_is(Process { number, started }))
}

fn tell(watching: &Watching) {
    let Watching { volume, host, at_most } = watching;
    tracing::warn!(
        "{volume} was not stopped on {host}: watching its devices for a heartbeat of that host for \
         {} s",
        at_most.as_secs_f64()
    );
}

fn name() -> String {
    word_of("/proc/sys/kernel/hostname").unwrap_or_else(|| "an unnamed host".into())
}

/// Machines cloned from one image share the machine ID, but often not the name. Process IDs of
/// another namespace have no meaning here: they count as another machine's.
fn machine() -> Uuid {
    let Some(number) = word_of("/etc/machine-id").and_then(|word| word.parse::<Uuid>().ok()) else {
        return Uuid::new_v4();
    };
    let space = fs::metadata("/proc/self/ns/pid").map(|it| it.ino()).unwrap_or_default();
    mixed(number, &[name().as_bytes(), &space.to_le_bytes()])
}

/// Identity of the machine's present boot.
pub fn boot() -> Uuid {
    let boot = word_of("/proc/sys/kernel/random/boot_id").and_then(|word| word.parse().ok());
    boot.unwrap_or_else(Uuid::new_v4)
}

/// Source: FNV-1a with 128 bits (Fowler, Noll, Vo), from `number` on.
fn mixed(number: Uuid, parts: &[&[u8]]) -> Uuid {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = parts.iter().flat_map(|part| part.iter());
    let mix = |mixed: u128, byte: &u8| (mixed ^ u128::from(*byte)).wrapping_mul(PRIME);
    let mixed = bytes.fold(number.as_u128(), mix);
    uuid::Builder::from_custom_bytes(mixed.to_be_bytes()).into_uuid()
}

fn word_of(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|word| !word.is_empty())
}

/// Start time of a running process, in ticks since the boot.
fn started(process: u32) -> Option<u64> {
    started_by(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The same from the kernel's record of a process. A zombie is not running, unless other threads of
/// it are.
///
/// Source: proc_pid_stat(5), fields 3, 20 and 22; the name in field 2 may hold anything, but ends
/// with the last parenthesis.
fn started_by(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let [state, threads, started] = [0, 17, 19].map(|field| fields.get(field).copied());
    let has_ended = matches!(state?, "Z" | "X") && threads?.parse::<u32>().is_ok_and(|it| it <= 1);
    if has_ended { None } else { started?.parse().ok() }
}

fn started_is(process: Process) -> bool {
    started(process.number) == Some(process.started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_one_that_began_at_another_time_does_not() {
        let us = claimant(&Notifier::default());
        let process = us.host.process;
        assert!((us.is_running)(process) && process.started > 0);
        assert!(!(us.is_running)(Process { started: process.started + 1, ..process }));
        let again = claimant(&Notifier::default());
        assert_eq!(again.host, us.host, "asked again it is the same");
        assert_ne!(again.token, us.token, "and another opening");
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_runs_no_more() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) b) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0")
        };
        assert_eq!(started_by(&stat("S", 4)), Some(4711));
        assert_eq!(started_by(&stat("Z", 1)), None);
        assert_eq!(started_by(&stat("Z", 3)), Some(4711), "other threads go on");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let number = child.id();
        while started(number).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_lock_is_broken_only_where_its_process_of_this_host_has_ended() {
        let us = image_opener();
        assert!(!(us.is_gone)(&us.tag), "we run");
        let [machine, boot, number, started] = us.tag.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{}", us.tag)
        };
        let other = Uuid::from_u128(1);
        let later = started.parse::<u64>().unwrap() + 1;
        assert!((us.is_gone)(&format!("{machine} {boot} {number} {later}")));
        assert!((us.is_gone)(&format!("{machine} {other} {number} {started}")), "an earlier boot");
        for unknown in [format!("{other} {boot} {number} {later}"), "".into(), "a b c d".into()] {
            assert!(!(us.is_gone)(&unknown), "{unknown}");
        }
    }

    #[test]
    fn machines_of_one_image_differ_by_their_names() {
        let image = Uuid::from_u128(7);
        assert_ne!(mixed(image, &[b"left"]), mixed(image, &[b"right"]));
    }
}
