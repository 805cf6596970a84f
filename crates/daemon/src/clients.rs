//! The clients of a served volume: their memory budget, and their status.

use crate::meminfo;
use headpond_api::answers::{BlockDeviceStatus, ClientStatus, ServerStatus};
use headpond_nbd::limits::{Limits, MEMORY_BYTES_MIN};
use headpond_nbd::server::{ConnectionReport, ServerReport};
use headpond_volume::{CLIENT_MEMORY, ClientMemory};

/// The default client memory is at most this part of the machine's memory.
const SHARE_OF_MACHINE: u64 = 8;

const _: () = assert!(CLIENT_MEMORY.0.0 >= MEMORY_BYTES_MIN);

/// The memory budget of all clients' requests, in bytes.
pub fn memory_bytes(setting: ClientMemory) -> u64 {
    let machine_bytes = meminfo::total_bytes();
    setting.0.map_or_else(|| memory_on_machine_of(machine_bytes), |size| size.bytes())
}

fn memory_on_machine_of(machine_bytes: Option<u64>) -> u64 {
    let share = machine_bytes.map_or(u64::MAX, |bytes| bytes / SHARE_OF_MACHINE);
    Limits::default().memory_bytes_max.min(share).max(MEMORY_BYTES_MIN)
}

pub fn connections(report: &ServerReport) -> Vec<ClientStatus> {
    report.connections.iter().map(connection).collect()
}

fn connection(client: &ConnectionReport) -> ClientStatus {
    ClientStatus {
        peer: client.peer.clone(),
        export: client.export.clone(),
        age_s: client.age.as_secs_f64(),
        idle_s: client.idle.as_secs_f64(),
        in_flight: client.in_flight as u64,
        in_flight_bytes: client.in_flight_bytes,
        on_thread: client.on_thread,
        requests: client.totals.requests,
        read_bytes: client.totals.read_bytes,
        written_bytes: client.totals.written_bytes,
        errors: client.totals.errors,
    }
}

/// All of them together, since the volume is served.
pub fn server(report: &ServerReport, block_devices: Vec<BlockDeviceStatus>) -> ServerStatus {
    ServerStatus {
        threads: report.threads as u64,
        moves: report.moves,
        memory_held_bytes: report.memory_held_bytes,
        memory_bytes_max: report.memory_bytes_max,
        waiting_for_memory: report.waiting_for_memory as u64,
        accepted: report.accepted,
        refused: report.refused,
        gave_way: report.gave_way,
        stalled: report.stalled,
        failed_handshakes: report.failed_handshakes,
        requests_dropped: report.totals.dropped,
        block_devices,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::Size;

    #[test]
    fn clients_have_a_gibibyte_or_an_eighth_of_a_small_machine_or_what_is_set() {
        assert_eq!(memory_on_machine_of(None), 1 << 30);
        assert_eq!(memory_on_machine_of(Some(64 << 30)), 1 << 30);
        assert_eq!(memory_on_machine_of(Some(4 << 30)), 512 << 20);
        assert_eq!(memory_on_machine_of(Some(256 << 20)), 64 << 20);
        assert_eq!(memory_bytes(ClientMemory(Some(Size(96 << 20)))), 96 << 20);
    }
}
