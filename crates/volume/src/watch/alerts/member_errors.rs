//! Members whose operations failed. Failed reads were reconstructed, unseen by clients.
//!
//! Reported until the statistics are reset: such a device is failing, or was truncated.

use super::slow_member::of_core;
use super::{Alert, AlertKind, Risk};
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayStatus, Level, MemberStatus};

/// The conditions of the members of an array that are in use; `core` names it where there are
/// several.
pub(crate) fn of_errors(volume: &str, core: Option<&str>, array: &ArrayStatus) -> Vec<Alert> {
    let is_told =
        |member: &&MemberStatus| member.state == RoleState::Active && member.errors.total() > 0;
    array.members.iter().filter(is_told).map(|member| alert(volume, core, array, member)).collect()
}

fn alert(volume: &str, core: Option<&str>, array: &ArrayStatus, member: &MemberStatus) -> Alert {
    let device = member.device.as_deref().unwrap_or("DEVICE");
    let cause =
        format!("member {} ({device}) of array {}: {}", member.role, array.name, member.errors);
    let at_risk = match array.level {
        Level::Raid0 => "the data of the failed requests; their clients received errors",
        _ => "nothing while the other members are readable; redundancy is reduced",
    };
    let look = format!("check the device (`dmesg`, `smartctl -a {device}`, its size)");
    let exchange = match array.level {
        Level::Raid0 => String::new(),
        _ => format!(", `headpond array replace {volume} {device} --with DEVICE{}`", of_core(core)),
    };
    let action = format!("{look}{exchange}; `headpond stats {volume} --reset` clears this alert");
    Alert { kind: AlertKind::MemberErrors, cause, at_risk: Risk::none(at_risk), action }
}
