//! A device in the process's memory.

use crate::buffer::finish_stores;
use crate::memory::{Populated, Population};
use crate::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Outcome, Request, RequestKind, Stability,
    Submission,
};
use std::cell::Cell;

/// RAM as a device. Pages are allocated at their first write, with huge pages 2 MiB at a time, or
/// by a [`Population`] before.
pub struct RamDevice {
    name: DeviceName,
    geometry: Geometry,
    // Before the memory, since whoever populates it has to end before that goes.
    populated: Populated,
    memory: Buffer,
    /// Contiguous writes, perhaps visible to this thread only.
    stored: Cell<(usize, usize)>,
}

/// When a row is so long, all of it has been on its way for so long that it costs nothing to wait
/// for it.
const STORED_BYTES_MAX: usize = 1 << 20;

impl RamDevice {
    /// A device of `size_bytes`, a multiple of 512, that reads as zeros and is volatile.
    ///
    /// # Panics
    /// Where the size is no multiple of 512, or more than the address space holds.
    pub fn new(name: impl Into<DeviceName>, size_bytes: u64) -> Self {
        let stability = Stability::LostOnPower;
        Self::with_geometry(name, Geometry { stability, ..Geometry::of_size(size_bytes) })
    }

    /// A device that reports `geometry`: for tests and benchmarks.
    ///
    /// # Panics
    /// Where the size is no multiple of the logical block.
    pub fn with_geometry(name: impl Into<DeviceName>, geometry: Geometry) -> Self {
        assert!(geometry.size_bytes.is_multiple_of(u64::from(geometry.logical_block_bytes)));
        let len = usize::try_from(geometry.size_bytes).expect("fits the address space");
        let (memory, stored) = (Buffer::zeroed(len), Cell::default());
        Self { name: name.into(), geometry, populated: Populated::default(), memory, stored }
    }

    /// Gives the memory its pages, where another thread runs it. Once.
    pub fn population(&self) -> Population {
        self.populated.population(self.memory.as_ptr(), self.memory.len())
    }

    /// The memory itself, to look at a device from outside.
    pub fn memory(&self) -> &Buffer {
        self.show(0, self.memory.len());
        &self.memory
    }

    fn carry_out(&self, request: &Request) -> Outcome {
        request.check(&self.name, &self.geometry)?;
        let start = request.range.start() as usize;
        match request.kind {
            RequestKind::Flush | RequestKind::Discard => {}
            RequestKind::WriteZeroes => {
                self.memory.slice(start..request.range.end() as usize).fill(0);
            }
            RequestKind::Read => {
                let mut at = start;
                for part in request.buffers.iter() {
                    part.copy_from_buffer(&self.memory.slice(at..at + part.len()));
                    at += part.len();
                }
            }
            RequestKind::Write => {
                let mut at = start;
                for part in request.buffers.iter() {
                    self.memory.store_at(at, part);
                    at += part.len();
                }
                self.note_stored(start, at);
            }
        }
        Ok(())
    }

    fn note_stored(&self, start: usize, end: usize) {
        let (first, last) = self.stored.get();
        if last == start && end - first <= STORED_BYTES_MAX {
            return self.stored.set((first, end));
        }
        if first < last {
            finish_stores();
        }
        self.stored.set((start, end));
    }

    /// Makes the writes visible to all threads.
    fn show(&self, start: usize, end: usize) {
        let (first, last) = self.stored.get();
        if first < end && start < last {
            finish_stores();
            self.stored.set((0, 0));
        }
    }
}

impl BlockDevice for RamDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        Submission::ready(self.carry_out(&request))
    }

    fn lend(&self, range: ByteRange) -> Option<Buffer> {
        if range.end() > self.geometry.size_bytes {
            return None;
        }
        let (start, end) = (range.start() as usize, range.end() as usize);
        // Whoever gets it may hand it to another thread, or to a device.
        self.show(start, end);
        Some(self.memory.slice(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cause;

    fn done(submission: Submission<'_>) -> Outcome {
        submission.now_or().unwrap_or_else(|_| panic!("RAM completes at once"))
    }

    #[test]
    fn population_changes_nothing_and_ends_with_the_device() {
        let ram = RamDevice::new("ram", 64 << 20);
        done((&ram as &dyn BlockDevice).write(4096, Buffer::from_slice(&[7; 512]))).unwrap();
        let mut population = ram.population();
        let thread = std::thread::spawn(move || while population.step() {});
        done((&ram as &dyn BlockDevice).write(8192, Buffer::from_slice(&[8; 512]))).unwrap();
        thread.join().unwrap();
        let read = Buffer::zeroed(8192);
        done((&ram as &dyn BlockDevice).read(4096, &read)).unwrap();
        let bytes = read.to_vec();
        assert_eq!([bytes[0], bytes[511], bytes[512], bytes[4096], bytes[8191]], [7, 7, 0, 8, 0]);
        let mut population = ram.population();
        drop(ram);
        assert!(!population.step());
    }

    #[test]
    fn what_is_lent_of_a_row_that_was_just_written_is_waited_for_and_nothing_else() {
        let ram = RamDevice::new("r", 8 << 20);
        let write = |at, len| ram.carry_out(&Request::write(at, Buffer::zeroed(len))).unwrap();
        write(4096, 4096);
        write(8192, 512);
        assert_eq!(ram.stored.get(), (4096, 8704));
        assert!(ram.lend(ByteRange::at(8704, 512)).is_some());
        assert_eq!(ram.stored.get(), (4096, 8704));
        assert!(ram.lend(ByteRange::at(4096, 512)).is_some());
        assert_eq!(ram.stored.get(), (0, 0));
        write(0, STORED_BYTES_MAX);
        write(STORED_BYTES_MAX as u64, 512);
        assert_eq!(ram.stored.get(), (STORED_BYTES_MAX, STORED_BYTES_MAX + 512));
    }

    #[test]
    fn what_is_written_is_read_and_lent() {
        let ram = RamDevice::new("ram", 8192);
        let device: &dyn BlockDevice = &ram;
        done(device.write(512, Buffer::from_slice(&[7; 1024]))).unwrap();
        let into = Buffer::zeroed(512);
        done(device.read(1024, &into)).unwrap();
        assert_eq!(into.to_vec(), [7; 512]);
        assert_eq!(ram.lend(ByteRange::at(1535, 2)).unwrap().to_vec(), [7, 0]);
        assert!(ram.lend(ByteRange::at(8192, 1)).is_none());
    }

    #[test]
    fn writes_in_a_row_may_end_with_the_device() {
        let ram = RamDevice::new("ram", 8192);
        let device: &dyn BlockDevice = &ram;
        for offset in (0..8192).step_by(1024) {
            let byte = (offset / 1024) as u8;
            done(device.write(offset, Buffer::from_slice(&[byte; 1024]))).unwrap();
        }
        let expected: Vec<u8> = (0..8192).map(|at| (at / 1024) as u8).collect();
        assert!(ram.memory().to_vec() == expected);
    }

    #[test]
    fn requests_past_the_end_or_between_blocks_are_refused() {
        let ram = RamDevice::new("ram", 4096);
        let device: &dyn BlockDevice = &ram;
        let past = done(device.read(4096, Buffer::zeroed(512))).unwrap_err();
        assert!(matches!(past.cause(), Cause::OutOfRange { size_bytes: 4096, .. }));
        let between = done(device.read(100, Buffer::zeroed(512))).unwrap_err();
        assert!(matches!(between.cause(), Cause::Misaligned { .. }));
    }
}
