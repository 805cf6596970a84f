//! Members that delay requests, or would without reconstruction.
//!
//! A member is reported while it is timed out and its group has no redundancy left, or after
//! timeouts or slow reads in the last 10 min: one timeout, or several slow reads, since any drive
//! is slow now and then.

use super::remote::of_remote;
use super::{Alert, AlertKind, Risk};
use crate::assembly::mirror::CACHE_COPIES;
use headpond_raid::{Answers, ArrayStatus, MemberStatus};

/// Slow reads within 10 min that are no coincidence.
const SLOW_EVENTS_SHOWN: u32 = 8;

/// The conditions of the members of an array; `core` names it where there are several.
pub(crate) fn of_members(volume: &str, core: Option<&str>, array: &ArrayStatus) -> Vec<Alert> {
    let is_told = |member: &&MemberStatus| {
        let Answers { is_timed_out, timeouts, slow_events, .. } = member.answers;
        is_timed_out || timeouts > 0 || slow_events >= SLOW_EVENTS_SHOWN
    };
    let slow = array.members.iter().filter(is_told);
    let slow = slow.map(|member| alert(volume, core, array, member));
    slow.chain(array.members.iter().filter_map(|member| of_remote(&array.name, member))).collect()
}

fn alert(volume: &str, core: Option<&str>, array: &ArrayStatus, member: &MemberStatus) -> Alert {
    let (answers, role) = (member.answers, member.role);
    let device = member.device.as_deref().unwrap_or("DEVICE");
    let of_core = of_core(core);
    let cause = format!(
        "member {role} ({device}) of array {}: {}, {} reads reconstructed{}",
        array.name,
        events(array, answers),
        answers.reconstructed_reads,
        typical(array, member)
    );
    let at_risk = match answers.is_timed_out {
        true => {
            "requests that need it wait for it: its group has no redundancy left, or its parity is \
             not known to be consistent"
        }
        false => "nothing while its group has redundancy; writes wait for it up to the timeout",
    };
    let end = match answers.is_timed_out {
        true => "it is failed as soon as its group has redundancy",
        false => "this alert clears after 10 min without timeouts",
    };
    let action = format!(
        "`headpond array replace {volume} {device} --with DEVICE{of_core}`, or `headpond array fail \
         {volume} {device}{of_core}`; {end}"
    );
    Alert { kind: AlertKind::SlowMember, cause, at_risk: Risk::none(at_risk), action }
}

/// The option that names the array in a command, where there are several.
pub(super) fn of_core(core: Option<&str>) -> String {
    match core {
        None => String::new(),
        Some(CACHE_COPIES) => " --cache".into(),
        Some(name) => format!(" --core {name}"),
    }
}

/// Its slow reads and timeouts within the last 10 min.
fn events(array: &ArrayStatus, answers: Answers) -> String {
    let timeouts_max = array.deadlines.and_then(|deadlines| deadlines.timeouts_max);
    let late = match timeouts_max {
        Some(most) => format!("{} of {most} timeouts", answers.timeouts),
        None => format!("{} timeouts", answers.timeouts),
    };
    let what = format!("slow {} times and {late} in 10 min", answers.slow_events);
    match answers.is_timed_out {
        true => format!("timed out, {what}"),
        false => what,
    }
}

/// Typical read time of it and of its group, where both are known.
fn typical(array: &ArrayStatus, member: &MemberStatus) -> String {
    let is_peer = |other: &&MemberStatus| other.group == member.group && other.role != member.role;
    let peers = array.members.iter().filter(is_peer);
    let mut times: Vec<u64> = peers.filter_map(|peer| peer.answers.typical_read_us).collect();
    times.sort_unstable();
    let peers = times.get(times.len() / 2);
    let Some((own, peers)) = member.answers.typical_read_us.zip(peers) else {
        return String::new();
    };
    format!("; typical read {own} us, of its peers {peers} us")
}
