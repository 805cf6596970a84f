//! The clients of a served volume in `headpond status`.

use headpond_api::answers::{ClientStatus, ServerStatus, Status};
use headpond_report::{count, duration, size};
use std::cmp::Reverse;

/// Connections that have a line each; `--json` has all.
const SHOWN_MAX: usize = 8;

pub fn print_clients(status: &Status) {
    let Some(server) = &status.server else { return };
    lines(&status.clients, server).iter().for_each(|line| println!("{line}"));
}

fn lines(clients: &[ClientStatus], server: &ServerStatus) -> Vec<String> {
    let (held, most) = (size(server.memory_held_bytes), size(server.memory_bytes_max));
    let mut lines = vec![format!("  clients   {}, with {held} of {most} in flight", clients.len())];
    if server.waiting_for_memory > 0 {
        lines.push(format!("            {} wait for memory", count(server.waiting_for_memory)));
    }
    // Those with the most memory.
    let mut sorted: Vec<&ClientStatus> = clients.iter().collect();
    sorted.sort_by_key(|client| Reverse(client.in_flight_bytes));
    lines.extend(sorted.iter().take(SHOWN_MAX).map(|client| line(client)));
    if let Some(more @ 1..) = clients.len().checked_sub(SHOWN_MAX) {
        lines.push(format!("            and {more} more"));
    }
    lines.extend(losses(server));
    lines
}

fn line(client: &ClientStatus) -> String {
    format!(
        "            {}: {}, connected for {}, {} requests, {} with {} in flight",
        client.peer,
        client.export.as_deref().unwrap_or("(handshake)"),
        duration((client.age_s * 1e9) as u64),
        count(client.requests),
        count(client.in_flight),
        size(client.in_flight_bytes),
    )
}

/// Connections and requests that were refused or dropped, and why.
fn losses(server: &ServerStatus) -> Option<String> {
    let counted = [
        (server.refused, "connections refused, all slots were taken"),
        (server.gave_way, "disconnected idle for newer ones"),
        (server.stalled, "disconnected for holding memory that others waited for"),
        (server.requests_dropped, "requests dropped of disconnected clients"),
    ];
    let told = counted.iter().filter(|(times, _)| *times > 0);
    let told: Vec<String> =
        told.map(|(times, words)| format!("{} {words}", count(*times))).collect();
    (!told.is_empty()).then(|| format!("            {}", told.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, in_flight_bytes: u64) -> ClientStatus {
        ClientStatus {
            peer: peer.into(),
            export: Some("hv0".into()),
            age_s: 2.0,
            idle_s: 0.0,
            in_flight: 3,
            in_flight_bytes,
            on_thread: false,
            requests: 1200,
            read_bytes: 0,
            written_bytes: 0,
            errors: 0,
        }
    }

    fn server() -> ServerStatus {
        ServerStatus {
            threads: 1,
            moves: 0,
            memory_held_bytes: 13 << 20,
            memory_bytes_max: 1 << 30,
            waiting_for_memory: 0,
            accepted: 10,
            refused: 0,
            gave_way: 0,
            stalled: 0,
            failed_handshakes: 0,
            requests_dropped: 0,
            block_devices: Vec::new(),
        }
    }

    #[test]
    fn clients_that_hold_most_are_shown_first_and_the_rest_is_counted() {
        let mut clients: Vec<ClientStatus> = (0..9).map(|at| client("small", at << 10)).collect();
        clients.push(client("large", 12 << 20));
        let lines = lines(&clients, &server());
        assert_eq!(lines[0], "  clients   10, with 13 MiB of 1 GiB in flight");
        let large = "large: hv0, connected for 2 s, 1,200 requests, 3 with 12 MiB in flight";
        assert_eq!(lines[1].trim(), large);
        assert_eq!((lines.len(), lines[9].trim()), (10, "and 2 more"));
    }

    #[test]
    fn what_was_not_served_is_told_with_its_reason() {
        let expected = "2 connections refused, all slots were taken; \
                        276 requests dropped of disconnected clients";
        let some = ServerStatus { refused: 2, requests_dropped: 276, ..server() };
        assert_eq!(losses(&some).unwrap().trim(), expected);
        assert_eq!(losses(&server()), None);
    }
}
