//! The members of an array, and the errors of every device.

use crate::metrics::exposition::Exposition;
use crate::metrics::family::families;
use headpond_api::word;
use headpond_raid::MemberStatus;
use headpond_raid::superblock::RoleState;
use headpond_volume::{CACHE_COPIES, DeviceReport, DeviceRole};

families! { "Members and devices":
    INFO = Gauge "headpond_member_info" ["core", "member", "device"]
        "1, with the device of a member. `member` is its role in the array.";
    STATE = Gauge "headpond_member_state" ["core", "member", "state"]
        "1 for the present state: `active`, `failed`, `missing`, `rebuilding`.";
    SLOW = Gauge "headpond_member_slow" ["core", "member"]
        "1 while a read takes so long that others are reconstructed.";
    OLDEST = Gauge "headpond_member_oldest_request_seconds" ["core", "member"]
        "Age of its oldest operation in flight; the timeout at most.";
    TYPICAL = Gauge "headpond_member_typical_read_seconds" ["core", "member"]
        "Median time of its newest reads, if they take any.";
    SLOW_READS = Counter "headpond_member_slow_reads_total" ["core", "member"]
        "Reads that took much longer than usual in the array.";
    TIMED_OUT = Counter "headpond_member_timed_out_reads_total" ["core", "member"]
        "Of these, reads that exceeded the read timeout.";
    RECONSTRUCTED = Counter "headpond_member_reconstructed_reads_total" ["core", "member"]
        "Reads that were reconstructed from its peers.";
    ERRORS = Counter "headpond_device_errors_total" ["role", "core", "member", "device", "error"]
        "Failed operations of a device: `read`, `write`, `flush`, `checksum`, `timeout`. `role` is \
         `member`, `spare`, `journal`, `cache`, `cache_copy`, `cache_spare` or `tier`. They are kept \
         over restarts, until `headpond clear`.";
}

pub const STATES: [&str; 4] = ["active", "failed", "missing", "rebuilding"];

pub fn state(member: &MemberStatus) -> &'static str {
    match (&member.filling, member.state) {
        (Some(_), _) => "rebuilding",
        (None, RoleState::Active) => "active",
        (None, RoleState::Failed) => "failed",
        (None, RoleState::Missing) => "missing",
    }
}

pub fn add(out: &mut Exposition, core: &str, member: &MemberStatus) {
    let role = member.role.to_string();
    let of = &[core, &role][..];
    out.add(&INFO, &[core, &role, member.device.as_deref().unwrap_or_default()], 1_u64);
    out.add_state(&STATE, of, &STATES, state(member));
    let answers = &member.answers;
    out.add(&SLOW, of, answers.is_slow);
    out.add(&OLDEST, of, answers.unanswered_ms as f64 / 1e3);
    out.add_known(&TYPICAL, of, answers.typical_read_us.map(|us| us as f64 / 1e6));
    out.add(&SLOW_READS, of, answers.slow_reads);
    out.add(&TIMED_OUT, of, answers.timed_out_reads);
    out.add(&RECONSTRUCTED, of, answers.reconstructed_reads);
}

/// Of any device of a volume with this first core.
pub fn add_errors(out: &mut Exposition, first: &str, device: &DeviceReport) {
    let core = match device.role {
        DeviceRole::Cache | DeviceRole::Tier => "",
        DeviceRole::CacheCopy | DeviceRole::CacheSpare => CACHE_COPIES,
        _ => device.core.as_deref().unwrap_or(first),
    };
    let (role, member) = (word(device.role), device.number.map(|it| it.to_string()));
    let uuid = device.uuid.to_string();
    let name = device.device.as_deref().unwrap_or(&uuid);
    for (kind, errors) in device.errors.by_kind() {
        let member = member.as_deref().unwrap_or_default();
        out.add(&ERRORS, &[&role, core, member, name, &word(kind)], errors);
    }
}
