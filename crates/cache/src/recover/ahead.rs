//! Readahead of an open: the next pieces are read while the current one is processed.
//!
//! **Invariant**: pieces are returned in the order in which they were started.

use super::Source;
use super::mirrored::Views;
use headpond_block::{BLOCK_BYTES, BlockDevice, Buffer, ByteRange, Outcome, Request, Submission};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Poll;

/// Longest read.
const PIECE_BYTES: u64 = 1 << 20;
/// Pieces of a checkpoint that are on their way, or being looked at.
const PIECES: usize = 5;

/// Reads of one device, oldest first.
struct Reads<'a> {
    device: &'a dyn BlockDevice,
    begun: VecDeque<(Submission<'a>, Option<Outcome>)>,
}

impl<'a> Reads<'a> {
    fn new(device: &'a dyn BlockDevice) -> Self {
        Self { device, begun: VecDeque::new() }
    }

    fn begin(&mut self, offset: u64, to: &Buffer) {
        self.begun.push_back((self.device.submit(Request::read(offset, to)), None));
    }

    /// Waits for the oldest one; all that were begun go on meanwhile.
    ///
    /// # Errors
    /// The oldest one's.
    ///
    /// # Panics
    /// Where none has begun.
    async fn first(&mut self) -> Outcome {
        assert!(!self.begun.is_empty(), "nobody waits for nothing");
        std::future::poll_fn(|context| {
            for (read, outcome) in self.begun.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
                if let Poll::Ready(answer) = Pin::new(read).poll(context) {
                    *outcome = Some(answer);
                }
            }
            match self.begun.front().is_some_and(|(_, outcome)| outcome.is_some()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        self.begun.pop_front().and_then(|(_, outcome)| outcome).expect("answered")
    }
}

/// The bytes of a checkpoint, piece by piece.
pub(super) struct CheckpointReader<'a> {
    reads: Reads<'a>,
    /// Of the pieces, those on their way first.
    memory: VecDeque<Buffer>,
    start: u64,
    len: u64,
    /// Bytes that have been taken, and whose reading has begun.
    taken: u64,
    begun: u64,
}

impl<'a> CheckpointReader<'a> {
    /// Of `len` bytes from `start` on, which begin a block.
    pub fn new(device: &'a dyn BlockDevice, start: u64, len: u64) -> Self {
        // No more than is needed: a small cache would take longest for memory to open.
        let pieces = len.div_ceil(PIECE_BYTES).min(PIECES as u64);
        let piece_bytes = PIECE_BYTES.min(len.next_multiple_of(BLOCK_BYTES)) as usize;
        let memory = (0..pieces).map(|_| Buffer::zeroed(piece_bytes)).collect();
        Self { reads: Reads::new(device), memory, start, len, taken: 0, begun: 0 }
    }

    /// The next piece, until everything has been taken; it is gone with the call after this one.
    ///
    /// # Errors
    /// The device's.
    pub async fn next(&mut self) -> Result<Option<Buffer>, headpond_block::DeviceError> {
        if self.taken == self.len {
            return Ok(None);
        }
        // The memory of the piece that was taken last is free now.
        while self.reads.begun.len() < PIECES && self.begun < self.len {
            let memory = &self.memory[self.reads.begun.len()];
            let wanted = PIECE_BYTES.min(self.len - self.begun);
            let room = wanted.next_multiple_of(BLOCK_BYTES) as usize;
            self.reads.begin(self.start + self.begun, &memory.slice(0..room));
            self.begun += wanted;
        }
        self.reads.first().await?;
        let piece = self.memory.pop_front().expect("it was read into it");
        let wanted = PIECE_BYTES.min(self.len - self.taken);
        self.taken += wanted;
        self.memory.push_back(piece.clone());
        Ok(Some(piece.slice(0..wanted as usize)))
    }
}

/// Parts of the log, one after the other, each while the one before it is being looked at. Of a
/// device of several copies each is read when it is asked for.
pub(super) struct LogReader<'a, I: Iterator<Item = ByteRange>> {
    source: &'a Source<'a>,
    parts: I,
    reads: Reads<'a>,
    /// On its way.
    next: Option<ByteRange>,
    /// For the part that was taken last, and for the next one: fresh pages cost more than what is
    /// then done with them.
    memory: [Buffer; 2],
}

impl<'a, I: Iterator<Item = ByteRange>> LogReader<'a, I> {
    /// `parts` are no longer than a segment.
    pub fn new(source: &'a Source<'a>, parts: I) -> Self {
        let memory = [(); 2].map(|()| Buffer::zeroed(source.layout.segment_bytes() as usize));
        let mut reader =
            Self { source, parts, reads: Reads::new(&*source.device), next: None, memory };
        reader.begin_next();
        reader
    }

    /// What the device, or each of its copies, has of the next part.
    ///
    /// # Errors
    /// The device's; of several copies those of the last one.
    ///
    /// # Panics
    /// Where all parts have been taken.
    pub async fn next(&mut self) -> Result<Views, headpond_block::DeviceError> {
        let range = self.next.take().expect("as often as there are parts");
        self.memory.swap(0, 1);
        if self.source.device.copies().is_some() {
            self.begin_next();
            return self.source.read_views(range, &self.memory[0]).await;
        }
        let pieces = self.reads.begun.len();
        self.begin_next();
        for _ in 0..pieces {
            self.reads.first().await?;
        }
        Ok(Views::of_one(range, &self.memory[0]))
    }

    fn begin_next(&mut self) {
        self.next = self.parts.next();
        let Some(range) = self.next.filter(|_| self.source.device.copies().is_none()) else {
            return;
        };
        for piece in range.split_at_multiples(PIECE_BYTES) {
            let at = (piece.start() - range.start()) as usize;
            let to = self.memory[1].slice(at..at + piece.len() as usize);
            self.reads.begin(piece.start(), &to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::devices::RamDevice;
    use headpond_block::{Executor, Order, VirtualClock};

    #[test]
    fn a_checkpoint_of_any_length_is_read_in_its_order() {
        const LEN_MAX: u64 = 12 * PIECE_BYTES;
        let device = RamDevice::new("d", LEN_MAX + BLOCK_BYTES);
        let bytes: Vec<u8> = (0..LEN_MAX).map(|at| (at * 7 + (at >> 20)) as u8).collect();
        device.memory().slice(BLOCK_BYTES as usize..device.memory().len()).copy_from(&bytes);
        let executor = Executor::new(Box::<VirtualClock>::default(), Order::Seeded(1));
        executor
            .block_on(async {
                let around = |pieces: u64| [pieces * PIECE_BYTES - 1, pieces * PIECE_BYTES + 1];
                let lens = [1, 5, 6, 11].into_iter().flat_map(around);
                for len in [0, 1, BLOCK_BYTES, 5 * PIECE_BYTES, LEN_MAX].into_iter().chain(lens) {
                    let mut reader = CheckpointReader::new(&device, BLOCK_BYTES, len);
                    let mut read = Vec::new();
                    while let Some(piece) = reader.next().await.unwrap() {
                        read.extend(piece.to_vec());
                    }
                    assert!(read == bytes[..len as usize], "{len} bytes");
                }
            })
            .unwrap();
    }
}
