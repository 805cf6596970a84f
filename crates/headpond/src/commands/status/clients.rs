//! The clients of a served volume in `headpond status`.

use super::text;
use headpond_report::{count, duration, size};
use serde_json::Value;

/// Connections that are shown each in a line; `--json` has all.
const SHOWN_MAX: usize = 8;

pub fn print_clients(status: &Value) {
    lines(status).iter().for_each(|line| println!("{line}"));
}

fn lines(status: &Value) -> Vec<String> {
    let server = &status["server"];
    let mut clients: Vec<&Value> = status["clients"].as_array().into_iter().flatten().collect();
    let held = size(bytes(server, "memory_held_bytes"));
    let most = size(bytes(server, "memory_bytes_max"));
    let mut lines = vec![format!("  clients   {}, with {held} of {most} under way", clients.len())];
    let waiting = bytes(server, "waiting_for_memory");
    if waiting > 0 {
        lines.push(format!("            {} wait for memory", count(waiting)));
    }
    // Those that hold most.
    clients.sort_by_key(|client| std::cmp::Reverse(bytes(client, "in_flight_bytes")));
    lines.extend(clients.iter().take(SHOWN_MAX).map(|client| line(client)));
    if let Some(more @ 1..) = clients.len().checked_sub(SHOWN_MAX) {
        lines.push(format!("            and {more} more"));
    }
    lines.extend(losses(server));
    lines
}

fn line(client: &Value) -> String {
    let export = client["export"].as_str().unwrap_or("(handshake)");
    format!(
        "            {}: {export}, connected for {}, {} requests, {} with {} under way",
        text(&client["peer"]),
        seconds(client, "age_s"),
        count(bytes(client, "requests")),
        count(bytes(client, "in_flight")),
        size(bytes(client, "in_flight_bytes")),
    )
}

/// Connections and requests that were not served to the end, and why.
fn losses(server: &Value) -> Option<String> {
    let what = [
        ("refused", "connections refused, for all places were taken"),
        ("gave_way", "lost their place to others before they asked for anything"),
        ("stalled", "cut off for keeping memory that others waited for"),
        ("requests_dropped", "requests dropped of clients that had left"),
    ];
    let counted = what.map(|(field, words)| (bytes(server, field), words));
    let told = counted.iter().filter(|(times, _)| *times > 0);
    let told: Vec<String> =
        told.map(|(times, words)| format!("{} {words}", count(*times))).collect();
    (!told.is_empty()).then(|| format!("            {}", told.join("; ")))
}

fn bytes(of: &Value, field: &str) -> u64 {
    of[field].as_u64().unwrap_or(0)
}

fn seconds(of: &Value, field: &str) -> String {
    duration((of[field].as_f64().unwrap_or(0.0) * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn client(peer: &str, held_bytes: u64) -> Value {
        json!({
            "peer": peer, "export": "hv0", "age_s": 2.0, "requests": 1200, "in_flight": 3,
            "in_flight_bytes": held_bytes,
        })
    }

    #[test]
    fn clients_that_hold_most_are_shown_first_and_the_rest_is_counted() {
        let mut clients: Vec<Value> = (0..9).map(|at| client("small", at << 10)).collect();
        clients.push(client("large", 12 << 20));
        let server = json!({ "memory_held_bytes": 13 << 20, "memory_bytes_max": 1 << 30 });
        let lines = lines(&json!({ "clients": clients, "server": server }));
        assert_eq!(lines[0], "  clients   10, with 13 MiB of 1 GiB under way");
        let large = "large: hv0, connected for 2 s, 1,200 requests, 3 with 12 MiB under way";
        assert_eq!(lines[1].trim(), large);
        assert_eq!((lines.len(), lines[9].trim()), (10, "and 2 more"));
    }

    #[test]
    fn what_was_not_served_is_told_with_its_reason() {
        let server = json!({ "refused": 2, "gave_way": 0, "requests_dropped": 276 });
        let expected = "2 connections refused, for all places were taken; \
                        276 requests dropped of clients that had left";
        assert_eq!(losses(&server).unwrap().trim(), expected);
        assert_eq!(losses(&json!({ "refused": 0 })), None);
    }
}
