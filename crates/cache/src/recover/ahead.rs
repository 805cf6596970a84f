//! Reading ahead of an open: while it looks at what has come, what comes next is on its way.
//!
//! **Invariant**: pieces are answered in the order in which they were begun.

use super::Source;
use super::mirrored::Views;
use crate::format::slice_header::CheckpointRef;
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
    /// # Panics
    /// Where the checkpoint is longer than its area.
    pub fn new(source: &Source<'a>, checkpoint: CheckpointRef) -> Self {
        let place = source.layout.checkpoint(checkpoint.area);
        assert!(checkpoint.bytes <= place.len(), "a checkpoint lies in its area");
        let memory = (0..PIECES).map(|_| Buffer::zeroed(PIECE_BYTES as usize)).collect();
        let (start, len) = (place.start(), checkpoint.bytes);
        Self { reads: Reads::new(source.device), memory, start, len, taken: 0, begun: 0 }
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
            Self { source, parts, reads: Reads::new(source.device), next: None, memory };
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
