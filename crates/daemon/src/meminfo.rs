//! The machine's memory, as reported by the kernel.

use std::fs;
use std::sync::OnceLock;

/// Memory available to programs without swapping.
pub fn available_bytes() -> Option<u64> {
    bytes_of("MemAvailable:")
}

/// Total memory; read once.
pub fn total_bytes() -> Option<u64> {
    static TOTAL_BYTES: OnceLock<Option<u64>> = OnceLock::new();
    *TOTAL_BYTES.get_or_init(|| bytes_of("MemTotal:"))
}

fn bytes_of(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}
