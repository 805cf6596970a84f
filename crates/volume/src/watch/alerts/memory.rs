//! The condition of a process that the system denies memory.

use super::{Alert, AlertKind, Risk};
use headpond_block::memory::MemoryState;

pub(crate) fn of_memory(volume: &str, memory: &MemoryState) -> Option<Alert> {
    const MIB: u64 = 1 << 20;
    let MemoryState { reserve_bytes, reserve_used_bytes, failures, .. } = memory;
    memory.is_short.then(|| Alert {
        kind: AlertKind::MemoryShort,
        cause: format!(
            "the system denied this daemon memory ({failures} times since its start): {} MiB of its reserve of {} \
             MiB are in use, and requests fail after waiting 5 s for memory",
            reserve_used_bytes.div_ceil(MIB),
            reserve_bytes / MIB
        ),
        at_risk: Risk::none("no acknowledged data; clients may see errors"),
        action: format!(
            "stop other programs, or raise its limit (`ulimit -v`, `LimitAS=`, `vm.overcommit_ratio`); a smaller \
             cache or another eviction policy uses less: `headpond stats {volume}` shows the use"
        ),
    })
}
