//! Discards, and zeros without writing them.

use super::FileDevice;
use super::answers::is_unknown;
use crate::ring::Direction;
use headpond_block::{Buffers, ByteRange, Outcome, RequestFlags};

/// Zeros written at a time where the kernel cannot zero a range, in bytes.
const ZEROS_BYTES: u64 = 1 << 20;

/// The part of [`ZEROS_BYTES`] that is real memory; the rest repeats it.
const ZEROS_MEMORY_BYTES: usize = 64 << 10;

const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

impl FileDevice {
    /// Discards the range in the file system or drive, where supported: a discard guarantees
    /// nothing about later reads, so an unsupported one succeeds as well.
    ///
    /// Both support punching a hole: on a block device the kernel maps it to the drive's command to
    /// zero and unmap.
    pub(super) async fn discard(&self, range: ByteRange, flags: RequestFlags) -> Outcome {
        match self.ring.allocate(&self.handle, PUNCH_HOLE, range).await.count() {
            Err(errno) if !is_unknown(errno) => Err(self.error("discard", range, errno)),
            _ => self.settle(flags).await,
        }
    }

    /// Makes the range read as zeros: by a hole where it may be unmapped, else by marking it
    /// unwritten, else by writing.
    pub(super) async fn write_zeroes(&self, range: ByteRange, flags: RequestFlags) -> Outcome {
        let keeps_space = flags.contains(RequestFlags::NO_UNMAP);
        let mode = if keeps_space { ZERO_RANGE } else { PUNCH_HOLE };
        match self.ring.allocate(&self.handle, mode, range).await.count() {
            Ok(_) => {}
            Err(errno) if is_unknown(errno) => self.write_zeros_out(range).await?,
            Err(errno) => return Err(self.error("write zeros", range, errno)),
        }
        self.settle(flags).await
    }

    async fn write_zeros_out(&self, range: ByteRange) -> Outcome {
        let memory = self.ring.pool().take(ZEROS_MEMORY_BYTES);
        memory.fill(0);
        let mut at = range.start();
        while at < range.end() {
            let piece = ByteRange::between(at, range.end().min(at + ZEROS_BYTES));
            let parts = piece.split_at_multiples(ZEROS_MEMORY_BYTES as u64);
            let zeros: Buffers = parts.map(|part| memory.slice(0..part.len() as usize)).collect();
            self.transfer(Direction::Write { flags: 0 }, piece, zeros).await?;
            at = piece.end();
        }
        Ok(())
    }

    /// Implements FUA after fallocate, which has no flag for it.
    async fn settle(&self, flags: RequestFlags) -> Outcome {
        if flags.contains(RequestFlags::FUA) { self.flush().await } else { Ok(()) }
    }
}
