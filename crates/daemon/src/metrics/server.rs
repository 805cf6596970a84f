//! Clients, their memory, and block devices.

use super::exposition::Exposition;
use super::family::families;
use headpond_api::answers::{BlockDeviceStatus, ServerStatus, Status};

families! { "Clients and block devices":
    CLIENTS = Gauge "headpond_clients" []
        "Connections of clients.";
    ACCEPTED = Counter "headpond_connections_accepted_total" []
        "Connections that were accepted.";
    REFUSED = Counter "headpond_connections_refused_total" []
        "Connections that were refused, as all slots were taken.";
    HANDSHAKES = Counter "headpond_connection_handshakes_failed_total" []
        "Handshakes that failed.";
    CLOSED = Counter "headpond_connections_closed_total" ["reason"]
        "Connections closed by the daemon: `gave_way` (idle, for a new one), `stalled` (it held \
         memory that others waited for).";
    DROPPED = Counter "headpond_client_requests_dropped_total" []
        "Requests of clients that had disconnected.";
    MEMORY = Gauge "headpond_client_memory_bytes" []
        "Memory that requests of clients hold.";
    MEMORY_MAX = Gauge "headpond_client_memory_limit_bytes" []
        "The most that they may hold (`client-memory`).";
    WAITING = Gauge "headpond_clients_waiting_for_memory" []
        "Connections whose next request waits for memory.";
    THREADS = Gauge "headpond_connection_threads" []
        "Threads for busy connections.";
    MOVES = Counter "headpond_connection_moves_total" []
        "Moves of connections to one of these.";
    DEVICE_REQUESTS = Counter "headpond_block_device_requests_total" ["device"]
        "Requests of a block device of the kernel (ublk).";
    DEVICE_BYTES = Counter "headpond_block_device_request_bytes_total" ["device", "op"]
        "Bytes of its reads and writes.";
    DEVICE_ERRORS = Counter "headpond_block_device_errors_total" ["device"]
        "Requests of it that failed.";
}

pub fn add(out: &mut Exposition, status: &Status) {
    out.add(&CLIENTS, &[], status.clients.len());
    let Some(server) = &status.server else { return };
    let ServerStatus { accepted, refused, gave_way, stalled, failed_handshakes, .. } = *server;
    out.add(&ACCEPTED, &[], accepted);
    out.add(&REFUSED, &[], refused);
    out.add(&HANDSHAKES, &[], failed_handshakes);
    out.add(&CLOSED, &["gave_way"], gave_way);
    out.add(&CLOSED, &["stalled"], stalled);
    out.add(&DROPPED, &[], server.requests_dropped);
    out.add(&MEMORY, &[], server.memory_held_bytes);
    out.add(&MEMORY_MAX, &[], server.memory_bytes_max);
    out.add(&WAITING, &[], server.waiting_for_memory);
    out.add(&THREADS, &[], server.threads);
    out.add(&MOVES, &[], server.moves);
    server.block_devices.iter().for_each(|device| add_device(out, device));
}

fn add_device(out: &mut Exposition, device: &BlockDeviceStatus) {
    let name = device.link.to_string_lossy();
    out.add(&DEVICE_REQUESTS, &[&name], device.requests);
    out.add(&DEVICE_BYTES, &[&name, "read"], device.read_bytes);
    out.add(&DEVICE_BYTES, &[&name, "write"], device.written_bytes);
    out.add(&DEVICE_ERRORS, &[&name], device.errors);
}
