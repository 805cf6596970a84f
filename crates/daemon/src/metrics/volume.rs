//! The volume as a whole: its state, its alerts, its daemon.

use super::Served;
use super::exposition::Exposition;
use super::family::families;
use headpond_api::answers::Status;
use headpond_api::word;
use headpond_volume::{AlertKind, OwnerState};

families! { "The volume":
    SCRAPED = Gauge "headpond_scrape_success" []
        "1 if the figures of the volume could be had; 0 if not, and why is told by `headpond metrics`.";
    BUILD = Gauge "headpond_build_info" ["version"]
        "1, with the version of its daemon.";
    STATE = Gauge "headpond_volume_state" ["state"]
        "1 for the present state: `stopped`, `loading`, `serving`, `not_answering`.";
    LOADED = Gauge "headpond_volume_loaded_ratio" []
        "Share of the slice in hand that is read, while `loading`.";
    HEALTH = Gauge "headpond_volume_health" ["state"]
        "1 for the worst state of its arrays and devices: `healthy`, `errors`, `degraded`, `failed`.";
    SIZE = Gauge "headpond_volume_size_bytes" []
        "Size; of a volume that is not served as of its last stop.";
    ALERTS = Gauge "headpond_alerts" ["kind"]
        "Conditions that need the operator, by kind; 0 of kinds that are not present.";
    AT_RISK = Gauge "headpond_alert_at_risk_bytes" ["kind"]
        "Data that such conditions put at risk; 0 if none, or unknown.";
    LEFT_DIRTY = Gauge "headpond_volume_left_dirty_bytes" []
        "Dirty data in the cache of a volume that is not served, as of its last stop.";
    OWNER = Gauge "headpond_owner_state" ["state"]
        "1 for the present state of its ownership, with a heartbeat: `held`, `late`, `lost`, \
         `lock_lost`.";
    RESERVE = Gauge "headpond_memory_reserve_bytes" []
        "Memory of the daemon that is set aside for when the system has none.";
    RESERVE_USED = Gauge "headpond_memory_reserve_used_bytes" []
        "Used of it.";
    REFUSED_MEMORY = Counter "headpond_memory_refusals_total" []
        "Allocations of the daemon that the system refused.";
    SNAPSHOT = Gauge "headpond_snapshot_duration_seconds" []
        "Time that this scrape has taken of the thread that serves requests.";
}

const HEALTH_STATES: [&str; 4] = ["healthy", "errors", "degraded", "failed"];
const OWNER_STATES: [&str; 4] = ["held", "late", "lost", "lock_lost"];
const STATES: [&str; 4] = ["stopped", "loading", "serving", "not_answering"];

/// Of a volume that nothing could be found out about.
pub fn add_failure(out: &mut Exposition) {
    out.add(&SCRAPED, &[], false);
}

pub fn add(out: &mut Exposition, status: &Status, served: Option<&Served>) {
    out.add(&SCRAPED, &[], true);
    out.add_state(&STATE, &[], &STATES, &word(status.state));
    out.add_known(&SIZE, &[], status.size_bytes);
    add_alerts(out, status);
    if let Some(loading) = &status.loading {
        let progress = loading.loading.progress;
        let share = progress.read_bytes as f64 / progress.bytes.max(1) as f64;
        out.add(&LOADED, &[], share.min(1.0));
    }
    let Some(served) = served else {
        return out.add_known(&LEFT_DIRTY, &[], status.dirty_bytes());
    };
    out.add(&BUILD, &[env!("CARGO_PKG_VERSION")], 1_u64);
    out.add(&SNAPSHOT, &[], served.took.as_secs_f64());
    if let Some(health) = status.health {
        out.add_state(&HEALTH, &[], &HEALTH_STATES, &word(health));
    }
    if let Some(owner) = &status.owner {
        out.add_state(&OWNER, &[], &OWNER_STATES, owner_word(&owner.state));
    }
    if let Some(memory) = &status.memory {
        out.add(&RESERVE, &[], memory.reserve_bytes);
        out.add(&RESERVE_USED, &[], memory.reserve_used_bytes);
        out.add(&REFUSED_MEMORY, &[], memory.failures);
    }
}

fn add_alerts(out: &mut Exposition, status: &Status) {
    for kind in AlertKind::ALL {
        let of_kind = || status.alerts.iter().filter(|alert| alert.kind == kind);
        out.add(&ALERTS, &[&word(kind)], of_kind().count());
        let bytes: u64 = of_kind().map(|alert| alert.at_risk.bytes).sum();
        out.add(&AT_RISK, &[&word(kind)], bytes);
    }
}

fn owner_word(state: &OwnerState) -> &'static str {
    match state {
        OwnerState::Held => "held",
        OwnerState::Late => "late",
        OwnerState::Lost { .. } => "lost",
        OwnerState::LockLost { .. } => "lock_lost",
    }
}
