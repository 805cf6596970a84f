//! What a signature takes of memory, whatever the trace. Alone in its program: it counts what
//! everything here allocates.

use headpond_advise::SignatureBuilder;
use headpond_testkit::CountedMemory;
use headpond_trace::{Names, Op, TraceRecord};
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static MEMORY: CountedMemory = CountedMemory::new();

static ALONE: Mutex<()> = Mutex::new(());

const LIMIT_BYTES: usize = 256 << 20;

/// Everything that could pile up: processes, devices, addresses, sizes, runs that meet, requests
/// that never complete, and hours in which nothing comes.
fn hostile(n: u64) -> TraceRecord {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = mixed ^ mixed >> 32;
    let op = if mixed & 1 == 0 { Op::Write } else { Op::Read };
    let (offset, length) = match n % 8 {
        // Two runs of which one comes to where the other began, again and again.
        0 | 1 => (n / 1024 * (1 << 24) + (n % 2) * (1 << 21) + n % 1024 / 8 * 16384, 16384),
        2 => (mixed >> 1, 1 + mixed % 65_536),
        3 => (mixed >> 16 << 12, 512 << (mixed % 12)),
        _ => (mixed >> 20 << 12, 4096),
    };
    let mut record =
        TraceRecord::new(n * 10_000 + n / 100_000 * 3_600_000_000_000, op, offset, length);
    record.process = if n % 8 < 2 { 7 } else { (mixed >> 30) as u32 };
    record.device = if n % 8 < 2 { 0 } else { (mixed >> 5) as u16 % 4096 };
    let takes_ns = if n.is_multiple_of(3) { u64::MAX } else { mixed >> (20 + n / 512 % 30) };
    record.completed_ns = Some(record.issued_ns.saturating_add(takes_ns));
    record
}

#[test]
fn a_long_trace_of_anything_fits_in_256_mib_and_does_not_grow() {
    fits_and_does_not_grow(750_000);
}

fn fits_and_does_not_grow(requests: u64) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    MEMORY.forget_peak();
    let before = MEMORY.now_bytes();
    let mut builder = SignatureBuilder::new();
    let mut halfway = 0;
    for n in 0..requests {
        builder.add(&hostile(n));
        if n == requests / 2 {
            halfway = MEMORY.now_bytes() - before;
        }
    }
    let held = MEMORY.now_bytes() - before;
    let signature = builder.finish(&Names::default());
    assert_eq!(signature.requests, requests);
    let peak = MEMORY.peak_bytes() - before;
    println!("{halfway} bytes halfway, {held} at the end, {peak} at most");
    assert!(peak < LIMIT_BYTES, "{peak} bytes");
    assert!(held < halfway + halfway / 4, "{halfway} bytes halfway, {held} at the end");
}

/// Minutes of analysis, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn an_endless_trace_of_anything_fits_in_256_mib_and_does_not_grow() {
        fits_and_does_not_grow(3_000_000);
    }
}
