//! The measurement: how long writes take with and without a flush, and how much a cache swallows.

use crate::BLOCK_BYTES;
use crate::draw::Draw;
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, DeviceError, Runtime, Submission};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// What may be done to the device.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes from the start of the device that may be overwritten; 0: only reads.
    pub write_bytes: u64,
    /// About how long one of the measurements may take.
    pub time: Duration,
}

/// Times of one kind of operation, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Depth {
    pub count: u64,
    pub per_second: f64,
    pub median_us: f64,
    pub shortest_us: f64,
    pub longest_us: f64,
}

/// What writes have told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Writes {
    /// One block over and over, without a flush.
    pub same_unsynced: Depth,
    /// The same, a flush after each write; the times are those of both together.
    pub same_synced: Depth,
    /// The flush of these alone.
    pub flush: Depth,
    /// Blocks all over the region, 16 at a time, without a flush and with one after each.
    pub spread_unsynced: Depth,
    pub spread_synced: Depth,
    /// Random blocks that were taken before the device fell to its own speed, or all that were
    /// offered.
    pub burst_blocks: u64,
    pub burst_is_bounded: bool,
    /// How long the flush after that burst took.
    pub burst_flush_us: f64,
}

/// What reads have told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReadOnly {
    /// Random blocks of the whole device, one at a time.
    pub random: Depth,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    pub reads: ReadOnly,
    pub writes: Option<Writes>,
}

const COUNT_MAX: u64 = 1000;
/// A drive's own cache holds fewer runs than this; a controller's holds more.
const BURST_BLOCKS_MAX: u64 = 20_000;
/// Blocks of a burst from one look at its speed to the next.
const BURST_STEP: u64 = 500;
const BURST_DEPTH: usize = 16;
/// A burst slower than this is at the speed of the medium, in blocks a second.
const MEDIUM_RATE_MAX: f64 = 2000.0;

/// Measures a device.
///
/// # Errors
/// The first that the device answers.
pub async fn measure(
    device: &dyn BlockDevice,
    runtime: &Runtime,
    options: Options,
    seed: u64,
    progress: &dyn Fn(&str),
) -> Result<Measured, DeviceError> {
    let probe = Probe { device, runtime, options, draw: RefCell::new(Draw::new(seed)) };
    progress("random reads");
    let blocks = device.size_bytes() / BLOCK_BYTES;
    let random = probe.repeat(1, async || probe.read(probe.place(blocks)).await).await?;
    let reads = ReadOnly { random };
    if options.write_bytes < BLOCK_BYTES {
        return Ok(Measured { reads, writes: None });
    }
    Ok(Measured { reads, writes: Some(probe.writes(progress).await?) })
}

struct Probe<'a> {
    device: &'a dyn BlockDevice,
    runtime: &'a Runtime,
    options: Options,
    draw: RefCell<Draw>,
}

impl Probe<'_> {
    async fn writes(&self, progress: &dyn Fn(&str)) -> Result<Writes, DeviceError> {
        let blocks = self.options.write_bytes / BLOCK_BYTES;
        let mut writes = Writes::default();
        self.device.flush().await?;
        progress("one block, without flushes");
        writes.same_unsynced = self.repeat(1, async || self.write(0).await).await?;
        self.device.flush().await?;
        progress("one block, a flush after each write");
        let flushes = RefCell::new(Vec::new());
        let synced = async || {
            self.write(0).await?;
            let begun = self.runtime.now();
            self.device.flush().await?;
            flushes.borrow_mut().push(self.runtime.now().since(begun));
            Ok(())
        };
        writes.same_synced = self.repeat(1, synced).await?;
        let times = flushes.take();
        writes.flush = summed(times.iter().sum(), times);
        progress("16 at a time, with and without");
        let synced = async || {
            self.write(self.place(blocks)).await?;
            self.device.flush().await
        };
        writes.spread_synced = self.repeat(16, synced).await?;
        let unsynced = async || self.write(self.place(blocks)).await;
        writes.spread_unsynced = self.repeat(16, unsynced).await?;
        self.device.flush().await?;
        progress("a burst");
        (writes.burst_blocks, writes.burst_is_bounded) = self.burst(blocks).await?;
        let begun = self.runtime.now();
        self.device.flush().await?;
        writes.burst_flush_us = micros(self.runtime.now().since(begun));
        Ok(writes)
    }

    /// Random writes until the device falls to the speed of its medium; how many went before, and
    /// whether it did.
    async fn burst(&self, blocks: u64) -> Result<(u64, bool), DeviceError> {
        let offered = BURST_BLOCKS_MAX.min(blocks);
        let begun = self.runtime.now();
        let mut done = 0;
        while done < offered {
            let step = self.runtime.now();
            let left = Cell::new(BURST_STEP);
            let worker = |_| {
                Submission::pending(async {
                    while let Some(rest) = left.get().checked_sub(1) {
                        left.set(rest);
                        self.write(self.place(blocks)).await?;
                    }
                    Ok(())
                })
            };
            let ended = join_all((0..BURST_DEPTH).map(worker).collect()).await;
            ended.into_iter().collect::<Result<Vec<()>, _>>()?;
            let seconds = self.runtime.now().since(step).as_secs_f64();
            if BURST_STEP as f64 / seconds.max(1e-9) < MEDIUM_RATE_MAX {
                return Ok((done, true));
            }
            done += BURST_STEP;
            if self.runtime.now().since(begun) > 4 * self.options.time {
                break;
            }
        }
        Ok((done, false))
    }

    /// One operation after another, so many at a time.
    async fn repeat(
        &self,
        depth: usize,
        operation: impl AsyncFn() -> Result<(), DeviceError>,
    ) -> Result<Depth, DeviceError> {
        let begun = self.runtime.now();
        let (times, left) = (RefCell::new(Vec::new()), Cell::new(COUNT_MAX));
        let worker = |_| {
            Submission::pending(async {
                while let Some(rest) = left.get().checked_sub(1) {
                    left.set(rest);
                    let start = self.runtime.now();
                    if start.since(begun) > self.options.time {
                        break;
                    }
                    operation().await?;
                    times.borrow_mut().push(self.runtime.now().since(start));
                }
                Ok(())
            })
        };
        let ended = join_all((0..depth).map(worker).collect()).await;
        ended.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(summed(self.runtime.now().since(begun), times.into_inner()))
    }

    fn place(&self, blocks: u64) -> u64 {
        self.draw.borrow_mut().below(blocks.max(1))
    }

    async fn write(&self, block: u64) -> Result<(), DeviceError> {
        let number = self.draw.borrow_mut().below(u64::MAX);
        let memory = Buffer::zeroed(BLOCK_BYTES as usize);
        memory.copy_from(&number.to_le_bytes());
        self.device.write(block * BLOCK_BYTES, memory).await
    }

    async fn read(&self, block: u64) -> Result<(), DeviceError> {
        let memory = Buffer::zeroed(BLOCK_BYTES as usize);
        self.device.read(block * BLOCK_BYTES, memory).await
    }
}

fn summed(total: Duration, mut times: Vec<Duration>) -> Depth {
    times.sort_unstable();
    let Some(median) = times.get(times.len() / 2) else { return Depth::default() };
    Depth {
        count: times.len() as u64,
        per_second: times.len() as f64 / total.as_secs_f64().max(1e-9),
        median_us: micros(*median),
        shortest_us: micros(times[0]),
        longest_us: micros(times[times.len() - 1]),
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
