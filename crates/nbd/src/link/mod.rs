//! Both directions of one connection, driven by one task.
//!
//! 1. Messages for the peer are pushed to the [`SendQueue`], from this task or from any other.
//! 2. Whenever the task waits, for bytes or for space, the link sends the queue in one vectored
//!    write. A request that completes immediately therefore costs one receive and one send, which
//!    an io_uring runtime submits together.
//! 3. Received bytes are in one large buffer. Small messages are decoded there and payloads are
//!    slices of it; large payloads are received straight into memory of their own.
//!
//! **Invariants**
//! - At most one read and one write of the stream are in progress.
//! - Memory handed out as a slice is not received into again while the slice exists: the pool
//!   reuses a buffer only after its last slice is dropped.
//! - A disconnected peer ends every wait except the last, for operations in flight.
//! - A peer that does not read is not read from once its share of the queue is used up.
//!
//! **Not here**: the meaning of the bytes.

mod memory;
mod send_queue;

pub use memory::{MemoryBudget, MemoryGauges};
pub use send_queue::{InFlight, InFlightLimits, SendQueue, Transfers};

use crate::codec::request::RequestHeader;
use headpond_block::executor::Sleep;
use headpond_block::{Buffer, BufferPool, LocalFuture, PoolClass, PoolConfig, Runtime, Stream};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Size of a receive buffer.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Where the first message is received: a write payload that follows its header is then aligned.
const FIRST: usize = ALIGNMENT - RequestHeader::BYTES;
const ALIGNMENT: usize = 4096;
/// The header of a request, or of a chunk of data with its offset.
const LONGEST_HEADER_BYTES: usize = 28;
/// The smallest space worth a receive.
const ROOM_BYTES_MIN: usize = 32 * 1024;
/// How often a waiting link checks whether its peer has disconnected. A write detects it too, but
/// nothing is written while a slow device executes the peer's requests.
const WATCH_PAUSE: Duration = Duration::from_millis(100);
/// Payloads up to this size stay in the receive buffer.
pub const SMALL_PAYLOAD_BYTES_MAX: usize = 64 * 1024;

const _: () = assert!(FIRST + SMALL_PAYLOAD_BYTES_MAX + ROOM_BYTES_MIN < RECEIVE_BYTES);

/// The memory that links receive into; one for all connections of a thread.
#[derive(Clone)]
pub struct ReceivePool(BufferPool);

impl ReceivePool {
    /// Space for `count` receive buffers, allocated at their first use.
    pub fn new(count: usize) -> Self {
        let classes = vec![PoolClass { buffer_bytes: RECEIVE_BYTES, count }];
        Self(BufferPool::new(&PoolConfig { classes }))
    }
}

/// One connection as its task sees it.
pub struct Link<'s> {
    stream: &'s dyn Stream,
    queue: Rc<SendQueue>,
    writing: Option<LocalFuture<'s, io::Result<()>>>,
    pool: ReceivePool,
    buffer: Buffer,
    start: usize,
    end: usize,
    /// Whether a slice of the receive buffer was handed out since it was taken.
    is_lent: bool,
    /// After a large payload the next message is received alone, so that the payload behind it is
    /// not caught in the receive buffer.
    expects_large: bool,
    /// When the link disconnects itself.
    deadline: Option<Sleep>,
    /// When the link next checks whether its peer has disconnected, if it waits then. It outlives
    /// the wait, so that short waits cost no timer.
    watch: Option<Sleep>,
}

impl<'s> Link<'s> {
    pub fn new(stream: &'s dyn Stream, queue: Rc<SendQueue>, pool: ReceivePool) -> Self {
        let buffer = pool.0.take(RECEIVE_BYTES);
        let (start, end) = (FIRST, FIRST);
        let (is_lent, expects_large) = (false, false);
        let (writing, deadline, watch) = (None, None, None);
        Self {
            stream,
            queue,
            writing,
            pool,
            buffer,
            start,
            end,
            is_lent,
            expects_large,
            deadline,
            watch,
        }
    }

    /// Shuts the stream down after `deadline`, if any: this ends waits in both directions.
    pub fn set_deadline(&mut self, deadline: Option<Sleep>) {
        self.deadline = deadline;
    }

    pub fn queue(&self) -> &Rc<SendQueue> {
        &self.queue
    }

    /// Bytes that were received and not yet consumed.
    pub fn available(&self) -> usize {
        self.end - self.start
    }

    /// Receives until `count` bytes are buffered; `false` where the stream ends before.
    ///
    /// # Errors
    /// The stream's error.
    ///
    /// # Panics
    /// Where `count` is more than a receive buffer can hold.
    pub async fn fill(&mut self, count: usize) -> io::Result<bool> {
        assert!(FIRST + count <= RECEIVE_BYTES, "{count} bytes do not fit a receive buffer");
        while self.available() < count {
            self.make_room(count);
            let alone = self.start + count.max(LONGEST_HEADER_BYTES);
            let limit = if self.expects_large { alone } else { RECEIVE_BYTES };
            let received = self.read(self.buffer.slice(self.end..limit)).await?;
            if received == 0 {
                return Ok(false);
            }
            self.end += received;
        }
        Ok(true)
    }

    /// Copies the first bytes that are there to `to` without consuming them.
    ///
    /// # Panics
    /// Where fewer are there.
    pub fn peek(&self, to: &mut [u8]) {
        self.peek_at(0, to);
    }

    /// The same of bytes behind the first ones.
    ///
    /// # Panics
    /// Where fewer are there.
    pub fn peek_at(&self, at: usize, to: &mut [u8]) {
        assert!(at + to.len() <= self.available(), "peek at bytes that were not received");
        let start = self.start + at;
        self.buffer.slice(start..start + to.len()).copy_to(to);
    }

    /// Takes all bytes that were received and not consumed.
    pub fn take_received(&mut self) -> Vec<u8> {
        let received = self.buffer.slice(self.start..self.end).to_vec();
        self.start = self.end;
        received
    }

    /// Bytes that another link has received and not consumed, before all others.
    ///
    /// # Panics
    /// Where there are some here.
    pub fn put_received(&mut self, bytes: &[u8]) {
        assert!(self.available() == 0, "bytes before these");
        if self.is_lent {
            self.buffer = self.pool.0.take(RECEIVE_BYTES);
            self.is_lent = false;
        }
        (self.start, self.end) = (FIRST, FIRST + bytes.len());
        self.buffer.slice(self.start..self.end).copy_from(bytes);
    }

    /// Drops `count` bytes that are there.
    ///
    /// # Panics
    /// Where fewer are there.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.available(), "consume bytes that were not received");
        self.start += count;
    }

    /// Receives a small payload of `count` bytes without a copy. `None` where the stream ends
    /// before.
    ///
    /// # Errors
    /// The stream's error.
    pub async fn small_payload(&mut self, count: usize) -> io::Result<Option<Buffer>> {
        debug_assert!(count <= SMALL_PAYLOAD_BYTES_MAX);
        self.expects_large = false;
        if !self.fill(count).await? {
            return Ok(None);
        }
        let payload = self.buffer.slice(self.start..self.start + count);
        self.start += count;
        self.is_lent = true;
        Ok(Some(payload))
    }

    /// Fills `to` with the next bytes: what is there is copied; what is still to come of a large
    /// payload is received in place, and not a byte more.
    /// `false` where the stream ends before.
    ///
    /// # Errors
    /// The stream's error.
    pub async fn receive_into(&mut self, to: Buffer) -> io::Result<bool> {
        let mut done = 0;
        self.expects_large = to.len() > SMALL_PAYLOAD_BYTES_MAX;
        while done < to.len() {
            if self.available() == 0 && self.expects_large {
                done += match self.read(to.slice(done..to.len())).await? {
                    0 => return Ok(false),
                    received => received,
                };
                continue;
            }
            if !self.fill(1).await? {
                return Ok(false);
            }
            let count = self.available().min(to.len() - done);
            let there = self.buffer.slice(self.start..self.start + count);
            to.slice(done..done + count).copy_from_buffer(&there);
            self.start += count;
            done += count;
        }
        Ok(true)
    }

    /// Drops the next `count` bytes; `false` where the stream ends before.
    ///
    /// # Errors
    /// The stream's error.
    pub async fn skip(&mut self, count: usize) -> io::Result<bool> {
        self.expects_large = false;
        let mut left = count;
        while left > 0 {
            if !self.fill(1).await? {
                return Ok(false);
            }
            let step = left.min(self.available());
            self.start += step;
            left -= step;
        }
        Ok(true)
    }

    /// Waits for a future while sending; `None` where the peer disconnects first. A half-closed
    /// peer has not disconnected.
    pub async fn wait<T>(&mut self, runtime: &Runtime, end: impl Future<Output = T>) -> Option<T> {
        let mut end = pin!(end);
        let output = poll_fn(|context| {
            self.poll_send(context);
            self.poll_watch(context, runtime);
            if self.queue.is_broken() {
                return Poll::Ready(None);
            }
            end.as_mut().poll(context).map(Some)
        })
        .await;
        self.queue.attend();
        output
    }

    /// Waits for a future while sending, also without the peer. The queue wakes the task.
    pub async fn send_until(&mut self, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        poll_fn(|context| {
            self.poll_send(context);
            end.as_mut().poll(context)
        })
        .await;
        self.queue.attend();
    }

    async fn read(&mut self, to: Buffer) -> io::Result<usize> {
        let mut reading = self.stream.read(to);
        let received = poll_fn(|context| {
            self.poll_send(context);
            reading.as_mut().poll(context)
        })
        .await;
        self.queue.attend();
        received
    }

    /// Continues the write in progress and starts further ones as long as they complete
    /// immediately.
    fn poll_send(&mut self, context: &mut Context<'_>) {
        self.queue.register(context.waker());
        self.poll_deadline(context);
        loop {
            if let Some(writing) = &mut self.writing {
                let Poll::Ready(outcome) = writing.as_mut().poll(context) else { return };
                self.writing = None;
                self.queue.sent();
                if outcome.is_err() {
                    self.cut_off();
                }
            }
            let Some(buffers) = self.queue.next_batch() else { return };
            self.writing = Some(self.stream.write_all(buffers));
        }
    }

    fn poll_deadline(&mut self, context: &mut Context<'_>) {
        let Some(deadline) = &mut self.deadline else { return };
        if Pin::new(deadline).poll(context).is_ready() {
            self.deadline = None;
            self.cut_off();
        }
    }

    fn poll_watch(&mut self, context: &mut Context<'_>, runtime: &Runtime) {
        loop {
            let watch = self.watch.get_or_insert_with(|| runtime.sleep(WATCH_PAUSE));
            if Pin::new(watch).poll(context).is_pending() {
                return;
            }
            self.watch = None;
            if self.stream.is_hung_up() {
                return self.cut_off();
            }
        }
    }

    fn cut_off(&self) {
        self.queue.break_off();
        self.stream.shutdown();
    }

    /// Makes space for `count` bytes from the first unconsumed one on, and for a worthwhile
    /// receive.
    fn make_room(&mut self, count: usize) {
        if self.available() == 0 {
            let payload = (self.end + RequestHeader::BYTES).next_multiple_of(ALIGNMENT);
            let next = (payload - RequestHeader::BYTES).min(RECEIVE_BYTES);
            self.start = if self.is_lent { next } else { FIRST };
            self.end = self.start;
        }
        let needed = (self.start + count).max(self.end + ROOM_BYTES_MIN);
        if needed > RECEIVE_BYTES {
            self.move_to_front();
        }
    }

    /// Moves unconsumed bytes to the front of a receive buffer without outstanding slices.
    fn move_to_front(&mut self) {
        let rest = self.buffer.slice(self.start..self.end);
        if self.is_lent {
            self.buffer = self.pool.0.take(RECEIVE_BYTES);
            self.is_lent = false;
        }
        (self.start, self.end) = (FIRST, FIRST + rest.len());
        self.buffer.slice(self.start..self.end).copy_from_buffer(&rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::Buffers;
    use std::cell::Cell;
    use std::sync::Arc;

    /// Brings ascending bytes without end; the first read `first` of them, any other what it takes.
    struct Endless {
        first: Cell<Option<usize>>,
        sent: Cell<usize>,
    }

    impl Stream for Endless {
        fn read(&self, to: Buffer) -> LocalFuture<'_, io::Result<usize>> {
            let count = self.first.take().unwrap_or(to.len()).min(to.len());
            to.slice(0..count).copy_from(&bytes_at(self.sent.get(), count));
            self.sent.set(self.sent.get() + count);
            Box::pin(async move { Ok(count) })
        }

        fn write_all(&self, _: Buffers) -> LocalFuture<'_, io::Result<()>> {
            unreachable!("nothing is queued")
        }

        fn shutdown(&self) {}

        fn is_hung_up(&self) -> bool {
            false
        }

        fn peer(&self) -> String {
            "endless".into()
        }
    }

    fn bytes_at(position: usize, count: usize) -> Vec<u8> {
        (position..position + count).map(|at| (at % 251) as u8).collect()
    }

    /// Takes everything that the first read brought as payloads, then one more header.
    async fn take_all_and_a_header(link: &mut Link<'_>, brought: usize) {
        assert!(link.fill(LONGEST_HEADER_BYTES).await.unwrap());
        assert_eq!(link.available(), brought);
        let mut held = Vec::new();
        while link.available() > 0 {
            let count = link.available().min(SMALL_PAYLOAD_BYTES_MAX);
            held.push(link.small_payload(count).await.unwrap().expect("it is there"));
        }
        assert!(link.fill(LONGEST_HEADER_BYTES).await.unwrap());
        let mut header = [0; LONGEST_HEADER_BYTES];
        link.peek(&mut header);
        assert_eq!(header[..], bytes_at(brought, header.len()));
        let held: Vec<u8> = held.iter().flat_map(Buffer::to_vec).collect();
        assert!(held == bytes_at(0, brought), "payloads keep their bytes");
    }

    #[test]
    fn a_receive_buffer_may_end_anywhere_behind_a_payload_that_is_still_held() {
        let pool = BufferPool::new(&PoolConfig::default());
        let limits = InFlightLimits { requests_max: 1, bytes_max: 1 };
        let memory = Rc::new(MemoryBudget::new(u64::MAX));
        for left in (0..=2 * LONGEST_HEADER_BYTES).chain([ALIGNMENT, ROOM_BYTES_MIN]) {
            let brought = RECEIVE_BYTES - FIRST - left;
            let stream = Endless { first: Cell::new(Some(brought)), sent: Cell::new(0) };
            let queue =
                Rc::new(SendQueue::new(limits, Rc::clone(&memory), pool.clone(), Arc::default()));
            let mut link = Link::new(&stream, queue, ReceivePool::new(2));
            let mut context = Context::from_waker(std::task::Waker::noop());
            let taking = Box::pin(take_all_and_a_header(&mut link, brought));
            assert!({ taking }.as_mut().poll(&mut context).is_ready(), "the stream never waits");
        }
    }
}
