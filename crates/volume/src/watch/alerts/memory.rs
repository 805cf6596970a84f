//! The condition of a process that has no memory to take.

use super::{Alert, AlertKind, Risk};
use headpond_block::memory::MemoryState;

pub(crate) fn of_memory(volume: &str, memory: &MemoryState) -> Option<Alert> {
    const MIB: u64 = 1 << 20;
    let MemoryState { reserve_bytes, reserve_used_bytes, failures, .. } = memory;
    memory.is_short.then(|| Alert {
        kind: AlertKind::MemoryShort,
        cause: format!(
            "the system gave this daemon no memory ({failures} times since it was started): {} of its reserve of {} \
             MiB are in use, and requests wait for five seconds before they fail for want of memory",
            reserve_used_bytes.div_ceil(MIB),
            reserve_bytes / MIB
        ),
        at_risk: Risk::none("nothing that was answered; clients may see errors"),
        action: format!(
            "end other programs, or let it have more (`ulimit -v`, `LimitAS=`, `vm.overcommit_ratio`); a smaller \
             cache or another eviction takes less: `headpond stats {volume}` says what for"
        ),
    })
}
