//! Members that hold their array up, or would without their peers.
//!
//! A member is told of while it is given up and cannot be done without, or when it has been slow or
//! late within the last ten minutes: late once, or slow several times, since any drive is slow
//! now and then.

use super::{Alert, AlertKind, Risk};
use crate::assembly::mirror::CACHE_COPIES;
use headpond_raid::{Answers, ArrayStatus, MemberStatus};

/// So many slow spells within ten minutes are no chance.
const SLOW_EVENTS_SHOWN: u32 = 8;

/// The conditions of the members of an array; `core` names it where there are several.
pub(crate) fn of_members(volume: &str, core: Option<&str>, array: &ArrayStatus) -> Vec<Alert> {
    let is_told = |member: &&MemberStatus| {
        let Answers { is_timed_out, timeouts, slow_events, .. } = member.answers;
        is_timed_out || timeouts > 0 || slow_events >= SLOW_EVENTS_SHOWN
    };
    let slow = array.members.iter().filter(is_told);
    slow.map(|member| alert(volume, core, array, member)).collect()
}

fn alert(volume: &str, core: Option<&str>, array: &ArrayStatus, member: &MemberStatus) -> Alert {
    let (answers, role) = (member.answers, member.role);
    let device = member.device.as_deref().unwrap_or("DEVICE");
    let of_core = of_core(core);
    let cause = format!(
        "member {role} ({device}) of array {}: {}, {} of its reads answered by its peers{}",
        array.name,
        events(array, answers),
        answers.reconstructed_reads,
        typical(array, member)
    );
    let at_risk = match answers.is_timed_out {
        true => {
            "requests that need it wait for it: its group can lose no more, or its parity is not \
             known to fit"
        }
        false => "nothing while its peers answer; writes wait for it up to the deadline",
    };
    let end = match answers.is_timed_out {
        true => "it is taken out of use as soon as its group can lose it",
        false => "this ends when it has answered in time for ten minutes",
    };
    let action = format!(
        "`headpond array replace {volume} {device} --with DEVICE{of_core}`, or `headpond array fail \
         {volume} {device}{of_core}` to do without it; {end}"
    );
    Alert { kind: AlertKind::SlowMember, cause, at_risk: Risk::none(at_risk), action }
}

/// What names the array in a command, where it is not the only one.
pub(super) fn of_core(core: Option<&str>) -> String {
    match core {
        None => String::new(),
        Some(CACHE_COPIES) => " --cache".into(),
        Some(name) => format!(" --core {name}"),
    }
}

/// What it did within the last ten minutes.
fn events(array: &ArrayStatus, answers: Answers) -> String {
    let timeouts_max = array.deadlines.and_then(|deadlines| deadlines.timeouts_max);
    let late = match timeouts_max {
        Some(most) => format!("late {} times of {most}", answers.timeouts),
        None => format!("late {} times", answers.timeouts),
    };
    let what = format!("slow {} times and {late} within ten minutes", answers.slow_events);
    match answers.is_timed_out {
        true => format!("given up, {what}"),
        false => what,
    }
}

/// What a read of it takes beside its peers, where both are known.
fn typical(array: &ArrayStatus, member: &MemberStatus) -> String {
    let is_peer = |other: &&MemberStatus| other.group == member.group && other.role != member.role;
    let peers = array.members.iter().filter(is_peer);
    let mut times: Vec<u64> = peers.filter_map(|peer| peer.answers.typical_read_us).collect();
    times.sort_unstable();
    let peers = times.get(times.len() / 2);
    let Some((own, peers)) = member.answers.typical_read_us.zip(peers) else {
        return String::new();
    };
    format!("; a read of it typically takes {own} us, of its peers {peers} us")
}
