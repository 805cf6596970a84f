//! Transfers data completely, also after short transfers, and from memory of any alignment.

use super::FileDevice;
use super::answers::{device_error, is_passing};
use crate::ring::{Completion, Direction, PART_COUNT_MAX, TRANSFER_BYTES_MAX};
use headpond_block::{Buffer, Buffers, ByteRange, Cause, DeviceError, Outcome};
use std::future::Future;

/// Most bytes that are copied through aligned memory at a time.
const BOUNCE_BYTES_MAX: u64 = 1 << 20;

/// Retries of an operation that the kernel deferred (EAGAIN, EINTR).
const TRY_COUNT_MAX: u32 = 64;

impl FileDevice {
    /// Starts a transfer immediately, and returns a future of its end.
    pub(super) fn transfer(
        &self,
        direction: Direction,
        range: ByteRange,
        buffers: Buffers,
    ) -> impl Future<Output = Outcome> + use<'_> {
        let first = self.ring.transfer(&self.handle, direction, range.start(), head(&buffers));
        self.finish(first, direction, range, buffers)
    }

    async fn finish(
        &self,
        first: Completion,
        direction: Direction,
        range: ByteRange,
        buffers: Buffers,
    ) -> Outcome {
        let (mut pending, mut done, mut tries) = (first, 0, 0);
        loop {
            match pending.await.count() {
                Ok(count) => done += self.whole_blocks(count, range, buffers.len_bytes() - done)?,
                Err(errno) if is_passing(errno) && tries < TRY_COUNT_MAX => tries += 1,
                Err(errno) => return Err(self.error(name_of(direction), range, errno)),
            }
            if done == buffers.len_bytes() {
                return Ok(());
            }
            let rest = head(&buffers.slice(done..buffers.len_bytes()));
            let offset = range.start() + done as u64;
            pending = self.ring.transfer(&self.handle, direction, offset, rest);
        }
    }

    /// The same through aligned memory of the pool.
    pub(super) async fn bounce(
        &self,
        direction: Direction,
        range: ByteRange,
        buffers: Buffers,
    ) -> Outcome {
        self.bounced.set(self.bounced.get() + 1);
        let mut at = 0;
        while at < range.len() {
            let len = BOUNCE_BYTES_MAX.min(range.len() - at);
            let part = buffers.slice(at as usize..(at + len) as usize);
            let memory = Buffers::from(self.ring.pool().take(len as usize));
            if direction != Direction::Read {
                memory.copy_from_buffers(&part);
            }
            let piece = ByteRange::at(range.start() + at, len);
            self.transfer(direction, piece, memory.clone()).await?;
            if direction == Direction::Read {
                part.copy_from_buffers(&memory);
            }
            at += len;
        }
        Ok(())
    }

    /// Whether this memory has the required alignment.
    pub(super) fn takes(&self, buffers: &Buffers) -> bool {
        let memory = self.properties.memory_alignment_bytes as usize;
        let block = if self.properties.is_direct { self.block_bytes() } else { 1 };
        buffers.iter().all(|part: &Buffer| {
            (part.as_ptr() as usize).is_multiple_of(memory)
                && part.len().is_multiple_of(block)
                && !part.is_payload_free()
        })
    }

    /// How much of what was moved counts: under O_DIRECT the next attempt has to start at a block,
    /// so that the rest of one is done again.
    ///
    /// # Errors
    /// Where that is nothing: the file was truncated since it was opened.
    fn whole_blocks(
        &self,
        count: usize,
        range: ByteRange,
        wanted: usize,
    ) -> Result<usize, DeviceError> {
        assert!(count <= wanted, "the kernel moved more than was asked");
        let is_free = count == wanted || !self.properties.is_direct;
        match if is_free { count } else { count - count % self.block_bytes() } {
            0 => Err(DeviceError::new(&self.name, Cause::Media { range })),
            whole => Ok(whole),
        }
    }

    fn block_bytes(&self) -> usize {
        self.geometry.logical_block_bytes as usize
    }

    pub(super) fn error(
        &self,
        operation: &'static str,
        range: ByteRange,
        errno: i32,
    ) -> DeviceError {
        device_error(&self.name, operation, range, errno)
    }
}

/// As much of the start as one operation takes.
fn head(buffers: &Buffers) -> Buffers {
    if buffers.count() <= PART_COUNT_MAX && buffers.len_bytes() <= TRANSFER_BYTES_MAX {
        return buffers.clone();
    }
    let first: Buffers = buffers.iter().take(PART_COUNT_MAX).cloned().collect();
    let len = first.len_bytes().min(TRANSFER_BYTES_MAX);
    first.slice(0..len)
}

fn name_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write { .. } => "write",
    }
}
