//! The send queue of one connection, and the requests that its peer has in flight.

use super::MemoryBudget;
use headpond_block::{Buffer, BufferPool, Buffers};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

/// One write takes at most this many pieces, well below the system's limit on vectors.
const BATCH_PARTS_MAX: usize = 512;
/// One write takes messages until it has this many bytes, so that memory is released early.
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Headers are packed into memory of this size.
const ARENA_BYTES: usize = 4096;

/// Limits of one peer's requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightLimits {
    pub requests_max: usize,
    pub bytes_max: u64,
}

/// The messages for one peer, in order, and its requests from admission until their replies are
/// sent.
pub struct SendQueue {
    limits: InFlightLimits,
    memory: Rc<MemoryBudget>,
    pool: BufferPool,
    state: RefCell<State>,
    waker: RefCell<Option<Waker>>,
    in_flight: Arc<InFlight>,
    is_broken: Cell<bool>,
    transfers: Cell<Transfers>,
}

/// A peer's requests from admission until their replies are sent. The thread that serves it writes
/// them, all read them.
#[derive(Debug, Default)]
pub struct InFlight {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Writes to the peer, and payloads received from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfers {
    pub begun: u64,
    pub ended: u64,
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

/// Released when a message is sent.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    requests: u64,
    bytes: u64,
}

impl InFlight {
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Payload bytes of these.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The thread that wrote has ended, and with it all requests.
    pub fn forget(&self) {
        self.set(0, 0);
    }

    #[cfg(test)]
    pub(crate) fn of(requests: u64, bytes: u64) -> Self {
        let in_flight = Self::default();
        in_flight.set(requests, bytes);
        in_flight
    }

    /// Only one thread writes at a time.
    fn set(&self, requests: u64, bytes: u64) {
        self.requests.store(requests, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn add(&self, bytes: u64) {
        self.set(self.requests() + 1, self.bytes() + bytes);
    }

    fn remove(&self, account: Account) {
        self.set(self.requests() - account.requests, self.bytes() - account.bytes);
    }
}

impl SendQueue {
    /// An empty queue; `memory` is the budget shared with other connections, and `pool` provides
    /// memory for headers. Nothing is in flight.
    pub fn new(
        limits: InFlightLimits,
        memory: Rc<MemoryBudget>,
        pool: BufferPool,
        in_flight: Arc<InFlight>,
    ) -> Self {
        assert!(limits.requests_max > 0, "at least one request in flight");
        Self {
            limits,
            memory,
            pool,
            state: RefCell::default(),
            waker: RefCell::default(),
            in_flight,
            is_broken: Cell::new(false),
            transfers: Cell::default(),
        }
    }

    /// Whether the peer's share has space for a request of `bytes`. A single one always fits.
    fn has_room(&self, bytes: u64) -> bool {
        let requests = self.in_flight.requests();
        let fits = self.in_flight.bytes().saturating_add(bytes) <= self.limits.bytes_max;
        requests == 0 || (requests < self.limits.requests_max as u64 && fits)
    }

    /// Admits a request of `bytes`, held until its reply is sent, where the peer's share and the
    /// shared budget have space.
    pub fn try_admit(&self, bytes: u64) -> bool {
        let may = self.has_room(bytes) && self.memory.try_take(bytes);
        if may {
            self.account_for(bytes);
        }
        may
    }

    /// Waits until the peer's share has space for `bytes` more.
    pub async fn room(&self, bytes: u64) {
        // An answer that is sent makes the task of the link look again.
        poll_fn(|_| if self.has_room(bytes) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Admits a request that fits the peer's share as soon as there is memory.
    pub async fn admit(&self, bytes: u64) {
        self.memory.take(bytes).await;
        self.account_for(bytes);
    }

    fn account_for(&self, bytes: u64) {
        assert!(self.has_room(bytes), "admission beyond the limits");
        self.in_flight.add(bytes);
    }

    /// Cancels the admission of a request that will get no reply.
    pub fn withdraw(&self, bytes: u64) {
        self.give_back(Account { requests: 1, bytes });
    }

    /// Admitted requests whose replies are not sent yet.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// The peer's progress in reading and sending.
    pub fn transfers(&self) -> Transfers {
        self.transfers.get()
    }

    /// Whether everything pushed was sent and every admitted request has its reply.
    pub fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        self.in_flight.requests() == 0 && state.batches.is_empty() && state.sending.is_none()
    }

    /// Queues the reply to a request that was admitted with `bytes`.
    pub fn push_answer(&self, header: &[u8], payload: &Buffers, bytes: u64) {
        self.push_counted(header, payload, Account { requests: 1, bytes });
    }

    /// Queues a message that is no reply to an admitted request.
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

    /// The connection is lost: nothing more is sent, and queued messages release their memory.
    pub fn break_off(&self) {
        self.is_broken.set(true);
        self.wake();
    }

    /// Whether the connection is lost.
    pub fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// Wakes the link's task, if it waits, to check the queue and its conditions again.
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

    /// A transfer to or from the peer begins.
    pub fn begin_transfer(&self) {
        let Transfers { begun, ended } = self.transfers.get();
        self.transfers.set(Transfers { begun: begun + 1, ended });
    }

    /// The transfer ended, complete or not.
    pub fn end_transfer(&self) {
        let Transfers { begun, ended } = self.transfers.get();
        assert!(ended < begun, "a transfer ends once");
        self.transfers.set(Transfers { begun, ended: ended + 1 });
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
            self.begin_transfer();
            if !self.is_broken.get() {
                return Some(batch.buffers);
            }
            self.sent();
        }
    }

    /// The write in progress is over, well or not.
    pub(super) fn sent(&self) {
        let account = self.state.borrow_mut().sending.take().expect("a write was in progress");
        self.end_transfer();
        self.give_back(account);
    }

    fn give_back(&self, account: Account) {
        self.in_flight.remove(account);
        self.memory.give_back(account.bytes);
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
        let memory = Rc::new(MemoryBudget::new(u64::MAX));
        SendQueue::new(InFlightLimits { requests_max, bytes_max }, memory, pool, Arc::default())
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
        assert!(queue.try_admit(100) && queue.try_admit(100));
        assert!(!queue.has_room(0), "two requests are the limit");
        queue.push_answer(b"done", &Buffers::new(), 100);
        assert!(!queue.has_room(0), "queued is not sent");
        queue.next_batch().expect("a batch");
        queue.sent();
        assert!(queue.has_room(0));
        assert_eq!(queue.in_flight().requests(), 1);
    }

    #[test]
    fn bytes_are_limited_but_one_request_always_fits() {
        let queue = queue(100, 1000);
        assert!(queue.try_admit(5000));
        assert!(!queue.has_room(1));
    }

    #[test]
    fn a_broken_queue_gives_back_what_it_will_never_send() {
        let queue = queue(4, 1000);
        assert!(queue.try_admit(10));
        queue.break_off();
        queue.push_answer(b"lost", &Buffers::new(), 10);
        assert!(queue.next_batch().is_none());
        assert!(queue.is_idle());
    }

    #[test]
    fn memory_that_all_share_comes_back_with_the_answer() {
        let (one, memory) = (queue(4, 1000), Rc::new(MemoryBudget::new(100)));
        let other =
            SendQueue::new(one.limits, Rc::clone(&memory), one.pool.clone(), Arc::default());
        let one = SendQueue::new(one.limits, memory, one.pool.clone(), Arc::default());
        assert!(one.try_admit(90));
        assert!(!other.try_admit(20) && other.try_admit(0));
        one.push_answer(b"done", &Buffers::new(), 90);
        one.next_batch().expect("a batch");
        assert_eq!(one.transfers(), Transfers { begun: 1, ended: 0 });
        one.sent();
        assert_eq!(one.transfers(), Transfers { begun: 1, ended: 1 });
        assert!(other.try_admit(20));
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
