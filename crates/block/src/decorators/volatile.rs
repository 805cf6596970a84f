//! A device whose unflushed writes are in this process's memory, and lost with it.
//!
//! It models a drive with a volatile write cache, so that killing the process is a power cut:
//! flushed data is below, of the rest some blocks are (destaged early, in any order, also parts of
//! a request), and some are not.
//!
//! **Invariants**
//! - A block's unflushed version is never written below after a newer one.
//! - FLUSH returns after every write acknowledged before it is below and flushed there.

use crate::sync::{Access, RangeLocks};
use crate::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Outcome, Request, RequestFlags,
    RequestKind, Stability, Submission,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The part of the unflushed blocks that is destaged without a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leak {
    /// Nothing: a kill loses every unflushed write.
    Nothing,
    /// After each write, one unflushed block in so many, drawn at random.
    OneIn(u32),
}

/// Holds writes back until FLUSH or FUA.
pub struct VolatileDevice {
    inner: Rc<dyn BlockDevice>,
    geometry: Geometry,
    leak: Leak,
    state: RefCell<State>,
    /// Writes below hold the range, or everything for a flush, so that versions of a block arrive
    /// in order.
    below: RangeLocks,
}

struct State {
    /// Newest unflushed version of each logical block, by byte offset.
    unflushed: BTreeMap<u64, Buffer>,
    draw: Xoshiro256PlusPlus,
}

impl VolatileDevice {
    pub fn new(inner: Rc<dyn BlockDevice>, leak: Leak, seed: u64) -> Self {
        let stability = inner.geometry().stability.worst(Stability::Flushable);
        let geometry = Geometry { stability, ..inner.geometry().clone() };
        let draw = Xoshiro256PlusPlus::seed_from_u64(seed);
        let state = RefCell::new(State { unflushed: BTreeMap::new(), draw });
        Self { inner, geometry, leak, state, below: RangeLocks::new() }
    }

    /// Number of logical blocks that a kill would lose.
    pub fn unflushed_blocks(&self) -> usize {
        self.state.borrow().unflushed.len()
    }

    async fn carry_out(&self, request: Request) -> Outcome {
        match request.kind {
            RequestKind::Read => self.read(request).await,
            RequestKind::Write if request.is_fua() => self.write_through(request).await,
            RequestKind::Write => {
                self.keep(&request);
                self.leak_some().await
            }
            RequestKind::Flush => self.flush().await,
            RequestKind::Discard | RequestKind::WriteZeroes => self.write_through(request).await,
        }
    }

    async fn read(&self, request: Request) -> Outcome {
        let (range, buffers) = (request.range, request.buffers.clone());
        // While a block is on its way below it is in neither place for sure.
        let _below = self.below.lock(range, Access::Shared).await;
        self.inner.submit(request).await?;
        let state = self.state.borrow();
        for (&offset, block) in state.unflushed.range(range.start()..range.end()) {
            let at = (offset - range.start()) as usize;
            buffers.slice(at..at + block.len()).copy_from_buffers(&block.into());
        }
        Ok(())
    }

    fn keep(&self, request: &Request) {
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let mut state = self.state.borrow_mut();
        for piece in request.range.split_at_multiples(block_bytes) {
            let at = (piece.start() - request.range.start()) as usize;
            let bytes = request.buffers.slice(at..at + block_bytes as usize).to_vec();
            state.unflushed.insert(piece.start(), Buffer::from_slice(&bytes));
        }
    }

    /// Writes through to below; earlier unflushed versions are superseded.
    async fn write_through(&self, request: Request) -> Outcome {
        let range = request.range;
        let _below = self.below.lock(range, Access::Exclusive).await;
        {
            let mut state = self.state.borrow_mut();
            let within: Vec<u64> =
                state.unflushed.range(range.start()..range.end()).map(|(at, _)| *at).collect();
            for offset in within {
                state.unflushed.remove(&offset);
            }
        }
        self.inner.submit(request).await
    }

    async fn flush(&self) -> Outcome {
        let everything = ByteRange::at(0, self.geometry.size_bytes);
        let _below = self.below.lock(everything, Access::Exclusive).await;
        let mut offsets: Vec<u64> = self.state.borrow().unflushed.keys().copied().collect();
        self.shuffle(&mut offsets);
        for offset in offsets {
            self.write_below(offset).await?;
        }
        self.inner.submit(Request::flush()).await
    }

    async fn leak_some(&self) -> Outcome {
        let Leak::OneIn(share) = self.leak else { return Ok(()) };
        let Some(offset) = self.draw_unflushed(share) else { return Ok(()) };
        let range = ByteRange::at(offset, u64::from(self.geometry.logical_block_bytes));
        let Some(_below) = self.below.try_lock(range, Access::Exclusive) else { return Ok(()) };
        self.write_below(offset).await
    }

    /// Destages the newest version of one block, and drops it unless a newer one was written during
    /// that.
    async fn write_below(&self, offset: u64) -> Outcome {
        let block = self.state.borrow().unflushed.get(&offset).cloned();
        let Some(block) = block else { return Ok(()) };
        self.inner.submit(Request::write(offset, &block)).await?;
        let mut state = self.state.borrow_mut();
        let is_newest =
            state.unflushed.get(&offset).is_some_and(|newest| newest.as_ptr() == block.as_ptr());
        if is_newest {
            state.unflushed.remove(&offset);
        }
        Ok(())
    }

    fn draw_unflushed(&self, share: u32) -> Option<u64> {
        let state = &mut *self.state.borrow_mut();
        if state.unflushed.is_empty() || !state.draw.next_u64().is_multiple_of(u64::from(share)) {
            return None;
        }
        let start = state.draw.next_u64() % self.geometry.size_bytes;
        let next = state.unflushed.range(start..).next().or(state.unflushed.iter().next());
        next.map(|(offset, _)| *offset)
    }

    fn shuffle(&self, offsets: &mut [u64]) {
        let draw = &mut self.state.borrow_mut().draw;
        for last in (1..offsets.len()).rev() {
            offsets.swap(last, (draw.next_u64() % (last as u64 + 1)) as usize);
        }
    }
}

impl BlockDevice for VolatileDevice {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, mut request: Request) -> Submission<'_> {
        if let Err(error) = request.check(self.name(), &self.geometry) {
            return Submission::ready(Err(error));
        }
        if matches!(request.kind, RequestKind::Discard | RequestKind::WriteZeroes) {
            request.flags |= RequestFlags::FUA;
        }
        Submission::pending(self.carry_out(request))
    }
}
