//! The array in `headpond status`: its layout, deadlines, and each member that is not in sync.

use super::scrubs::tell_scrub;
use crate::telling::word;
use headpond_api::answers::CoreAnswer;
use headpond_block::RemoteStatus;
use headpond_raid::superblock::RoleState;
use headpond_raid::{
    ArrayStatus, DeadlineStatus, HealthState, IntegrityStatus, Level, MemberStatus, ReshapeStatus,
};
use headpond_report::{count, size};
use std::collections::BTreeMap;

/// More of a device than that without data is no superblock, bitmap or rounding.
const GROWN_MIN: u64 = 256 << 20;
/// Letters in a line of devices.
const LINE_MAX: usize = 86;

/// What a core is, without its state.
pub fn tell_shape(core: &CoreAnswer) -> String {
    let members = core.array.as_ref().map_or(core.devices.len(), |array| array.members.len());
    match core.is_existing {
        true => "an existing device".to_owned(),
        false => format!("{} of {members} members", core.level),
    }
}

/// The array in one line, and each deviation.
pub fn print_array(core: &CoreAnswer, array: &ArrayStatus, has_errors: bool) {
    let state = match (array.health, has_errors) {
        (HealthState::Errors, _) | (HealthState::Healthy, true) => {
            "all members in use, with errors".into()
        }
        (health, _) => word(health),
    };
    let (word, shape) = (if core.is_existing { "core " } else { "array" }, tell_shape(core));
    println!("  {word}     {shape}{}, {state}", spread(array));
    let lines = array.deadlines.as_ref().map(tell_deadlines).into_iter();
    let lines = lines.chain(array.integrity.as_ref().map(tell_integrity));
    let lines = lines.chain(tell_suspect_parity(array.suspect_parity_blocks, array.level));
    let lines = lines.chain(array.reshape.as_ref().map(tell_reshape));
    let scrub = tell_scrub(array.last_scrub.as_ref());
    let lines = lines.chain(scrub.into_iter().filter(|_| array.level != Level::Raid0));
    lines.for_each(|line| println!("            {line}"));
    print_array_live(array);
}

/// The devices of the members in use by group, and the strip size; of an array that is not served,
/// those of the description.
pub fn print_devices(core: &CoreAnswer) {
    let mut groups: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    match &core.array {
        Some(array) => {
            for member in &array.members {
                let group = groups.entry(member.group).or_default();
                let is_used = member.state == RoleState::Active;
                group.extend(member.device.as_deref().filter(|_| is_used));
            }
        }
        None => drop(groups.insert(0, core.devices.iter().map(String::as_str).collect())),
    }
    let mut lines = tell_devices(&groups);
    if core.level != Level::Raid1 && !core.is_existing {
        lines.push(format!("in strips of {}", size(core.strip_bytes)));
    }
    lines.iter().for_each(|line| println!("            {line}"));
}

fn tell_devices(groups: &BTreeMap<usize, Vec<&str>>) -> Vec<String> {
    let mut lines = Vec::new();
    for (group, used) in groups {
        let mut line = match groups.len() {
            1 => "on".to_owned(),
            _ => format!("group {group}:"),
        };
        for device in if used.is_empty() { &["no device"] } else { &**used } {
            if line.len() + 1 + device.len() > LINE_MAX {
                lines.push(std::mem::replace(&mut line, " ".into()));
            }
            line += &format!(" {device}");
        }
        lines.push(line);
    }
    lines
}

/// Data at risk until all parity has been rewritten after an unclean shutdown.
fn tell_suspect_parity(blocks: u64, level: Level) -> Option<String> {
    let what = if level.parity() > 0 { "suspect parity" } else { "possibly unequal copies" };
    (blocks > 0).then(|| {
        format!(
            "{what} of {} blocks after an unclean shutdown: until they are rewritten, losing a \
             member loses its data there",
            count(blocks)
        )
    })
}

fn tell_reshape(reshape: &ReshapeStatus) -> String {
    let percent = reshape.rows_done * 100 / reshape.rows.max(1);
    let (before, after) = (reshape.members_before, size(reshape.size_bytes_after));
    format!("reshape from {before} members to {after}: {percent} %")
}

/// The share of blocks with checksums.
fn tell_integrity(integrity: &IntegrityStatus) -> String {
    let percent = integrity.regions_signed * 100 / integrity.regions.max(1);
    format!("integrity: {percent} % with checksums")
}

/// The deadlines of members.
fn tell_deadlines(deadlines: &DeadlineStatus) -> String {
    let seconds = |millis: u64| format!("{} s", millis as f64 / 1000.0);
    let read = match deadlines.read_timeout_ms {
        Some(millis) => format!("reads are reconstructed after {} at most", seconds(millis)),
        None => "late reads are not reconstructed".to_owned(),
    };
    let deadline = deadlines
        .timeout_ms
        .map(|millis| format!("{} without completing a request", seconds(millis)));
    let late = deadlines.timeouts_max.filter(|_| deadlines.read_timeout_ms.is_some());
    let late = late.map(|times| format!("{times} timeouts in 10 min"));
    let causes: Vec<String> = deadline.into_iter().chain(late).collect();
    let end = match causes.is_empty() {
        true => "no member is failed for being slow".to_owned(),
        false => format!("a member is failed after {}", causes.join(", or ")),
    };
    format!("{read}; {end}")
}

/// A shorter delay is not reported.
const SILENT_MS: u64 = 1000;

fn name_of(member: &MemberStatus) -> String {
    format!("member {} ({})", member.role, member.device.as_deref().unwrap_or("-"))
}

/// Slow and late operations of a member.
fn tell_slow(member: &MemberStatus) -> Option<String> {
    let answers = &member.answers;
    let silent_ms = answers.unanswered_ms;
    if answers.slow_reads == 0 && !answers.is_timed_out && silent_ms < SILENT_MS {
        return None;
    }
    let typical = answers.typical_read_us;
    let typical = typical.map(|micros| format!("; a read typically takes {micros} us"));
    let mut state = if answers.is_slow { ", reads reconstructed now" } else { "" }.to_owned();
    if silent_ms >= SILENT_MS {
        state += &format!(", no completion for {:.0} s", silent_ms as f64 / 1e3);
    }
    Some(format!(
        "{}: {} slow reads, {} of them late, {} reads reconstructed{state}; slow {} times \
         and {} timeouts in 10 min{}",
        name_of(member),
        answers.slow_reads,
        answers.timed_out_reads,
        answers.reconstructed_reads,
        answers.slow_events,
        answers.timeouts,
        typical.unwrap_or_default()
    ))
}

/// Storage behind a network that is waited for, or has another size than the array counts on.
fn tell_remote(member: &MemberStatus, remote: &RemoteStatus) -> Option<String> {
    let name = name_of(member);
    match (&remote.lost, remote.waiting_s) {
        (Some(why), _) => Some(format!("{name}: its lock is lost, {why}")),
        (None, Some(waiting)) => Some(format!(
            "{name}: no answer from its cluster for {waiting} s, requests wait for it"
        )),
        (None, None) if remote.size_bytes > member.data_bytes + GROWN_MIN => {
            let (now, used) = (size(remote.size_bytes), size(member.data_bytes));
            Some(format!("{name}: has {now}, of which the array uses {used}"))
        }
        (None, None) => None,
    }
}

/// How stripes are placed on groups, on declustered or on unequal members.
fn spread(array: &ArrayStatus) -> String {
    if array.groups > 1 {
        return format!(" in {} groups", array.groups);
    }
    if let Some(weights) = &array.weights {
        return format!(" striped by weights {weights}");
    }
    let Some(declustered) = array.declustered else { return String::new() };
    let (free, all) = (declustered.spares_free, declustered.spares);
    format!(" in stripes of {}, {free} of {all} distributed spares free", declustered.width)
}

/// Members that are not in sync, and the spares.
pub(super) fn print_array_live(array: &ArrayStatus) {
    for member in &array.members {
        tell_member(member).iter().for_each(|line| println!("            {line}"));
    }
    array.spares.iter().for_each(|spare| println!("            spare {}", spare.device));
    if array.lost.bytes > 0 {
        println!("            lost: {} ranges, {}", array.lost.ranges, size(array.lost.bytes));
    }
}

fn tell_member(member: &MemberStatus) -> Vec<String> {
    let role = member.role;
    let mut lines = Vec::new();
    if member.state != RoleState::Active {
        let device = member.device.as_ref().map(|name| format!(", {name}"));
        lines.push(format!(
            "member {role} (group {}): {}{}",
            member.group,
            word(member.state),
            device.unwrap_or_default()
        ));
    }
    lines.extend(tell_slow(member));
    lines.extend(member.remote.as_ref().and_then(|remote| tell_remote(member, remote)));
    lines.extend(member.stand_in.as_ref().map(|it| {
        let percent = percent_filled(it.rows_done, it.rows);
        format!("member {role}: replaced by distributed spare {}, {percent} %", it.slot)
    }));
    lines.extend(member.filling.as_ref().map(|it| {
        let percent = percent_filled(it.rows_done, it.rows);
        format!("member {role}: being replaced by {}, {percent} %", it.device)
    }));
    lines
}

fn percent_filled(rows_done: u64, rows: u64) -> u64 {
    (rows_done * 100).checked_div(rows).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_raid::{Answers, DeviceErrors};
    use uuid::Uuid;

    #[test]
    fn devices_are_told_group_by_group_and_long_lists_in_several_lines() {
        let two = [(0, vec!["/dev/sda", "/dev/sdb"]), (1, vec!["/dev/sdc", "/dev/sdd"])];
        let told = tell_devices(&BTreeMap::from(two));
        assert_eq!(told, ["group 0: /dev/sda /dev/sdb", "group 1: /dev/sdc /dev/sdd"]);
        let names = vec!["/dev/disk/by-id/a-name-that-goes-on-for-a-while"; 4];
        let long = tell_devices(&BTreeMap::from([(0, names)]));
        assert_eq!(long.len(), 4, "{long:?}");
        assert!(long[0].starts_with("on /dev") && long[1].starts_with("  /dev"), "{long:?}");
        assert_eq!(tell_devices(&BTreeMap::from([(0, Vec::new())])), ["on no device"]);
    }

    #[test]
    fn deadlines_say_when_reads_are_reconstructed_and_when_a_member_is_failed() {
        let told = |read_timeout_ms, timeout_ms, timeouts_max| {
            tell_deadlines(&DeadlineStatus { read_timeout_ms, timeout_ms, timeouts_max })
        };
        assert_eq!(
            told(Some(2000), Some(30_000), Some(8)),
            "reads are reconstructed after 2 s at most; a member is failed after 30 s \
             without completing a request, or 8 timeouts in 10 min"
        );
        let quick = told(Some(250), None, None);
        assert_eq!(
            quick,
            "reads are reconstructed after 0.25 s at most; no member is failed for being slow"
        );
        let hung = told(None, Some(500), Some(8));
        assert!(hung.ends_with("failed after 0.5 s without completing a request"), "{hung}");
    }

    #[test]
    fn a_member_that_was_never_slow_has_no_line() {
        let told = |slow_reads, unanswered_ms| {
            let answers = Answers {
                slow_reads,
                timed_out_reads: 3,
                reconstructed_reads: 40,
                slow_events: 5,
                timeouts: 2,
                is_slow: true,
                is_timed_out: false,
                typical_read_us: Some(812),
                unanswered_ms,
            };
            tell_slow(&MemberStatus {
                role: 2,
                group: 0,
                uuid: Uuid::nil(),
                device: Some("sdd".into()),
                state: RoleState::Active,
                data_bytes: 0,
                answers,
                errors: DeviceErrors::default(),
                last_error: None,
                remote: None,
                filling: None,
                stand_in: None,
            })
        };
        assert_eq!(told(0, 900), None);
        assert!(told(0, 3_000).unwrap().contains("no completion for 3 s"), "to a write");
        let text = "member 2 (sdd): 9 slow reads, 3 of them late, 40 reads reconstructed, reads \
            reconstructed now, no completion for 14 s; slow 5 times and 2 timeouts in 10 min; a read \
                    typically takes 812 us";
        assert_eq!(told(9, 14_200).as_deref(), Some(text));
    }
}
