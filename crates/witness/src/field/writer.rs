//! The end that will lose its power: writes as it is told and reports all of it.
//!
//! 1. Writes are planned and announced ahead; each waits until the witness has stored its
//!    announcement.
//! 2. `depth` workers take them in order: report that it begins, submit, report the answer. After
//!    so many writes one of them flushes.
//! 3. One task sends what has been reported and waits until that is stored, then the next lot.
//! 4. At the end nothing more begins, what is in flight is awaited and flushed, and the writer says
//!    that it ends in order.
//!
//! **Invariants**: a report enters the queue before what it speaks of can have an effect (*begun*),
//! or after it has had it (*acknowledged*); the queue keeps that order. Writes of one block follow
//! each other.

use super::content::fill;
use super::event::Event;
use super::link::{Link, LinkError};
use super::pattern::Places;
use super::wire::{EVENTS_MAX, FromWitness, Sync, ToWitness, Welcome, WireLoad};
use crate::{BLOCK_BYTES, Payload};
use headpond_block::sync::{Access, Notify, RangeLocks};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceError, Instant, Request, RequestFlags, Runtime,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Writes that are announced ahead, in multiples of the depth.
const AHEAD: usize = 8;
/// While a flush runs, so many times as many writes go on as there are from one flush to the next.
const UNPROMISED: u64 = 4;
/// A writer that has nothing to report says so, so that the witness knows that it is there.
const STILL_THERE_EVERY: Duration = Duration::from_secs(5);
/// A witness that does not store what it is told for so long is gone.
const STORE_TIME_MAX: Duration = Duration::from_secs(60);
/// Writes that fail one after another before the device is given up.
const FAILURES_MAX: u32 = 100;

/// A writer stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the witness is lost, so nothing more is written: {0}")]
    Link(#[from] LinkError),
    #[error("the witness has not stored what it was told for {} s, so nothing more is written", STORE_TIME_MAX.as_secs())]
    Silent,
    #[error("the witness refuses: {0}")]
    Refused(String),
    #[error("the witness answers something else than expected")]
    OutOfPlace,
    #[error("{FAILURES_MAX} writes have failed one after another, the last one so: {0}")]
    Device(DeviceError),
}

/// What a writer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterTotals {
    pub writes: u64,
    pub flushes: u64,
    pub failed: u64,
}

/// What the tasks of a writer share.
pub struct Writer {
    device: Rc<dyn BlockDevice>,
    runtime: Runtime,
    link: Rc<Link>,
    load: WireLoad,
    payload: Payload,
    start_bytes: u64,
    places: RefCell<Places>,
    next_sequence: Cell<u64>,
    queue: RefCell<VecDeque<Event>>,
    /// Announced, the oldest first.
    planned: RefCell<VecDeque<Planned>>,
    /// Announcements that the witness has stored, and that nobody has taken.
    ready: Cell<u64>,
    in_order: RangeLocks,
    since_flush: Cell<u64>,
    is_flushing: Cell<bool>,
    failures: Cell<u32>,
    ends_at: Cell<Instant>,
    is_over: Cell<bool>,
    failed: RefCell<Option<WriteError>>,
    changed: Notify,
    written: Cell<WriterTotals>,
}

#[derive(Clone, Copy)]
struct Planned {
    sequence: u64,
    block: u64,
}

impl Writer {
    /// A writer on a device whose session has been opened.
    ///
    /// # Panics
    /// Where the region does not fit the device, or a write not the region.
    pub fn new(
        device: Rc<dyn BlockDevice>,
        runtime: &Runtime,
        link: Rc<Link>,
        load: WireLoad,
        welcome: &Welcome,
    ) -> Rc<Self> {
        let region = welcome.region;
        assert!(region.start_bytes + region.size_bytes() <= device.size_bytes(), "it fits");
        let seed = welcome.seed ^ welcome.next_sequence;
        let ends_at = load.seconds.map_or(Instant::from_nanos(u64::MAX), |seconds| {
            runtime.now() + Duration::from_secs(seconds)
        });
        Rc::new(Self {
            device,
            runtime: runtime.clone(),
            link,
            load,
            payload: Payload::new(welcome.seed),
            start_bytes: region.start_bytes,
            places: RefCell::new(Places::new(load, region.blocks, seed)),
            next_sequence: Cell::new(welcome.next_sequence),
            queue: RefCell::default(),
            planned: RefCell::default(),
            ready: Cell::new(0),
            in_order: RangeLocks::new(),
            since_flush: Cell::new(0),
            is_flushing: Cell::new(false),
            failures: Cell::new(0),
            ends_at: Cell::new(ends_at),
            is_over: Cell::new(false),
            failed: RefCell::new(None),
            changed: Notify::new(),
            written: Cell::default(),
        })
    }

    pub fn written(&self) -> WriterTotals {
        self.written.get()
    }

    /// Ends in order, soon.
    pub fn stop(&self) {
        self.ends_at.set(self.runtime.now());
        self.changed.notify_all();
    }

    /// Writes until the time is over, or it is stopped.
    ///
    /// # Errors
    /// Where the witness or the device is lost; what was submitted is then in flight for the
    /// witness.
    pub async fn run(self: &Rc<Self>) -> Result<WriterTotals, WriteError> {
        let reporter = {
            let writer = Rc::clone(self);
            self.runtime.spawn(async move { writer.report().await })
        };
        self.plan();
        let workers: Vec<_> = (0..self.load.depth)
            .map(|_| {
                let writer = Rc::clone(self);
                self.runtime.spawn(async move { writer.work().await })
            })
            .collect();
        for worker in workers {
            worker.await;
        }
        if self.failed.borrow().is_none() {
            self.flush().await;
            self.say(Event::Ended);
        }
        self.is_over.set(true);
        self.changed.notify_all();
        reporter.await;
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self.written()),
        }
    }

    fn is_ending(&self) -> bool {
        self.failed.borrow().is_some() || self.runtime.now() >= self.ends_at.get()
    }

    fn fail(&self, error: WriteError) {
        let mut failed = self.failed.borrow_mut();
        if failed.is_none() {
            *failed = Some(error);
        }
        drop(failed);
        self.changed.notify_all();
    }

    fn say(&self, event: Event) {
        self.queue.borrow_mut().push_back(event);
        self.changed.notify_all();
    }

    /// Announces writes ahead of the workers.
    fn plan(&self) {
        let ahead = self.load.depth as usize * AHEAD;
        while self.planned.borrow().len() < ahead && !self.is_ending() {
            let (sequence, block) = (self.next_sequence.get(), self.places.borrow_mut().next());
            self.next_sequence.set(sequence + 1);
            self.planned.borrow_mut().push_back(Planned { sequence, block });
            self.say(Event::Announced { sequence, block, blocks: self.load.write_blocks });
        }
    }

    async fn work(&self) {
        loop {
            let Some(planned) = self.announced().await else { return };
            self.plan();
            self.write(planned).await;
            if self.wants_flush() {
                self.flush().await;
            }
            // A device that is slow to flush would otherwise promise next to nothing.
            while self.is_flushing.get() && self.has_much_unpromised() && !self.is_ending() {
                self.changed.wait().await;
            }
        }
    }

    /// Waits for a write whose announcement is stored; `None` at the end.
    async fn announced(&self) -> Option<Planned> {
        loop {
            if self.is_ending() {
                return None;
            }
            if let Some(ready) = self.ready.get().checked_sub(1) {
                self.ready.set(ready);
                return self.planned.borrow_mut().pop_front();
            }
            let until = self.ends_at.get().min(self.runtime.now() + STILL_THERE_EVERY);
            first_of(self.changed.wait(), self.runtime.sleep_until(until)).await;
        }
    }

    async fn write(&self, Planned { sequence, block }: Planned) {
        let len = self.load.write_blocks * BLOCK_BYTES;
        let range = ByteRange::at(self.start_bytes + block * BLOCK_BYTES, len);
        let _in_order = self.in_order.lock(range, Access::Exclusive).await;
        let mut bytes = vec![0; len as usize];
        fill(&self.payload, sequence, block * BLOCK_BYTES, &mut bytes);
        let mut request = Request::write(range.start(), Buffer::from_slice(&bytes));
        let is_stable = self.load.sync == Sync::Fua;
        if is_stable {
            request = request.with_flags(RequestFlags::FUA);
        }
        self.say(Event::Begun { sequence });
        let outcome = self.device.submit(request).await;
        let mut written = self.written.get();
        match outcome {
            Ok(()) => {
                let stable = Event::Stable { sequence };
                self.say(if is_stable { stable } else { Event::Acknowledged { sequence } });
                written.writes += 1;
                self.failures.set(0);
                self.since_flush.set(self.since_flush.get() + 1);
            }
            Err(error) => {
                self.say(Event::Failed { sequence });
                written.failed += 1;
                self.failures.set(self.failures.get() + 1);
                if self.failures.get() >= FAILURES_MAX {
                    self.fail(WriteError::Device(error));
                }
            }
        }
        self.written.set(written);
    }

    fn wants_flush(&self) -> bool {
        self.load.sync == Sync::Flush
            && self.since_flush.get() >= self.load.sync_every
            && !self.is_flushing.get()
    }

    fn has_much_unpromised(&self) -> bool {
        self.since_flush.get() >= self.load.sync_every.saturating_mul(UNPROMISED)
    }

    async fn flush(&self) {
        self.is_flushing.set(true);
        self.since_flush.set(0);
        self.say(Event::FlushBegun);
        let outcome = self.device.flush().await;
        self.is_flushing.set(false);
        let mut written = self.written.get();
        match outcome {
            Ok(()) => {
                self.say(Event::FlushAcknowledged);
                written.flushes += 1;
            }
            Err(_) => {
                self.say(Event::FlushFailed);
                written.failed += 1;
            }
        }
        self.written.set(written);
    }

    /// Sends what was said until everything is said.
    async fn report(&self) {
        loop {
            if self.queue.borrow().is_empty() {
                if self.is_over.get() || self.failed.borrow().is_some() {
                    return;
                }
                let still_there = self.runtime.sleep(STILL_THERE_EVERY);
                first_of(self.changed.wait(), still_there).await;
            }
            if let Err(error) = self.send_some().await {
                return self.fail(error);
            }
        }
    }

    async fn send_some(&self) -> Result<(), WriteError> {
        let events: Vec<Event> = {
            let mut queue = self.queue.borrow_mut();
            let count = queue.len().min(EVENTS_MAX);
            queue.drain(..count).collect()
        };
        let is_announced = |event: &&Event| matches!(event, Event::Announced { .. });
        let announced = events.iter().filter(is_announced).count() as u64;
        self.link.send(&ToWitness::Events(events)).await?;
        let patience = self.runtime.now() + STORE_TIME_MAX;
        let link = Rc::clone(&self.link);
        loop {
            let link = Rc::clone(&link);
            let answer = async move { link.receive_answer().await };
            match self.runtime.deadline(patience, answer).await {
                Err(_) => return Err(WriteError::Silent),
                Ok(Err(error)) => return Err(error.into()),
                Ok(Ok(FromWitness::Stored { .. })) => break,
                Ok(Ok(FromWitness::Stop)) => self.stop(),
                Ok(Ok(FromWitness::Refused(reason))) => return Err(WriteError::Refused(reason)),
                Ok(Ok(_)) => return Err(WriteError::OutOfPlace),
            }
        }
        self.ready.set(self.ready.get() + announced);
        self.changed.notify_all();
        Ok(())
    }
}

/// Completes with the first of two.
async fn first_of(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| {
        let is_over =
            one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready();
        if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
