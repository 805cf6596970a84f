//! The core by itself.

use crate::facts::CoreFacts;
use crate::model::Load;

/// One command to a drive that is answered from its memory, in ms.
const COMMAND_MS: f64 = 0.2;

/// Megabytes a second between a drive's memory and the host.
const INTERFACE_MB_S: f64 = 500.0;

/// One turn of a disk at 7200 rpm, in ms.
const TURN_MS: f64 = 8.33;

/// Requests that a drive can choose among.
const DRIVE_QUEUE: f64 = 32.0;

/// Writes that wait in a drive's memory to be sorted.
const DRIVE_CACHE_QUEUE: f64 = 1000.0;

/// A disk's mean service time falls with the fourth root of its queue.
const SORTING_EXPONENT: f64 = 0.25;

/// Spread of a disk's service time over its mean.
const SERVICE_SPREAD: f64 = 0.34;

/// Wait behind one other request, in service times: between constant (1/2) and exponential (1).
const RESIDUAL: f64 = 0.75;

/// Of the reads of a sequential read-modify-write, so many miss the drive's memory.
const TRACK_MISSES: f64 = 0.05;

/// Expected maximum of 1, 2, ... standard normal deviates.
const SLOWEST_OF: [f64; 8] = [0.0, 0.56, 0.85, 1.03, 1.16, 1.27, 1.35, 1.42];

/// Rates of a core without a cache.
#[derive(Clone, Copy, Debug)]
pub struct CoreModel<'a> {
    facts: &'a CoreFacts,
}

impl<'a> CoreModel<'a> {
    pub fn new(facts: &'a CoreFacts) -> Self {
        Self { facts }
    }

    /// Requests a second of this load.
    pub fn requests_per_second(&self, load: &Load) -> f64 {
        if load.is_sequential {
            return self.sequential_bytes_per_second(load) / load.bytes as f64;
        }
        let reads_in_flight = load.depth * load.read_share;
        let queue = self.queue_per_member(load.depth, load);
        let read = self.random_read_ms(load.bytes);
        let write = self.random_write_ms(load.bytes);
        let response_ms = load.read_share * read + (1.0 - load.read_share) * write;
        let work_ms = load.read_share * self.read_work_ms(load.bytes, queue)
            + (1.0 - load.read_share) * self.write_work_ms(load.bytes, queue);
        debug_assert!(reads_in_flight >= 0.0);
        closed_loop(load.depth, response_ms, work_ms)
    }

    /// Bytes a second at which data that lies in full stripes is written.
    pub(super) fn full_stripe_bytes_per_second(&self) -> f64 {
        let facts = self.facts;
        f64::from(facts.groups * facts.data_members) * facts.member.seq_mb_s * 1e6
    }

    /// Share of all members' time that one random read takes, in ms.
    pub(super) fn read_work_ms(&self, bytes: u64, queue: f64) -> f64 {
        let strips = bytes.div_ceil(self.facts.strip_bytes).max(1) as f64;
        (strips * self.service_ms(queue) + self.transfer_ms(bytes)) / self.members()
    }

    /// Time of one random read on an idle core, in ms.
    pub(super) fn random_read_ms(&self, bytes: u64) -> f64 {
        let strips = bytes.div_ceil(self.facts.strip_bytes).max(1);
        self.slowest_ms(strips as usize) + self.transfer_ms(bytes.min(self.facts.strip_bytes))
    }

    /// Share of all members' time that one random write takes when `per_stripe` of them touch the
    /// same stripe and are written together, in ms.
    pub(super) fn clean_work_ms(&self, bytes: u64, per_stripe: f64) -> f64 {
        let facts = self.facts;
        let (reads, writes) = self.stripe_operations(bytes, per_stripe);
        let read_ms = self.service_ms(DRIVE_QUEUE);
        let transfer = self.transfer_ms(bytes) * (1.0 + f64::from(facts.redundant_members));
        ((reads * read_ms + writes * self.write_service_ms(DRIVE_QUEUE)) / per_stripe + transfer)
            / self.members()
    }

    fn write_work_ms(&self, bytes: u64, queue: f64) -> f64 {
        let (reads, writes) = self.stripe_operations(bytes, 1.0);
        let copies = 1.0 + f64::from(self.facts.redundant_members.min(2));
        (reads * self.service_ms(queue)
            + writes * self.write_service_ms(queue)
            + self.transfer_ms(bytes) * copies)
            / self.members()
    }

    /// Member operations for `per_stripe` writes into one stripe: the cheaper of read-modify-write
    /// and reconstruction, nothing read for a full stripe.
    fn stripe_operations(&self, bytes: u64, per_stripe: f64) -> (f64, f64) {
        let facts = self.facts;
        let strips = bytes.div_ceil(facts.strip_bytes).max(1) as f64;
        let data = f64::from(facts.data_members);
        let redundant = f64::from(facts.redundant_members);
        if !facts.has_parity() {
            let copies = 1.0 + if facts.data_members == 1 { redundant } else { redundant.min(1.0) };
            return (0.0, per_stripe * strips * copies);
        }
        let touched = (per_stripe * strips).min(data);
        let full = bytes as f64 * per_stripe >= facts.stripe_bytes() as f64;
        let reads = if full { 0.0 } else { (touched + redundant).min(data - touched + 1.0) };
        (reads.max(0.0), touched + redundant)
    }

    /// Time of one random write on an idle core, in ms.
    fn random_write_ms(&self, bytes: u64) -> f64 {
        let (reads, writes) = self.stripe_operations(bytes, 1.0);
        let reading = if reads > 0.0 { self.slowest_ms(reads.round() as usize) } else { 0.0 };
        let transfer = self.transfer_ms(bytes.min(self.facts.strip_bytes));
        reading + transfer + self.write_answer_ms(writes, reads > 0.0)
    }

    /// Until the slowest of `writes` has been answered. After a read of the same place a disk
    /// without a write cache waits for a whole turn.
    fn write_answer_ms(&self, writes: f64, after_read: bool) -> f64 {
        let member = &self.facts.member;
        match (member.write_cache, member.rotational, after_read) {
            (true, ..) => COMMAND_MS,
            (false, true, true) => TURN_MS,
            (false, ..) => self.slowest_ms(writes.round() as usize),
        }
    }

    fn sequential_bytes_per_second(&self, load: &Load) -> f64 {
        let reads = self.sequential_read_bytes_per_second(load);
        let writes = self.sequential_write_bytes_per_second(load);
        // A mixed sequential stream spends its time on each in turn.
        let share = load.read_share;
        1.0 / (share / reads + (1.0 - share) / writes)
    }

    fn sequential_read_bytes_per_second(&self, load: &Load) -> f64 {
        let strip = load.bytes.min(self.facts.strip_bytes);
        let response_ms = COMMAND_MS + self.transfer_ms(strip);
        let rate = load.depth * load.bytes as f64 / response_ms * 1e3;
        rate.min(self.full_stripe_bytes_per_second())
    }

    fn sequential_write_bytes_per_second(&self, load: &Load) -> f64 {
        let facts = self.facts;
        let bytes = load.bytes as f64;
        let limit = self.full_stripe_bytes_per_second();
        if !facts.has_parity() {
            let strip = bytes.min(facts.strip_bytes as f64);
            return (load.depth * bytes / self.buffered_ms(strip) * 1e3).min(limit);
        }
        let stripe = facts.stripe_bytes() as f64;
        let in_flight = load.depth * bytes;
        let is_full = bytes >= stripe || (facts.merges_sequential && in_flight >= stripe);
        if is_full {
            let response_ms = self.buffered_ms(facts.strip_bytes as f64);
            return (in_flight / response_ms * 1e3).min(limit);
        }
        // Parity makes the writes of one stripe wait for each other.
        let stripes = (in_flight / stripe).max(1.0);
        (stripes * bytes / self.sequential_update_ms(bytes) * 1e3).min(limit)
    }

    /// One write that the drives take into their memory, or onto the platter.
    fn buffered_ms(&self, bytes: f64) -> f64 {
        let member = &self.facts.member;
        if member.write_cache || !member.rotational {
            return COMMAND_MS + bytes / (INTERFACE_MB_S * 1e3);
        }
        TURN_MS + bytes / (member.seq_mb_s * 1e3)
    }

    /// Read-modify-write of a part of a stripe beside the one before: the drive has the track.
    fn sequential_update_ms(&self, bytes: f64) -> f64 {
        let strip = bytes.min(self.facts.strip_bytes as f64);
        if !self.facts.member.rotational {
            return 2.0 * (COMMAND_MS + strip / (INTERFACE_MB_S * 1e3));
        }
        let read_ms = COMMAND_MS + TRACK_MISSES * TURN_MS + strip / (INTERFACE_MB_S * 1e3);
        let write_ms =
            if self.facts.member.write_cache { self.buffered_ms(strip) } else { TURN_MS };
        read_ms + write_ms
    }

    /// Mean requests at one member when `depth` are in flight.
    fn queue_per_member(&self, depth: f64, load: &Load) -> f64 {
        let (reads, writes) = self.stripe_operations(load.bytes, 1.0);
        let operations = load.read_share + (1.0 - load.read_share) * reads.max(writes);
        (depth * operations / self.members()).max(1.0)
    }

    /// Mean time of one random operation in a queue, in ms.
    fn service_ms(&self, queue: f64) -> f64 {
        let member = &self.facts.member;
        let queue = queue.clamp(1.0, DRIVE_QUEUE);
        let gain = if member.rotational { queue.powf(SORTING_EXPONENT) } else { queue };
        1e3 / member.random_iops / gain
    }

    fn write_service_ms(&self, queue: f64) -> f64 {
        let member = &self.facts.member;
        if member.rotational && member.write_cache {
            return 1e3 / member.random_iops / DRIVE_CACHE_QUEUE.powf(SORTING_EXPONENT);
        }
        self.service_ms(queue)
    }

    fn slowest_ms(&self, operations: usize) -> f64 {
        let spread = if self.facts.member.rotational { SERVICE_SPREAD } else { 0.1 };
        let deviation = SLOWEST_OF[operations.clamp(1, SLOWEST_OF.len()) - 1];
        1e3 / self.facts.member.random_iops * (1.0 + spread * deviation)
    }

    fn transfer_ms(&self, bytes: u64) -> f64 {
        bytes as f64 / (self.facts.member.seq_mb_s * 1e3)
    }

    fn members(&self) -> f64 {
        f64::from(self.facts.members())
    }
}

/// Requests a second of `depth` in flight, where one takes `response_ms` alone and `work_ms` of
/// every device's time.
pub(super) fn closed_loop(depth: f64, response_ms: f64, work_ms: f64) -> f64 {
    let waiting_ms = (depth - 1.0).max(0.0) * work_ms * RESIDUAL;
    let rate = depth / (response_ms + waiting_ms).max(1e-6);
    let limit = if work_ms > 0.0 { 1.0 / work_ms } else { f64::INFINITY };
    rate.min(limit) * 1e3
}
