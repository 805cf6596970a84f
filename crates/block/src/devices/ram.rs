//! A device in the process's memory.

use crate::prefetch::{LINE_BYTES, prefetch};
use crate::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Outcome, Request, RequestKind, Stability,
    Submission,
};
use std::cell::Cell;

/// RAM as a device. Pages are taken from the system as they are first written, by a program with
/// large pages two megabytes at a time.
pub struct RamDevice {
    name: DeviceName,
    geometry: Geometry,
    memory: Buffer,
    /// End of the last write.
    written_to: Cell<usize>,
}

/// A longer write has its memory brought near by the processor itself.
const FORESEEN_BYTES_MAX: usize = 8 << 10;

impl RamDevice {
    /// A device of `size_bytes`, a multiple of 512, that reads as zeros and is lost on power.
    ///
    /// # Panics
    /// Where the size is no multiple of 512, or more than the address space holds.
    pub fn new(name: impl Into<DeviceName>, size_bytes: u64) -> Self {
        let stability = Stability::LostOnPower;
        Self::with_geometry(name, Geometry { stability, ..Geometry::of_size(size_bytes) })
    }

    /// A device that claims to be what `geometry` says: for tests and benchmarks.
    ///
    /// # Panics
    /// Where the size is no multiple of the logical block.
    pub fn with_geometry(name: impl Into<DeviceName>, geometry: Geometry) -> Self {
        assert!(geometry.size_bytes.is_multiple_of(u64::from(geometry.logical_block_bytes)));
        let len = usize::try_from(geometry.size_bytes).expect("fits the address space");
        Self { name: name.into(), geometry, memory: Buffer::zeroed(len), written_to: Cell::new(0) }
    }

    /// The memory itself, to look at a device from outside.
    pub fn memory(&self) -> &Buffer {
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
                self.foresee(start, at);
            }
        }
        Ok(())
    }

    /// Whoever writes in a row goes on behind what has been written: there the processor fetches
    /// what it is about to write over, while it does something else. With 4 KiB the log of a cache
    /// took a fifth less for it.
    fn foresee(&self, start: usize, end: usize) {
        let is_row = self.written_to.replace(end) == start;
        let ahead = end..self.memory.len().min(end + (end - start).min(FORESEEN_BYTES_MAX));
        if is_row && end - start <= FORESEEN_BYTES_MAX {
            let memory = self.memory.as_ptr();
            ahead.step_by(LINE_BYTES).for_each(|at| prefetch(memory.wrapping_add(at)));
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
        (range.end() <= self.geometry.size_bytes)
            .then(|| self.memory.slice(range.start() as usize..range.end() as usize))
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
