//! Executes the requests of one connection and replies to them.
//!
//! A request that its device completes immediately is replied to immediately; any other is awaited
//! by a task of its own, so that requests complete out of order.

use super::check::Operation;
use super::export::Export;
use super::stats::ConnectionStats;
use crate::codec::reply::{encode_data, encode_done, encode_error, encode_simple};
use crate::codec::request::RequestHeader;
use crate::codec::wire::{Command, WireError};
use crate::device_error::to_wire;
use crate::link::SendQueue;
use headpond_block::{
    Buffer, BufferPool, Buffers, ByteRange, Instant, Outcome, Request, Runtime, Started, memory,
    start,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What one `CACHE` request has in memory at a time, in bytes.
const PREFETCH_BYTES: u64 = 1 << 20;

/// How long a request waits for memory before it is refused: less than clients' connection
/// timeouts. The requests after it wait as well, but not as long again.
const MEMORY_PATIENCE: Duration = Duration::from_secs(5);
const REFUSED_PATIENCE: Duration = Duration::from_millis(50);
/// Time without a refusal after which a shortage is a new one.
const SHORTAGE_ENDS: Duration = Duration::from_secs(1);

/// One connection in the transmission phase, as its requests see it.
pub struct Serving {
    pub runtime: Runtime,
    pub pool: BufferPool,
    pub export: Rc<Export>,
    pub structured_replies: bool,
    /// As in the agreement.
    pub resends: bool,
    pub queue: Rc<SendQueue>,
    pub stats: Arc<ConnectionStats>,
    /// When a request was last refused for lack of memory, in a continuing shortage.
    pub refused: Cell<Option<Instant>>,
}

/// An admitted request that needs a reply.
#[derive(Debug, Clone, Copy)]
struct Asked {
    cookie: u64,
    operation: Operation,
    held_bytes: u64,
}

/// Payload bytes that an operation holds until its reply is sent.
pub fn held_bytes(operation: Operation) -> u64 {
    match operation {
        Operation::Read(range) | Operation::Write(range, _) => range.len(),
        Operation::Cache(range) => range.len().min(PREFETCH_BYTES),
        _ => 0,
    }
}

impl Serving {
    /// Executes an admitted operation; `memory` is the payload of a write, or the destination of a
    /// read from a device that does not lend its own.
    pub fn carry_out(self: &Rc<Self>, cookie: u64, operation: Operation, memory: Option<Buffer>) {
        let asked = Asked { cookie, operation, held_bytes: held_bytes(operation) };
        match operation {
            Operation::Read(range) => self.read(asked, range, memory),
            Operation::Write(range, flags) => {
                let payload = memory.expect("a write has a payload");
                let request = Request::write(range.start(), payload).with_flags(flags);
                self.change(asked, request);
            }
            Operation::Trim(range, flags) => {
                self.change(asked, Request::discard(range).with_flags(flags));
            }
            Operation::WriteZeroes(range, flags) => {
                self.change(asked, Request::write_zeroes(range).with_flags(flags));
            }
            Operation::Flush => self.change(asked, Request::flush()),
            Operation::Cache(range) => self.prefetch(asked, range),
            Operation::Disconnect => unreachable!("a disconnect is not carried out"),
        }
    }

    /// Replies to a request, admitted with no bytes, that will not be executed.
    pub fn refuse(&self, header: &RequestHeader, error: WireError) {
        self.stats.failed();
        let is_read = header.command == Command::Read.to_wire();
        let header = self.error_header(header.cookie, error, is_read);
        self.queue.push_answer(header.as_ref(), &Buffers::new(), 0);
    }

    /// Pool memory for a read: none where the length is 0, or where its device lends memory.
    pub fn memory_bytes_of_read(&self, range: ByteRange) -> Option<usize> {
        let takes = !range.is_empty() && self.export.device().lend(range).is_none();
        takes.then_some(range.len() as usize)
    }

    /// Whether a request that has waited for memory since then is refused now: sooner where the
    /// previous one was, but not as fast as its client can retry.
    pub fn is_patience_over(&self, begun: Instant) -> bool {
        let now = self.runtime.now();
        let was_refused = self.refused.get().is_some_and(|at| now.since(at) < SHORTAGE_ENDS);
        let patience = if was_refused { REFUSED_PATIENCE } else { MEMORY_PATIENCE };
        let is_over = now.since(begun) >= patience;
        if is_over {
            self.refused.set(Some(now));
        }
        is_over
    }

    /// A request got memory, which ends a shortage unless little is free.
    pub fn note_memory(&self) {
        if !memory::is_short() {
            self.refused.set(None);
        }
    }

    fn read(self: &Rc<Self>, asked: Asked, range: ByteRange, memory: Option<Buffer>) {
        if range.is_empty() {
            return self.answer_read(asked, Ok(()), Buffers::new());
        }
        let memory = match memory {
            Some(memory) => memory,
            None => match self.export.device().lend(range) {
                Some(lent) => return self.answer_read(asked, Ok(()), lent.into()),
                // It has begun to be recorded since it was asked last.
                None => self.pool.take(range.len() as usize),
            },
        };
        match start(self.export.device(), Request::read(range.start(), memory.clone())) {
            Ok(outcome) => self.answer_read(asked, outcome, memory.into()),
            Err(started) => {
                let serving = Rc::clone(self);
                self.runtime.spawn(async move {
                    let outcome = started.await;
                    serving.answer_read(asked, outcome, memory.into());
                });
            }
        }
    }

    /// Operations whose reply has no payload.
    fn change(self: &Rc<Self>, asked: Asked, request: Request) {
        let is_flush = asked.operation == Operation::Flush;
        if request.range.is_empty() && !is_flush {
            return self.answer(asked, Ok(()));
        }
        match start(self.export.device(), request) {
            Ok(outcome) => self.answer(asked, outcome),
            Err(started) => self.answer_later(asked, started),
        }
    }

    fn answer_later(self: &Rc<Self>, asked: Asked, started: Started) {
        let serving = Rc::clone(self);
        self.runtime.spawn(async move {
            let outcome = started.await;
            serving.answer(asked, outcome);
        });
    }

    /// Reads the range piece by piece, so that caches below hold it. A device that lends its memory
    /// gains nothing.
    fn prefetch(self: &Rc<Self>, asked: Asked, range: ByteRange) {
        if range.is_empty() || self.export.device().lend(range).is_some() {
            return self.answer(asked, Ok(()));
        }
        let serving = Rc::clone(self);
        self.runtime.spawn(async move {
            let outcome = serving.read_through(range).await;
            serving.answer(asked, outcome);
        });
    }

    async fn read_through(&self, range: ByteRange) -> Outcome {
        for piece in range.split_at_multiples(PREFETCH_BYTES) {
            // A hint that there is no memory for has been taken.
            let Some(memory) = self.pool.try_take(piece.len() as usize) else { break };
            self.export.device().read(piece.start(), memory).await?;
        }
        Ok(())
    }

    fn answer_read(&self, asked: Asked, outcome: Outcome, data: Buffers) {
        if let Err(error) = outcome {
            return self.answer_error(asked, to_wire(&error));
        }
        let Operation::Read(range) = asked.operation else { unreachable!("only reads come here") };
        self.stats.read(range.len());
        let (cookie, length) = (asked.cookie, range.len() as u32);
        let header = if !self.structured_replies {
            Header::new(&encode_simple(cookie, None))
        } else if range.is_empty() {
            Header::new(&encode_done(cookie))
        } else {
            Header::new(&encode_data(cookie, range.start(), length))
        };
        self.queue.push_answer(header.as_ref(), &data, asked.held_bytes);
    }

    fn answer(&self, asked: Asked, outcome: Outcome) {
        // A discard is a hint: a device that cannot do it has taken the hint.
        let is_trim = matches!(asked.operation, Operation::Trim(..));
        match outcome {
            Err(error) if is_trim && error.is_unsupported() => {}
            Err(error) => return self.answer_error(asked, to_wire(&error)),
            Ok(()) => {}
        }
        if let Operation::Write(range, _) = asked.operation {
            self.stats.written(range.len());
        }
        let header = encode_simple(asked.cookie, None);
        self.queue.push_answer(&header, &Buffers::new(), asked.held_bytes);
    }

    fn answer_error(&self, asked: Asked, error: WireError) {
        self.stats.failed();
        let is_read = matches!(asked.operation, Operation::Read(_));
        let header = self.error_header(asked.cookie, error, is_read);
        self.queue.push_answer(header.as_ref(), &Buffers::new(), asked.held_bytes);
    }

    /// Replies to reads must be structured once that was negotiated; others may be simple.
    fn error_header(&self, cookie: u64, error: WireError, is_read: bool) -> Header {
        if self.structured_replies && is_read {
            Header::new(&encode_error(cookie, error))
        } else {
            Header::new(&encode_simple(cookie, Some(error)))
        }
    }
}

/// The header of a reply, simple or structured.
struct Header {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl Header {
    const BYTES_MAX: usize = 28;

    fn new(encoded: &[u8]) -> Self {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..encoded.len()].copy_from_slice(encoded);
        Self { bytes, len: encoded.len() }
    }
}

impl AsRef<[u8]> for Header {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
