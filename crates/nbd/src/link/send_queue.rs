//! What waits to be sent on one connection, and how much its peer has in flight.

use headpond_block::{Buffer, BufferPool, Buffers};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

/// One write takes at most this many pieces, well below the system's limit on vectors.
const BATCH_PARTS_MAX: usize = 512;
/// One write takes messages until it has this many bytes, so that memory is given back early.
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Headers are packed into memory of this size.
const ARENA_BYTES: usize = 4096;

/// How much one peer may have in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightLimits {
    pub requests_max: usize,
    pub bytes_max: u64,
}

/// The messages for one peer, in order, and the account of its requests from admission until their
/// answers are sent.
pub struct SendQueue {
    limits: InFlightLimits,
    pool: BufferPool,
    state: RefCell<State>,
    waker: RefCell<Option<Waker>>,
    requests: Cell<usize>,
    bytes: Cell<u64>,
    is_broken: Cell<bool>,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Batch>,
    /// The batch being written.
    sending: Option<Account>,
    arena: Option<(Buffer, usize)>,
}

#[derive(Default)]
struct Batch {
    buffers: Buffers,
    account: Account,
}

/// What is given back when a message is sent.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    requests: usize,
    bytes: u64,
}

impl SendQueue {
    /// An empty queue; `pool` provides memory for headers.
    pub fn new(limits: InFlightLimits, pool: BufferPool) -> Self {
        assert!(limits.requests_max > 0, "at least one request in flight");
        Self {
            limits,
            pool,
            state: RefCell::default(),
            waker: RefCell::default(),
            requests: Cell::new(0),
            bytes: Cell::new(0),
            is_broken: Cell::new(false),
        }
    }

    /// Whether a request of `bytes` may be admitted now. A single one always may.
    pub fn has_room(&self, bytes: u64) -> bool {
        let requests = self.requests.get();
        let fits = self.bytes.get().saturating_add(bytes) <= self.limits.bytes_max;
        requests == 0 || (requests < self.limits.requests_max && fits)
    }

    /// Accounts for a request of `bytes` until its answer is sent.
    pub fn admit(&self, bytes: u64) {
        assert!(self.has_room(bytes), "admission beyond the limits");
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Takes back the admission of a request that will never be answered.
    pub fn withdraw(&self, bytes: u64) {
        self.give_back(Account { requests: 1, bytes });
    }

    /// Requests that were admitted and whose answers are not sent yet.
    pub fn in_flight(&self) -> usize {
        self.requests.get()
    }

    /// Whether everything pushed was sent and no admitted request lacks its answer.
    pub fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        self.requests.get() == 0 && state.batches.is_empty() && state.sending.is_none()
    }

    /// Queues the answer to a request that was admitted with `bytes`.
    pub fn push_answer(&self, header: &[u8], payload: &Buffers, bytes: u64) {
        self.push_counted(header, payload, Account { requests: 1, bytes });
    }

    /// Queues a message that answers no admitted request.
    pub fn push(&self, header: &[u8], payload: &Buffers) {
        self.push_counted(header, payload, Account::default());
    }

    fn push_counted(&self, header: &[u8], payload: &Buffers, account: Account) {
        let mut state = self.state.borrow_mut();
        let header = state.stow(header, &self.pool);
        let batch = state.open_batch(1 + payload.count());
        batch.buffers.push(header);
        batch.buffers.extend(payload);
        batch.account.requests += account.requests;
        batch.account.bytes += account.bytes;
        drop(state);
        self.wake();
    }

    /// Nothing is sent any more: the connection is lost. What is queued is given back.
    pub fn break_off(&self) {
        self.is_broken.set(true);
        self.wake();
    }

    /// Makes the task of the link look at the queue and at its conditions again, if it waits.
    pub fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The link's task is about to wait.
    pub(super) fn register(&self, waker: &Waker) {
        *self.waker.borrow_mut() = Some(waker.clone());
    }

    /// The link's task runs: what it pushes itself must not wake it.
    pub(super) fn attend(&self) {
        *self.waker.borrow_mut() = None;
    }

    /// The bytes of the next write, which the caller reports as [`Self::sent`] in the end.
    pub(super) fn next_batch(&self) -> Option<Buffers> {
        loop {
            let batch = {
                let mut state = self.state.borrow_mut();
                assert!(state.sending.is_none(), "one write at a time");
                let batch = state.batches.pop_front()?;
                state.sending = Some(batch.account);
                batch
            };
            if !self.is_broken.get() {
                return Some(batch.buffers);
            }
            self.sent();
        }
    }

    /// The write in progress is over, well or not.
    pub(super) fn sent(&self) {
        let account = self.state.borrow_mut().sending.take().expect("a write was in progress");
        self.give_back(account);
    }

    fn give_back(&self, account: Account) {
        self.requests.set(self.requests.get() - account.requests);
        self.bytes.set(self.bytes.get() - account.bytes);
    }
}

impl State {
    /// Copies a header into the arena, where it stays until it is sent.
    fn stow(&mut self, header: &[u8], pool: &BufferPool) -> Buffer {
        let (arena, used) = match self.arena.take() {
            Some((arena, used)) if used + header.len() <= arena.len() => (arena, used),
            _ => (pool.take(ARENA_BYTES.max(header.len())), 0),
        };
        let end = used + header.len();
        let stowed = arena.slice(used..end);
        stowed.copy_from(header);
        self.arena = Some((arena, end));
        stowed
    }

    fn open_batch(&mut self, parts: usize) -> &mut Batch {
        let has_room = self.batches.back().is_some_and(|batch| {
            batch.buffers.count() + parts <= BATCH_PARTS_MAX
                && batch.buffers.len_bytes() < BATCH_BYTES_MAX
        });
        if !has_room {
            self.batches.push_back(Batch::default());
        }
        self.batches.back_mut().expect("a batch was just there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::PoolConfig;

    fn queue(requests_max: usize, bytes_max: u64) -> SendQueue {
        let pool = BufferPool::new(&PoolConfig::default());
        SendQueue::new(InFlightLimits { requests_max, bytes_max }, pool)
    }

    #[test]
    fn everything_queued_goes_out_in_one_write_in_order() {
        let queue = queue(8, 1 << 20);
        queue.push(b"one", &Buffer::from_slice(b"payload").into());
        queue.push(b"two", &Buffers::new());
        queue.push(b"three", &Buffers::new());
        let batch = queue.next_batch().expect("a batch");
        assert_eq!(batch.to_vec(), b"onepayloadtwothree");
        assert_eq!(batch.count(), 3, "neighbouring headers are one piece");
        queue.sent();
        assert!(queue.next_batch().is_none());
        assert!(queue.is_idle());
    }

    #[test]
    fn a_request_counts_until_its_answer_is_sent() {
        let queue = queue(2, 1 << 20);
        queue.admit(100);
        queue.admit(100);
        assert!(!queue.has_room(0), "two requests are the limit");
        queue.push_answer(b"done", &Buffers::new(), 100);
        assert!(!queue.has_room(0), "queued is not sent");
        queue.next_batch().expect("a batch");
        queue.sent();
        assert!(queue.has_room(0));
        assert_eq!(queue.in_flight(), 1);
    }

    #[test]
    fn bytes_are_limited_but_one_request_always_fits() {
        let queue = queue(100, 1000);
        assert!(queue.has_room(5000));
        queue.admit(5000);
        assert!(!queue.has_room(1));
    }

    #[test]
    fn a_broken_queue_gives_back_what_it_will_never_send() {
        let queue = queue(4, 1000);
        queue.admit(10);
        queue.break_off();
        queue.push_answer(b"lost", &Buffers::new(), 10);
        assert!(queue.next_batch().is_none());
        assert!(queue.is_idle());
    }

    #[test]
    fn long_queues_are_cut_into_writes_of_bounded_size() {
        let queue = queue(4, 1000);
        for _ in 0..6 {
            queue.push(b"header", &Buffer::zeroed(1 << 20).into());
        }
        let mut writes = 0;
        while let Some(batch) = queue.next_batch() {
            assert!(batch.len_bytes() <= BATCH_BYTES_MAX + (1 << 20) + 6);
            queue.sent();
            writes += 1;
        }
        assert_eq!(writes, 3);
    }
}
