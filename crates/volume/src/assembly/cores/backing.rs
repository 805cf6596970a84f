//! What the caches of a volume lie on: its cores, which may be put together again below them.
//!
//! While it is held no request passes, neither of clients nor of a cleaner, and no cache is
//! disowned; what had passed has ended. Then the device may be exchanged for another one that has
//! the same at the same addresses.
//!
//! **Invariants**
//! - Whoever lies on it is never told of less room than before.
//! - A cache that was disowned never fits again.

use crate::assembly::gate::{HeldIoGate, IoGate};
use crate::assembly::label::ArrayLabels;
use headpond_block::sync::Semaphore;
use headpond_block::{
    BlockDevice, Cause, ChangingGeometry, DeviceError, DeviceName, Geometry, LocalFuture, Outcome,
    Request, Submission,
};
use headpond_cache::CoreLabel;
use headpond_raid::{Array, ArrayState};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The cores as one device, and their labels.
pub(crate) struct CoreBacking {
    name: DeviceName,
    geometry: ChangingGeometry,
    device: RefCell<Rc<dyn BlockDevice>>,
    arrays: RefCell<Vec<Rc<Array>>>,
    /// To the device.
    gate: IoGate,
    /// The cache on it has copies, which may be one generation ahead.
    has_copies: Cell<bool>,
    /// That cache is out of date: writes may have gone past it.
    is_disowned: Cell<bool>,
    /// Only one at a time changes what the cache has to have recorded.
    raising: Semaphore,
}

impl CoreBacking {
    pub fn new(device: Rc<dyn BlockDevice>, arrays: Vec<Rc<Array>>) -> Self {
        Self {
            name: device.name().clone(),
            geometry: ChangingGeometry::new(device.geometry().clone()),
            device: RefCell::new(device),
            arrays: RefCell::new(arrays),
            gate: IoGate::default(),
            has_copies: Cell::new(false),
            is_disowned: Cell::new(false),
            raising: Semaphore::new(1),
        }
    }

    /// Lets nothing pass until the answer is dropped, and waits for what has.
    ///
    /// # Panics
    /// Where it is held already.
    pub async fn hold(&self) -> HeldIoGate<'_> {
        self.gate.hold().await
    }

    /// Leads there from now on, where nobody who matters can be in the middle of anything: it is
    /// held, or only the room has changed.
    pub fn lead_to(&self, device: Rc<dyn BlockDevice>, arrays: Vec<Rc<Array>>) {
        self.geometry.change(device.geometry().clone());
        self.device.replace(device);
        self.arrays.replace(arrays);
    }

    /// Checks what it leads to; for tests and simulation.
    ///
    /// # Panics
    /// Where that is not these.
    pub fn self_check(&self, device: &Rc<dyn BlockDevice>, arrays: &[Rc<Array>]) {
        let leads_there = std::ptr::addr_eq(Rc::as_ptr(&self.device.borrow()), Rc::as_ptr(device));
        assert!(leads_there, "caches are led to the cores that there are");
        let known = self.arrays.borrow();
        let are_known = known.len() == arrays.len()
            && known.iter().zip(arrays).all(|(one, other)| Rc::ptr_eq(one, other));
        assert!(are_known, "a cache is recorded on the arrays that it lies on");
    }

    /// Whether the cache on it is known to be out of date.
    pub fn is_disowned(&self) -> bool {
        self.is_disowned.get()
    }

    /// The cache on it has copies from now on.
    pub fn begin_copies(&self) {
        self.is_disowned.set(false);
        self.has_copies.set(true);
    }

    /// It has none any more.
    pub fn end_copies(&self) {
        self.has_copies.set(false);
    }

    /// What a cache on it has to have recorded.
    pub fn generation(&self) -> u64 {
        self.arrays.borrow().iter().map(|array| array.owner_generation()).sum()
    }

    /// Has `record` put the next generation on the cache, and then raises it here. Where the cache
    /// was disowned nothing happens: it would fit again.
    ///
    /// # Errors
    /// Those of the record, and where every array has failed.
    pub async fn raise_with(&self, record: impl AsyncFn(u64) -> Outcome) -> Outcome {
        let _turn = self.raising.acquire(1).await;
        if self.is_disowned.get() {
            return Ok(());
        }
        loop {
            // Where none can record it the cache must not either: it would be ahead by as many as
            // are asked for.
            self.recording_array()?;
            // What is left of an array that failed in the middle of it may have recorded it: then
            // the cache has to have as much before another array does.
            record(self.generation() + 1).await?;
            let (array, outcome) = self.raise().await?;
            if outcome.is_ok() || array.state() != ArrayState::Failed {
                return outcome;
            }
        }
    }

    /// Has `forget` take from the arrays whose cache is on them, which raises the generation; where
    /// it has copies, one that is ahead is behind afterwards as well. What leaves from then on is
    /// not told to the others.
    ///
    /// # Errors
    /// That of `forget`: then the cache is what it was.
    pub async fn disown_with(&self, forget: impl AsyncFnOnce() -> Outcome) -> Outcome {
        let _turn = self.raising.acquire(1).await;
        forget().await?;
        self.is_disowned.set(true);
        if self.has_copies.get() {
            // An array that cannot record it takes no write past the cache either.
            let _ = self.raise().await;
        }
        Ok(())
    }

    /// Raises that by one, durably, on one array.
    ///
    /// # Errors
    /// Where that fails, or all have.
    pub async fn raise_generation(&self) -> Outcome {
        self.raise().await?.1
    }

    /// Raises it on an array, and tells how that went. Whoever holds the ground may exchange the
    /// arrays: the one to record it is chosen when nobody does.
    async fn raise(&self) -> Result<(Rc<Array>, Outcome), DeviceError> {
        self.gate.until_released().await;
        let _busy = self.gate.begin();
        let array = self.recording_array()?;
        let outcome = array.raise_owner_generation(1).await;
        Ok((array, outcome))
    }

    /// The array that is to record a generation: one that has not failed.
    fn recording_array(&self) -> Result<Rc<Array>, DeviceError> {
        let arrays = self.arrays.borrow();
        let sound = arrays.iter().find(|array| array.state() != ArrayState::Failed);
        sound.cloned().ok_or_else(|| DeviceError::new(&self.name, Cause::Gone))
    }
}

impl BlockDevice for CoreBacking {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        self.geometry.now()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if self.gate.is_held() {
            return Submission::pending(async move {
                self.gate.until_released().await;
                self.submit(request).await
            });
        }
        let device = Rc::clone(&self.device.borrow());
        self.gate.pass(&device, request)
    }
}

impl CoreLabel for CoreBacking {
    fn disown_cache(&self) -> LocalFuture<'_, Outcome> {
        Box::pin(async {
            let _turn = self.raising.acquire(1).await;
            self.gate.until_released().await;
            let _busy = self.gate.begin();
            let labels = ArrayLabels(self.arrays.borrow().clone());
            if self.has_copies.get() {
                labels.disown_cache().await?;
            }
            labels.disown_cache().await?;
            self.is_disowned.set(true);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::mirror::{self, Mirror};
    use crate::description::{Description, MirrorDescription};
    use headpond_block::Buffer;
    use headpond_block::devices::RamDevice;
    use headpond_block::{BufferPool, Executor, Order, PoolConfig, Runtime, VirtualClock};
    use headpond_raid::{Occupied, Tuning};
    use std::task::{Context, Poll, Waker};

    fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
        std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_comes_while_it_is_held_goes_to_the_device_that_is_there_afterwards() {
        let [first, second] =
            [1 << 20, 2 << 20].map(|size_bytes| Rc::new(RamDevice::new("core", size_bytes)));
        let backing = CoreBacking::new(first.clone(), Vec::new());
        let before = backing.geometry();
        let Poll::Ready(held) = poll(&mut Box::pin(backing.hold())) else { panic!("it is idle") };
        let mut write = backing.submit(Request::write(0, Buffer::from_slice(&[7; 512])));
        assert!(poll(&mut write).is_pending());
        backing.lead_to(second.clone(), Vec::new());
        drop(held);
        assert_eq!(poll(&mut write), Poll::Ready(Ok(())));
        assert_eq!(first.memory().slice(0..512).to_vec(), [0; 512]);
        assert_eq!(second.memory().slice(0..512).to_vec(), [7; 512]);
        assert_eq!((before.size_bytes, backing.geometry().size_bytes), (1 << 20, 2 << 20));
    }

    /// The array of the copies of a cache: any would do.
    async fn array(runtime: &Runtime) -> Rc<Array> {
        let copy = |name: &str| Rc::new(RamDevice::new(name, 4 << 20)) as Rc<dyn BlockDevice>;
        let text = "name = 'v'\nuuid = '6b7c8f0e-9a31-4d7e-8f7b-0d2c1f4a5e66'\nslices = 1\n[core]\n\
                    raid = 1\nstrip = '64K'\nmembers = ['a', 'b']";
        let description = Description::parse(text).expect("a volume");
        let (copies, spares) = (vec!["c0".into(), "c1".into()], Vec::new());
        let mirror = MirrorDescription { uuid: description.uuid, copies, spares };
        let options = mirror::create_options(&description, &mirror, Occupied::Refuse);
        let devices = ["c0", "c1"].map(copy).into();
        let pool = BufferPool::new(&PoolConfig::small());
        let made =
            Mirror::make(runtime, devices, &options, Tuning::with_pool(pool)).await.expect("made");
        Rc::clone(&made.core.array)
    }

    /// The array of before is stopped then; what it records would be taken back by the new one.
    #[test]
    fn a_generation_that_is_raised_while_it_is_held_is_recorded_by_the_array_that_is_there_then() {
        let executor = Executor::new(Box::<VirtualClock>::default(), Order::Fifo);
        let runtime = executor.runtime();
        let test = async {
            let (before, after) = (array(&runtime).await, array(&runtime).await);
            let backing = CoreBacking::new(before.clone(), vec![before.clone()]);
            let held = backing.hold().await;
            let recorded = Cell::new(0);
            let mut raised = Box::pin(backing.raise_with(async |generation| {
                recorded.set(generation);
                Ok(())
            }));
            assert!(poll(&mut raised).is_pending() && recorded.get() == 1);
            backing.lead_to(after.clone(), vec![after.clone()]);
            drop(held);
            raised.await.expect("raised");
            assert_eq!((before.owner_generation(), after.owner_generation()), (0, 1));
        };
        executor.block_on(test).expect("the test goes on");
    }
}
