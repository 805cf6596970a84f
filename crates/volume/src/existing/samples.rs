//! The blocks of an existing device whose checksums its head has.
//!
//! Those that whoever uses a device past us changes: the first and last ones (partition tables,
//! superblocks of file systems and of LVM, of md), the same behind the first MiB, where the first
//! partition or logical volume begins, and others spread over the device.

use super::UNIT_BYTES;
use super::record::{self, ExistingRecord, SAMPLES_MAX};
use headpond_block::sync::Semaphore;
use headpond_block::{BlockDevice, Buffer, ByteRange, DeviceError, DeviceName, Outcome};
use headpond_raid::checksum;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

/// At the start, the end, and from the first MiB on: the superblock of Btrfs is at 64 KiB.
const AT_EDGES: u64 = 17;
const FIRST_PARTITION: u64 = 1 << 20;
/// Between these.
const SPREAD: u64 = 128;
const _: () = assert!((3 * AT_EDGES + SPREAD) as usize <= SAMPLES_MAX);

/// A block, and its checksum where that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub offset: u64,
    pub checksum: Option<u32>,
}

/// A device that somebody else has written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentsChanged {
    pub device: DeviceName,
    /// Of the blocks that were compared.
    pub differ: usize,
    pub compared: usize,
    /// Address of the first of them.
    pub first: u64,
}

impl fmt::Display for ContentsChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, differ, compared, first } = self;
        write!(
            f,
            "{device} was written to past this volume: {differ} of {compared} sampled blocks differ, \
             the first at byte {first}"
        )
    }
}

/// The sampled blocks of a device in use.
pub(super) struct Samples {
    record: RefCell<ExistingRecord>,
    /// By sample.
    writes: RefCell<Vec<Writes>>,
    /// Of whoever changes the record.
    change: Semaphore,
}

/// Writes to a block through here.
#[derive(Clone, Copy, Default)]
struct Writes {
    under_way: u32,
    /// Of these, those that the device may have: the checksum counts no more, stably.
    on_body: u32,
    begun: u64,
}

impl Samples {
    pub fn new(record: ExistingRecord) -> Self {
        let writes = vec![Writes::default(); record.samples.len()];
        Self {
            record: RefCell::new(record),
            writes: RefCell::new(writes),
            change: Semaphore::new(1),
        }
    }

    /// The samples that a range has a part of.
    pub fn touched_by(&self, range: ByteRange) -> Range<usize> {
        let samples = &self.record.borrow().samples;
        let from = samples.partition_point(|it| it.offset + UNIT_BYTES <= range.start());
        let to = samples.partition_point(|it| it.offset < range.end());
        from..to.max(from)
    }

    /// Before a write to them: their checksums count no more, stably.
    pub async fn begin_write(&self, head: &dyn BlockDevice, touched: Range<usize>) -> Outcome {
        for writes in &mut self.writes.borrow_mut()[touched.clone()] {
            writes.under_way += 1;
            writes.begun += 1;
        }
        let forgotten = self.forget(head, touched.clone()).await;
        for writes in &mut self.writes.borrow_mut()[touched] {
            match forgotten {
                Ok(()) => writes.on_body += 1,
                Err(_) => writes.under_way -= 1,
            }
        }
        forgotten
    }

    async fn forget(&self, head: &dyn BlockDevice, touched: Range<usize>) -> Outcome {
        let _change = self.change.acquire(1).await;
        let mut next = self.record.borrow().clone();
        let counting = next.samples[touched].iter_mut().filter(|it| it.checksum.is_some());
        if counting.map(|it| it.checksum = None).count() == 0 {
            return Ok(());
        }
        self.save(head, next).await
    }

    /// After it, whether it came about or not.
    pub fn end_write(&self, touched: Range<usize>) {
        for writes in &mut self.writes.borrow_mut()[touched] {
            writes.under_way -= 1;
            writes.on_body -= 1;
        }
    }

    /// Checks the invariants; for tests and simulation.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn self_check(&self) {
        let (record, writes) = (self.record.borrow(), self.writes.borrow());
        let samples = &record.samples;
        assert_eq!(writes.len(), samples.len(), "each sample has its writes");
        let is_in_order = samples.is_sorted_by(|one, next| one.offset < next.offset);
        assert!(is_in_order, "samples are in the order of their addresses");
        for (sample, writes) in samples.iter().zip(&*writes) {
            let is_inside = sample.offset.is_multiple_of(UNIT_BYTES)
                && sample.offset + UNIT_BYTES <= record.size_bytes;
            assert!(is_inside, "a sample is a block of the device");
            let Writes { under_way, on_body, begun } = *writes;
            let is_counted = on_body <= under_way && u64::from(under_way) <= begun;
            assert!(is_counted, "what the device may have is under way, and has begun");
            let is_forgotten = on_body == 0 || sample.checksum.is_none();
            assert!(is_forgotten, "what is being written has no checksum that counts");
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.record.borrow().size_bytes
    }

    pub fn forget_all(&self) {
        for sample in &mut self.record.borrow_mut().samples {
            sample.checksum = None;
        }
    }

    /// Takes the checksums of those that have none that counts, but for what is being written.
    pub async fn refresh(&self, head: &dyn BlockDevice, body: &dyn BlockDevice) -> Outcome {
        let _change = self.change.acquire(1).await;
        let mut next = self.record.borrow().clone();
        let before = self.writes.borrow().clone();
        let mut is_news = false;
        for (sample, writes) in next.samples.iter_mut().zip(&before) {
            if sample.checksum.is_none() && writes.under_way == 0 {
                sample.checksum = Some(checksum_at(body, sample.offset).await?);
                is_news = true;
            }
        }
        if !is_news {
            return Ok(());
        }
        // What is recorded must not be lost with the power, and the block be an older one then.
        body.flush().await?;
        for ((sample, old), now) in next.samples.iter_mut().zip(&before).zip(&*self.writes.borrow())
        {
            if old.begun != now.begun {
                sample.checksum = None;
            }
        }
        self.save(head, next).await
    }

    /// Compares those that count.
    pub async fn compare(
        &self,
        body: &dyn BlockDevice,
    ) -> Result<Option<ContentsChanged>, DeviceError> {
        let samples = self.record.borrow().samples.clone();
        let (mut compared, mut differing) = (0, Vec::new());
        for sample in &samples {
            let Some(expected) = sample.checksum else { continue };
            compared += 1;
            if checksum_at(body, sample.offset).await? != expected {
                differing.push(sample.offset);
            }
        }
        let device = body.name().clone();
        let first = differing.first().copied();
        Ok(first.map(|first| ContentsChanged { device, differ: differing.len(), compared, first }))
    }

    async fn save(&self, head: &dyn BlockDevice, mut next: ExistingRecord) -> Outcome {
        next.sequence += 1;
        record::save(head, &next).await?;
        *self.record.borrow_mut() = next;
        Ok(())
    }
}

async fn checksum_at(body: &dyn BlockDevice, offset: u64) -> Result<u32, DeviceError> {
    let block = Buffer::zeroed(UNIT_BYTES as usize);
    body.read(offset, &block).await?;
    Ok(checksum::of(&block.to_vec()))
}

/// Addresses of the sampled blocks of a device of that size, in order.
pub(super) fn sampled_offsets(size_bytes: u64) -> Vec<u64> {
    let blocks = size_bytes / UNIT_BYTES;
    let partition = FIRST_PARTITION / UNIT_BYTES;
    let spread = (1..=SPREAD).map(|part| {
        // Not all in one place of a stripe or of a group of the file system.
        let step = u128::from(blocks) * u128::from(part) / u128::from(SPREAD + 1);
        step as u64 + part * part % 13
    });
    let edges = (0..AT_EDGES).flat_map(|at| [at, partition + at, blocks.saturating_sub(at + 1)]);
    let mut offsets: Vec<u64> =
        edges.chain(spread).filter(|block| *block < blocks).map(|it| it * UNIT_BYTES).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    /// Of a device of 8 MiB; its first block is being written, and all others count.
    fn in_use() -> Samples {
        let mut record = ExistingRecord::of(8 << 20, "disk");
        record.samples.iter_mut().skip(1).for_each(|sample| sample.checksum = Some(7));
        let samples = Samples::new(record);
        samples.writes.borrow_mut()[0] = Writes { under_way: 2, on_body: 1, begun: 5 };
        samples
    }

    #[test]
    fn check_notices_samples_that_a_start_could_not_trust() {
        let breaks: [Break<Samples>; 6] = [
            ("each sample has its writes", |it| {
                it.writes.get_mut().pop();
            }),
            ("in the order of their addresses", |it| it.record.get_mut().samples.swap(1, 2)),
            ("a block of the device", |it| it.record.get_mut().size_bytes = 4 << 20),
            ("a block of the device", |it| it.record.get_mut().samples[3].offset += 512),
            ("is under way, and has begun", |it| it.writes.get_mut()[4].on_body = 1),
            ("has no checksum that counts", |it| {
                it.record.get_mut().samples[0].checksum = Some(7);
            }),
        ];
        assert_trips(in_use, Samples::self_check, &breaks);
    }
}
