//! The condition of an array on which writes failed.

use super::{Alert, AlertKind, CacheRole, Risk};
use crate::watch::status::CacheStatus;
use headpond_cache::ErrorStats;
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayStatus, DeviceErrors, MemberStatus};

/// The condition of an array on which writes failed; `core` names it where there are several.
pub(crate) fn of_writes(
    volume: &str,
    core: Option<&str>,
    cache: &CacheStatus,
    errors: &ErrorStats,
    array: &ArrayStatus,
) -> Option<Alert> {
    let failed = errors.core_write + errors.core_flush;
    let place = core.map_or("the array".into(), |core| format!("the array of core {core}"));
    (failed > 0).then(|| Alert {
        kind: AlertKind::ArrayWriteErrors,
        cause: format!("{failed} writes or flushes of {place} failed{}", failing_members(&array.members)),
        at_risk: Risk::of_dirty(cache),
        action: format!(
            "make its members take writes again (`dmesg`; `df`, where one is a file); then {} shows \
             whether writes succeed, and `headpond clear {volume}` clears this alert",
            CacheRole::cache(volume).flush()
        ),
    })
}

/// The members that failed writes or flushes, and those that are failed or missing.
fn failing_members(members: &[MemberStatus]) -> String {
    let mut told = Vec::new();
    for member in members {
        let (role, device) = (member.role, member.device.as_deref().unwrap_or("no device"));
        let errors = DeviceErrors {
            write: member.errors.write,
            flush: member.errors.flush,
            ..DeviceErrors::default()
        };
        if errors.total() > 0 {
            let last = member.last_error.as_ref().map(|last| format!(" ({})", last.text));
            told.push(format!("member {role} ({device}): {errors}{}", last.unwrap_or_default()));
        } else if member.state != RoleState::Active {
            told.push(format!("member {role} ({device}) is not in use"));
        }
    }
    if told.is_empty() { String::new() } else { format!("; {}", told.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_raid::Answers;
    use uuid::Uuid;

    #[test]
    fn members_that_failed_writes_or_are_away_are_named() {
        let member = |role, write, state| MemberStatus {
            role,
            group: 0,
            uuid: Uuid::nil(),
            device: Some(format!("m{role}")),
            state,
            data_bytes: 0,
            answers: Answers::default(),
            errors: DeviceErrors { write, read: 7, ..DeviceErrors::default() },
            last_error: None,
            remote: None,
            filling: None,
            stand_in: None,
        };
        let active = RoleState::Active;
        let members =
            [member(0, 0, active), member(1, 19_443, active), member(2, 0, RoleState::Failed)];
        let told = "; member 1 (m1): 19443 write errors, member 2 (m2) is not in use";
        assert_eq!(failing_members(&members), told);
        assert_eq!(failing_members(&members[..1]), "");
    }
}
