//! The array in `headpond status`: its shape, how long its members are waited for, and each member
//! that is not as it should be.

use super::text;
use headpond_report::{count, size};
use serde_json::Value;

/// Letters in a line of devices.
const LINE_MAX: usize = 86;

/// The array in one line, and what is not as it should be.
pub fn print_array(array: &Value) {
    let members = array["members"].as_array().map_or(0, Vec::len);
    let (level, state) = (&array["level"], text(&array["state"]));
    println!("  array     RAID {level} of {members} members{}, {state}", spread(array));
    if let Some(text) = tell_patience(&array["patience"]) {
        println!("            {text}");
    }
    if let Some(text) = tell_integrity(&array["integrity"]) {
        println!("            {text}");
    }
    if let Some(text) = tell_doubts(array) {
        println!("            {text}");
    }
    print_growth(&array["growth"]);
    print_missing(array);
}

/// Which devices the members in use are, group by group, and how long a strip is.
pub fn print_devices(array: &Value) {
    for line in tell_devices(array) {
        println!("            {line}");
    }
}

fn tell_devices(array: &Value) -> Vec<String> {
    let groups = array["groups"].as_u64().unwrap_or(1);
    let mut lines = Vec::new();
    for group in 0..groups {
        let mut line = match (group, groups) {
            (0, 1) => "on".to_owned(),
            _ => format!("group {group}:"),
        };
        let used = array["members"].as_array().into_iter().flatten().filter_map(|member| {
            let is_of = member["group"].as_u64().unwrap_or(0) == group;
            let is_used = member["state"].as_str().is_none_or(|state| state == "active");
            member["device"].as_str().filter(|_| is_of && is_used)
        });
        let used: Vec<_> = used.collect();
        for device in if used.is_empty() { &["no device"] } else { &*used } {
            if line.len() + 1 + device.len() > LINE_MAX {
                lines.push(std::mem::replace(&mut line, " ".into()));
            }
            line += &format!(" {device}");
        }
        lines.push(line);
    }
    let strip = array["strip_bytes"].as_u64().filter(|_| array["level"] != 1);
    lines.extend(strip.map(|bytes| format!("in strips of {}", size(bytes))));
    lines
}

/// What a member would take with it before a log has made all parity anew.
fn tell_doubts(array: &Value) -> Option<String> {
    let blocks = array["doubted_blocks"].as_u64().filter(|blocks| *blocks > 0)?;
    Some(format!(
        "suspect parity beside {} blocks after an unclean shutdown: until it is written again, a \
         member that is lost takes what it holds there with it",
        count(blocks)
    ))
}

fn print_growth(growth: &Value) {
    let number = |field: &str| growth[field].as_u64();
    if let (Some(before), Some(done), Some(rows), Some(after)) =
        (number("members_before"), number("rows_done"), number("rows"), number("size_bytes_after"))
    {
        let (percent, after) = (done * 100 / rows.max(1), size(after));
        println!("            growing from {before} members to {after}: {percent} %");
    }
}

/// Of how much a scrub knows the checksums, where there is an integrity region.
fn tell_integrity(integrity: &Value) -> Option<String> {
    let number = |field: &str| integrity[field].as_u64();
    let (signed, regions) = (number("regions_signed")?, number("regions")?);
    Some(format!("integrity {} % signed", signed * 100 / regions.max(1)))
}

/// How long members are waited for, where others can answer for them.
fn tell_patience(patience: &Value) -> Option<String> {
    patience.as_object()?;
    let limit = |field: &str| patience[field].as_u64();
    let seconds = |millis: u64| format!("{} s", millis as f64 / 1000.0);
    let read = match limit("read_ms") {
        Some(millis) => format!("reads are reconstructed after {} at most", seconds(millis)),
        None => "late reads are not reconstructed".to_owned(),
    };
    let deadline =
        limit("deadline_ms").map(|millis| format!("{} without an answer", seconds(millis)));
    let late = limit("late_max").filter(|_| limit("read_ms").is_some());
    let late = late.map(|times| format!("{times} timeouts in 10 min"));
    let causes: Vec<String> = deadline.into_iter().chain(late).collect();
    let end = match causes.is_empty() {
        true => "no member fails for being slow".to_owned(),
        false => format!("a member fails after {}", causes.join(", or ")),
    };
    Some(format!("{read}; {end}"))
}

/// Until then a drive without an answer is nothing to tell of.
const SILENT_MS: u64 = 1000;

/// What a member did that does not answer in time.
fn tell_slow(member: &Value) -> Option<String> {
    let count = |field: &str| member[field].as_u64().unwrap_or(0);
    let silent_ms = count("unanswered_ms");
    if count("slow_reads") == 0 && member["is_given_up"] != true && silent_ms < SILENT_MS {
        return None;
    }
    let typical = member["typical_read_us"].as_u64();
    let typical = typical.map(|micros| format!("; a read typically takes {micros} us"));
    let mut state = if member["is_slow"] == true { ", read around now" } else { "" }.to_owned();
    if silent_ms >= SILENT_MS {
        state += &format!(", no answer for {:.0} s", silent_ms as f64 / 1e3);
    }
    Some(format!(
        "member {} ({}): {} slow reads, {} of them late, {} reads reconstructed{state}; slow {} times \
         and {} timeouts in 10 min{}",
        member["role"],
        text(&member["device"]),
        count("slow_reads"),
        count("late_reads"),
        count("reads_by_peers"),
        count("slow_spells"),
        count("late_spells"),
        typical.unwrap_or_default()
    ))
}

/// Operations of a member that failed, by kind.
fn tell_errors(member: &Value) -> Option<String> {
    let kinds = ["read", "write", "flush", "checksum", "timeout"];
    let count = |kind: &str| member["errors"][kind].as_u64().filter(|count| *count > 0);
    let told: Vec<String> =
        kinds.iter().filter_map(|kind| Some(format!("{kind} {}", count(kind)?))).collect();
    let device = text(&member["device"]);
    (!told.is_empty())
        .then(|| format!("member {} ({device}): errors: {}", member["role"], told.join(", ")))
}

/// How stripes lie on several groups, on more members than they have strips, or on members that
/// differ.
fn spread(array: &Value) -> String {
    if let Some(groups) = array["groups"].as_u64().filter(|groups| *groups > 1) {
        return format!(" in {groups} groups");
    }
    if let Some(weights) = array["weights"].as_array() {
        let weights: Vec<String> = weights.iter().map(ToString::to_string).collect();
        return format!(" striped by weights {}", weights.join(":"));
    }
    let declustered = &array["declustered"];
    let Some(width) = declustered["width"].as_u64() else { return String::new() };
    let (free, all) = (&declustered["spares_free"], &declustered["spares"]);
    format!(" in stripes of {width}, {free} of {all} distributed spares free")
}

pub(super) fn print_missing(array: &Value) {
    for member in array["members"].as_array().into_iter().flatten() {
        if member["state"] != "active" {
            println!(
                "            member {} (group {}): {}{}",
                member["role"],
                member["group"],
                text(&member["state"]),
                member["device"].as_str().map(|name| format!(", {name}")).unwrap_or_default()
            );
        }
        for text in tell_slow(member).into_iter().chain(tell_errors(member)) {
            println!("            {text}");
        }
        let stand_in = &member["stand_in"];
        if let Some(slot) = stand_in["slot"].as_u64() {
            println!(
                "            member {}: distributed spare {slot} stands in for it, {} %",
                member["role"],
                percent_filled(stand_in)
            );
        }
        let filling = &member["filling"];
        if let Some(device) = filling["device"].as_str() {
            println!(
                "            member {}: {device} takes its place, {} %",
                member["role"],
                percent_filled(filling)
            );
        }
    }
    for spare in array["spares"].as_array().into_iter().flatten() {
        println!("            spare {}", text(&spare["device"]));
    }
    let lost = |field: &str| array["lost"][field].as_u64().unwrap_or(0);
    if lost("bytes") > 0 {
        println!("            lost: {} ranges, {}", lost("ranges"), size(lost("bytes")));
    }
}

fn percent_filled(progress: &Value) -> u64 {
    let rows = |field: &str| progress[field].as_u64().unwrap_or(0);
    (rows("rows_done") * 100).checked_div(rows("rows")).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integrity_says_how_much_is_signed_and_nothing_without_a_region() {
        let integrity = json!({ "regions_signed": 7, "regions": 8 });
        assert_eq!(tell_integrity(&integrity).as_deref(), Some("integrity 87 % signed"));
        assert_eq!(tell_integrity(&Value::Null), None);
    }

    #[test]
    fn devices_are_told_group_by_group_and_long_lists_in_several_lines() {
        let of = |groups: u64, names: &[&str]| {
            let each = names.len() as u64 / groups;
            let member =
                |(at, name): (usize, &&str)| json!({ "group": at as u64 / each, "device": name });
            let members: Vec<Value> = names.iter().enumerate().map(member).collect();
            tell_devices(&json!({
                "level": 10, "groups": groups, "strip_bytes": 65_536, "members": members,
            }))
        };
        let told = of(2, &["/dev/sda", "/dev/sdb", "/dev/sdc", "/dev/sdd"]);
        let expected =
            ["group 0: /dev/sda /dev/sdb", "group 1: /dev/sdc /dev/sdd", "in strips of 64 KiB"];
        assert_eq!(told, expected);
        let long = of(1, &["/dev/disk/by-id/a-name-that-goes-on-for-a-while"; 4]);
        assert_eq!(long.len(), 5, "{long:?}");
        assert!(long[0].starts_with("on /dev") && long[1].starts_with("  /dev"), "{long:?}");
        let lost = json!({ "groups": 1, "level": 1, "members": [{ "group": 0, "device": null }] });
        assert_eq!(tell_devices(&lost), ["on no device"]);
        let failed = json!({ "device": "/dev/sda", "group": 0, "state": "failed" });
        assert_eq!(tell_devices(&json!({ "level": 1, "members": [failed] })), ["on no device"]);
    }

    #[test]
    fn patience_says_who_answers_a_late_read_and_who_is_given_up() {
        let told = |read: Value, deadline: Value, late: Value| {
            let patience = json!({ "read_ms": read, "deadline_ms": deadline, "late_max": late });
            tell_patience(&patience).unwrap()
        };
        assert_eq!(
            told(2000.into(), 30_000.into(), 8.into()),
            "reads are reconstructed after 2 s at most; a member fails after 30 s without an \
             answer, or 8 timeouts in 10 min"
        );
        let quick = told(250.into(), Value::Null, Value::Null);
        assert_eq!(
            quick,
            "reads are reconstructed after 0.25 s at most; no member fails for being slow"
        );
        let hung = told(Value::Null, 500.into(), 8.into());
        assert!(hung.ends_with("fails after 0.5 s without an answer"), "{hung}");
        assert_eq!(tell_patience(&Value::Null), None, "of an array without redundancy");
    }

    #[test]
    fn a_member_that_was_never_slow_has_no_line() {
        let member = |slow: u64, silent_ms: u64| {
            tell_slow(&json!({
                "role": 2, "device": "sdd", "slow_reads": slow, "late_reads": 3,
                "reads_by_peers": 40, "slow_spells": 5, "late_spells": 2, "is_slow": true,
                "typical_read_us": 812, "unanswered_ms": silent_ms,
            }))
        };
        assert_eq!(member(0, 900), None);
        assert!(member(0, 3_000).unwrap().contains("no answer for 3 s"), "to a write");
        let text = "member 2 (sdd): 9 slow reads, 3 of them late, 40 reads reconstructed, read \
                    around now, no answer for 14 s; slow 5 times and 2 timeouts in 10 min; a read \
                    typically takes 812 us";
        assert_eq!(member(9, 14_200).as_deref(), Some(text));
    }
}
