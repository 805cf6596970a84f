//! A client that loads a device with a seeded workload and has every answer judged.
//!
//! 1. [`Client::run`] keeps `depth` requests in flight until all are done or one is judged wrong.
//! 2. Where the run is cut, the owner of the witness tells it by `Witness::crash`.
//! 3. After recovery [`Client::check_all`] reads every block that was ever touched.
//!
//! A read that fails is counted, not judged: unreadable is an error, and that is allowed.

use crate::draw::Draw;
use crate::{BLOCK_BYTES, Promise, SECTOR_BYTES, Verdict, Witness};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceError, Outcome, Request, RequestFlags, Runtime,
    sync::Semaphore,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a client does, in percent of its requests; the rest are writes.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub requests: u32,
    /// Requests in flight at once.
    pub depth: u32,
    /// Where it works: the first so many blocks of 4 KiB, all of the device if that has fewer.
    pub blocks: u64,
    /// The longest request, in blocks.
    pub blocks_max: u64,
    pub read_percent: u64,
    pub flush_percent: u64,
    pub zeroes_percent: u64,
    pub discard_percent: u64,
    /// Of the writes and zeroes, those that are to be stable when acknowledged.
    pub fua_percent: u64,
    /// Of all requests with a range, those of 512-byte sectors; needs a device that takes them.
    pub sector_percent: u64,
    /// Of all requests with a range, those that go to the first eighth of the blocks.
    pub hot_percent: u64,
    /// Of all requests with a range, those that begin where the one before ended.
    pub sequential_percent: u64,
}

impl Workload {
    /// A bit of everything on few blocks, so that requests meet; 4 KiB blocks only.
    pub const BUSY: Self = Self {
        requests: 200,
        depth: 8,
        blocks: 64,
        blocks_max: 4,
        read_percent: 30,
        flush_percent: 5,
        zeroes_percent: 3,
        discard_percent: 0,
        fua_percent: 10,
        sector_percent: 0,
        hot_percent: 0,
        sequential_percent: 0,
    };
}

/// What came of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that were sent, those without an answer included.
    pub sent: u64,
    pub succeeded: u64,
    pub failed_reads: u64,
    pub failed_others: u64,
}

/// Drives one device. Clones share the witness and the tally.
#[derive(Clone)]
pub struct Client {
    device: Rc<dyn BlockDevice>,
    witness: Rc<RefCell<Witness>>,
    runtime: Runtime,
    tally: Rc<Cell<Tally>>,
    /// The device has said that it is gone; it gets nothing more to do.
    is_gone: Rc<Cell<bool>>,
}

enum Action {
    Read,
    Write(Promise),
    Zeroes(Promise),
    Discard,
    Flush,
}

impl Client {
    pub fn new(
        device: Rc<dyn BlockDevice>,
        witness: Rc<RefCell<Witness>>,
        runtime: &Runtime,
    ) -> Self {
        Self {
            device,
            witness,
            runtime: runtime.clone(),
            tally: Rc::default(),
            is_gone: Rc::default(),
        }
    }

    pub fn tally(&self) -> Tally {
        self.tally.get()
    }

    /// Sends the workload and waits for all its answers; ends early where the device is gone.
    ///
    /// # Errors
    /// The first read that broke the contract; requests in flight are waited for even then.
    ///
    /// # Panics
    /// Where the depth is zero.
    pub async fn run(&self, workload: &Workload, seed: u64) -> Result<(), Box<Verdict>> {
        assert!(workload.depth > 0, "some requests in flight");
        let slots = Semaphore::new(u64::from(workload.depth));
        let offence = Rc::new(RefCell::new(None));
        let mut draw = Draw::new(seed);
        let mut next_start = 0;
        for _ in 0..workload.requests {
            let slot = slots.acquire(1).await;
            if offence.borrow().is_some() || self.is_gone.get() {
                break;
            }
            let (client, offence) = (self.clone(), Rc::clone(&offence));
            let (action, range) = self.next_request(workload, next_start, &mut draw);
            next_start = range.end();
            drop(self.runtime.spawn(async move {
                if let Err(verdict) = client.request(action, range).await {
                    offence.borrow_mut().get_or_insert(verdict);
                }
                drop(slot);
            }));
        }
        slots.acquire(u64::from(workload.depth)).await;
        offence.take().map_or(Ok(()), Err)
    }

    /// Reads every block that was ever touched.
    ///
    /// # Errors
    /// The first read that broke the contract.
    pub async fn check_all(&self) -> Result<(), Box<Verdict>> {
        let blocks: Vec<u64> = self.witness.borrow().touched_blocks().collect();
        for block in blocks {
            self.read(ByteRange::at(block, BLOCK_BYTES)).await?;
        }
        Ok(())
    }

    async fn request(&self, action: Action, range: ByteRange) -> Result<(), Box<Verdict>> {
        self.count(|tally| tally.sent += 1);
        match action {
            Action::Read => return self.read(range).await,
            Action::Write(promise) => self.write(range, promise).await,
            Action::Zeroes(promise) => self.write_zeroes(range, promise).await,
            Action::Discard => self.discard(range).await,
            Action::Flush => self.flush().await,
        }
        Ok(())
    }

    async fn read(&self, range: ByteRange) -> Result<(), Box<Verdict>> {
        let read = self.witness.borrow_mut().begin_read();
        let buffer = Buffer::zeroed(range.len() as usize);
        let outcome = self.device.read(range.start(), &buffer).await;
        self.note_if_gone(&outcome);
        let mut witness = self.witness.borrow_mut();
        if outcome.is_err() {
            witness.abandon_read(read);
            self.count(|tally| tally.failed_reads += 1);
            return Ok(());
        }
        self.count(|tally| tally.succeeded += 1);
        witness.check_read(read, range.start(), &buffer.to_vec())
    }

    /// Writes payload to a range of whole sectors.
    pub async fn write(&self, range: ByteRange, promise: Promise) {
        let (offset, len) = (range.start(), range.len());
        let (write, payload) = {
            let mut witness = self.witness.borrow_mut();
            (witness.begin_write(offset, len, promise), witness.payload())
        };
        let mut bytes = vec![0; len as usize];
        payload.fill(write, offset, &mut bytes);
        let request = Request::write(offset, Buffer::from_slice(&bytes));
        let outcome = self.device.submit(request.with_flags(flags(promise))).await;
        self.answered(write, outcome);
    }

    /// Zeroes a range of whole sectors.
    pub async fn write_zeroes(&self, range: ByteRange, promise: Promise) {
        let (offset, len) = (range.start(), range.len());
        let write = self.witness.borrow_mut().begin_zeroes(offset, len, promise);
        let request = Request::write_zeroes(range).with_flags(flags(promise));
        let outcome = self.device.submit(request).await;
        self.answered(write, outcome);
    }

    /// Discards a range of whole sectors.
    pub async fn discard(&self, range: ByteRange) {
        let write = self.witness.borrow_mut().begin_discard(range.start(), range.len());
        let outcome = self.device.submit(Request::discard(range)).await;
        self.answered(write, outcome);
    }

    /// Makes everything acknowledged so far stable.
    pub async fn flush(&self) {
        let flush = self.witness.borrow_mut().begin_flush();
        match self.device.flush().await {
            Ok(()) => {
                self.witness.borrow_mut().acknowledge_flush(flush);
                self.count(|tally| tally.succeeded += 1);
            }
            Err(_) => self.count(|tally| tally.failed_others += 1),
        }
    }

    fn answered(&self, write: crate::WriteId, outcome: Outcome) {
        self.note_if_gone(&outcome);
        let mut witness = self.witness.borrow_mut();
        if outcome.is_ok() {
            witness.acknowledge(write);
            self.count(|tally| tally.succeeded += 1);
        } else {
            witness.fail(write);
            self.count(|tally| tally.failed_others += 1);
        }
    }

    fn note_if_gone(&self, outcome: &Outcome) {
        if outcome.as_ref().is_err_and(DeviceError::is_gone) {
            self.is_gone.set(true);
        }
    }

    fn count(&self, add: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        add(&mut tally);
        self.tally.set(tally);
    }

    fn next_request(
        &self,
        workload: &Workload,
        next_start: u64,
        draw: &mut Draw,
    ) -> (Action, ByteRange) {
        let action = next_action(workload, draw);
        let blocks = workload.blocks.min(self.device.size_bytes() / BLOCK_BYTES);
        let len = 1 + draw.below(workload.blocks_max.min(blocks));
        let start = if draw.percent(workload.sequential_percent) {
            let next_block = next_start.div_ceil(BLOCK_BYTES);
            if next_block + len <= blocks { next_block } else { 0 }
        } else if draw.percent(workload.hot_percent) {
            draw.below((blocks / 8).clamp(1, blocks - len + 1))
        } else {
            draw.below(blocks - len + 1)
        };
        let range = ByteRange::at(start * BLOCK_BYTES, len * BLOCK_BYTES);
        if !draw.percent(workload.sector_percent) {
            return (action, range);
        }
        let sectors = range.len() / SECTOR_BYTES;
        let start = draw.below(sectors);
        let count = 1 + draw.below(sectors - start);
        let start = range.start() + start * SECTOR_BYTES;
        (action, ByteRange::at(start, count * SECTOR_BYTES))
    }
}

fn next_action(workload: &Workload, draw: &mut Draw) -> Action {
    let promise = match draw.percent(workload.fua_percent) {
        true => Promise::Stable,
        false => Promise::Volatile,
    };
    let mut roll = draw.below(100);
    let mut falls_to = |percent: u64| {
        let falls = roll < percent;
        roll = roll.wrapping_sub(percent);
        falls
    };
    match () {
        () if falls_to(workload.read_percent) => Action::Read,
        () if falls_to(workload.flush_percent) => Action::Flush,
        () if falls_to(workload.zeroes_percent) => Action::Zeroes(promise),
        () if falls_to(workload.discard_percent) => Action::Discard,
        () => Action::Write(promise),
    }
}

fn flags(promise: Promise) -> RequestFlags {
    match promise {
        Promise::Stable => RequestFlags::FUA,
        Promise::Volatile => RequestFlags::empty(),
    }
}
