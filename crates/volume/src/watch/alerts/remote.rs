//! Storage behind a network that does not answer, has shrunk, or has given its lock away.

use super::{Alert, AlertKind, Risk};
use headpond_raid::MemberStatus;

/// The condition of storage behind a network. One whose lock is lost is the volume's condition.
pub(super) fn of_remote(array: &str, member: &MemberStatus) -> Option<Alert> {
    let remote = member.remote.as_ref().filter(|remote| remote.lost.is_none())?;
    let device = member.device.as_deref().unwrap_or("DEVICE");
    let of = format!("member {} ({device}) of array {array}", member.role);
    let (cause, at_risk, action) = match remote.waiting_s {
        Some(waiting) => (
            format!("{of}: its cluster has not answered for {waiting} s"),
            "nothing: requests that need it wait, and what the cache can answer goes on",
            "`ceph -s` shows what the cluster lacks; requests go on by themselves when it has recovered",
        ),
        None if remote.size_bytes < member.data_bytes => (
            format!(
                "{of}: has shrunk to {} bytes, and the array uses {}",
                remote.size_bytes, member.data_bytes
            ),
            "what lay beyond its end",
            "make it as large as it was (`rbd resize`), then restore that part from a backup",
        ),
        None => return None,
    };
    let at_risk = Risk::none(at_risk);
    Some(Alert { kind: AlertKind::SlowMember, cause, at_risk, action: action.into() })
}

/// The condition of a volume whose storage has given its lock to another client.
pub(super) fn of_lock(volume: &str, device: &str, reason: &str) -> Alert {
    Alert {
        kind: AlertKind::OwnershipLost,
        cause: format!("the lock of {device} is lost ({reason}): all I/O is stopped here"),
        at_risk: Risk::none(
            "nothing that was acknowledged: dirty data stays in the cache, but the device lacks it, and \
             another client may have written there",
        ),
        action: format!(
            "find and stop the other client (of an image: `rbd status`, `rbd lock ls`); `headpond \
             stop {volume}`, then `headpond serve {volume}` locks it again and writes the dirty data"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::{DeviceErrors, RemoteStatus};
    use headpond_raid::Answers;
    use headpond_raid::superblock::RoleState;
    use uuid::Uuid;

    #[test]
    fn storage_is_told_of_while_it_is_silent_or_too_small_and_not_otherwise() {
        let told = |remote: RemoteStatus| {
            let member = MemberStatus {
                role: 0,
                group: 0,
                uuid: Uuid::nil(),
                device: Some("rbd:p/i".into()),
                state: RoleState::Active,
                data_bytes: 4096,
                answers: Answers::default(),
                errors: DeviceErrors::default(),
                last_error: None,
                remote: Some(remote),
                filling: None,
                stand_in: None,
            };
            of_remote("v", &member).map(|alert| alert.cause)
        };
        let fine = RemoteStatus { waiting_s: None, size_bytes: 4096, lost: None };
        assert_eq!(told(fine.clone()), None);
        let silent = told(RemoteStatus { waiting_s: Some(42), ..fine.clone() }).unwrap();
        assert!(silent.ends_with("(rbd:p/i) of array v: its cluster has not answered for 42 s"));
        let small = told(RemoteStatus { size_bytes: 512, ..fine.clone() }).unwrap();
        assert!(small.ends_with("has shrunk to 512 bytes, and the array uses 4096"), "{small}");
        let lost = RemoteStatus { lost: Some("why".into()), waiting_s: Some(1), ..fine };
        assert_eq!(told(lost), None, "the volume tells that");
    }
}
