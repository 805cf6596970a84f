//! A drive model as a device: the model tells when, the store below keeps what.
//!
//! 1. A request goes to the store and, as a command, to the model; both go on side by side.
//! 2. A task of the device waits for the model's next answer and passes it on.
//! 3. The request is answered when both have answered.
//!
//! In virtual time this is simulation; on the real executor the device behaves against the wall
//! clock. There a timer may fire late, but the model goes on from its own times, so lateness does
//! not add up.
//!
//! **Invariants**: one timer per device, set only while an answer is due.
//!
//! **Not here**: what a power cut leaves (`Medium`).

use crate::command::{Command, CommandKind, Machine, Tag};
use crate::hdd::{Drive, HddModel};
use crate::remote::{RemoteModel, RemoteQueue};
use crate::ssd::{SsdDrive, SsdModel, State};
use headpond_block::sync::{Notify, Receiver, Sender, oneshot};
use headpond_block::{
    BlockDevice, DeviceName, Geometry, Instant, Request, RequestKind, Runtime, Stability,
    Submission,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;

/// A modelled drive of any kind.
pub struct ModelDevice {
    store: Rc<dyn BlockDevice>,
    geometry: Geometry,
    shared: Rc<Shared>,
}

struct Shared {
    runtime: Runtime,
    drive: RefCell<Box<dyn Machine>>,
    is_sent_flushes: bool,
    takes_discards: bool,
    waiting: RefCell<BTreeMap<Tag, Sender<()>>>,
    /// When the device's task will look again.
    looks_at: Cell<Option<Instant>>,
    earlier: Rc<Notify>,
}

impl ModelDevice {
    /// A disk of `model`, its spindle `phase_ns` into its turn at the start of the runtime, whose
    /// payload is kept by `store`. The device is as large as the smaller of both.
    pub fn new(
        store: Rc<dyn BlockDevice>,
        model: Rc<HddModel>,
        phase_ns: u64,
        runtime: &Runtime,
    ) -> Self {
        let geometry = geometry(&model, store.geometry());
        Self::of(store, geometry, Box::new(Drive::new(model, phase_ns)), runtime)
    }

    /// A solid state drive of `model`, in `state` at the start of the runtime.
    pub fn ssd(
        store: Rc<dyn BlockDevice>,
        model: Rc<SsdModel>,
        state: State,
        seed: u64,
        runtime: &Runtime,
    ) -> Self {
        let geometry = without_seeks(model.size_bytes(), model.is_stable(), store.geometry());
        Self::of(store, geometry, Box::new(SsdDrive::new(model, state, seed)), runtime)
    }

    /// Remote storage of `model`.
    pub fn remote(
        store: Rc<dyn BlockDevice>,
        model: Rc<RemoteModel>,
        seed: u64,
        runtime: &Runtime,
    ) -> Self {
        let is_stable = !model.reports_a_cache();
        let geometry = without_seeks(model.size_bytes(), is_stable, store.geometry());
        Self::of(store, geometry, Box::new(RemoteQueue::new(model, seed)), runtime)
    }

    fn of(
        store: Rc<dyn BlockDevice>,
        geometry: Geometry,
        machine: Box<dyn Machine>,
        runtime: &Runtime,
    ) -> Self {
        let shared = Rc::new(Shared {
            runtime: runtime.clone(),
            is_sent_flushes: machine.is_sent_flushes(),
            takes_discards: machine.takes_discards(),
            drive: RefCell::new(machine),
            waiting: RefCell::default(),
            looks_at: Cell::new(None),
            earlier: Rc::default(),
        });
        drop(runtime.spawn(pass_answers_on(Rc::downgrade(&shared), shared.earlier.clone())));
        Self { store, geometry, shared }
    }
}

/// What a device that does not turn reports, as large as the smaller of it and its store.
fn without_seeks(size_bytes: u64, is_stable: bool, store: &Geometry) -> Geometry {
    let own = if is_stable { Stability::StableOnCompletion } else { Stability::Flushable };
    Geometry {
        size_bytes: size_bytes.min(store.size_bytes),
        stability: own.worst(store.stability),
        rotational: false,
        stripe: None,
        ..store.clone()
    }
}

impl BlockDevice for ModelDevice {
    fn name(&self) -> &DeviceName {
        self.store.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if let Err(error) = request.check(self.name(), &self.geometry) {
            return Submission::ready(Err(error));
        }
        let Some(command) = self.shared.command(&request) else {
            return self.store.submit(request);
        };
        let served = self.shared.serve(command);
        let stored = self.store.submit(request);
        Submission::pending(async move {
            let outcome = stored.await;
            served.await;
            outcome
        })
    }
}

impl Drop for ModelDevice {
    fn drop(&mut self) {
        self.shared.earlier.notify_all();
    }
}

impl Shared {
    /// Gives a command to the model; the receiver gets its end.
    fn serve(&self, command: Command) -> Receiver<()> {
        let (sender, receiver) = oneshot();
        let mut drive = self.drive.borrow_mut();
        let tag = drive.submit(self.runtime.now(), command);
        self.waiting.borrow_mut().insert(tag, sender);
        let next = drive.next_answer().expect("a command waits");
        if self.looks_at.get().is_none_or(|looks_at| next < looks_at) {
            self.earlier.notify_all();
        }
        receiver
    }

    /// What the drive has to do for a request; nothing for what only concerns the payload.
    fn command(&self, request: &Request) -> Option<Command> {
        let kind = match request.kind {
            RequestKind::Flush if self.is_sent_flushes => CommandKind::Flush,
            RequestKind::Flush => return None,
            _ if request.range.is_empty() => return None,
            RequestKind::Read => CommandKind::Read,
            RequestKind::Write | RequestKind::WriteZeroes if request.is_fua() => {
                CommandKind::WriteThrough
            }
            RequestKind::Write | RequestKind::WriteZeroes => CommandKind::Write,
            RequestKind::Discard if self.takes_discards => CommandKind::Discard,
            RequestKind::Discard => return None,
        };
        Some(Command { kind, range: request.range })
    }

    /// Passes on every answer that is due, and says when to look again.
    fn pass_on(&self) -> Option<Instant> {
        let now = self.runtime.now();
        let mut drive = self.drive.borrow_mut();
        while let Some(answer) = drive.take_answer(now) {
            let waiting = self.waiting.borrow_mut().remove(&answer.tag);
            waiting.expect("an answer to a command that waits").send(());
        }
        self.looks_at.set(drive.next_answer());
        self.looks_at.get()
    }
}

/// The device's own task; it ends with the device.
async fn pass_answers_on(shared: Weak<Shared>, earlier: Rc<Notify>) {
    loop {
        let mut changed = pin!(earlier.wait());
        let Some((next, runtime)) =
            shared.upgrade().map(|shared| (shared.pass_on(), shared.runtime.clone()))
        else {
            return;
        };
        match next {
            None => changed.await,
            Some(at) => {
                let mut due = pin!(runtime.sleep_until(at));
                poll_fn(|context| match changed.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(()),
                    Poll::Pending => due.as_mut().poll(context),
                })
                .await;
            }
        }
    }
}

fn geometry(model: &HddModel, store: &Geometry) -> Geometry {
    let own = match model.parameters().write_cache.enabled {
        true => Stability::Flushable,
        false => Stability::StableOnCompletion,
    };
    Geometry {
        size_bytes: model.size_bytes().min(store.size_bytes),
        preferred_bytes: store
            .preferred_bytes
            .max(model.parameters().geometry.physical_sector_bytes),
        stability: own.worst(store.stability),
        rotational: true,
        stripe: None,
        ..store.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SparseDevice, run};
    use headpond_block::{Buffer, Driver, Executor, Order, Wait, sync::join_all};
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    fn drive(runtime: &Runtime, phase_ns: u64) -> Rc<dyn BlockDevice> {
        let model = Rc::new(HddModel::builtin("hdd-7k2-4t").unwrap());
        let store = SparseDevice::new("disk", Geometry::of_size(model.size_bytes()));
        Rc::new(ModelDevice::new(Rc::new(store), model, phase_ns, runtime))
    }

    /// Eight requests at a time; when each wave was over.
    async fn waves(device: &dyn BlockDevice, runtime: &Runtime) -> Vec<Instant> {
        let mut ends = Vec::new();
        for wave in 0..20 {
            let offset = |index: u64| (wave * 8 + index) * 7_919 % 900 * 4_000_000_256;
            let read = |index: u64| {
                let offset = offset(index) / 4096 * 4096;
                device.read(offset, Buffer::payload_free(4096))
            };
            let outcomes = join_all((0..8).map(read).collect()).await;
            assert!(outcomes.iter().all(Result::is_ok));
            ends.push(runtime.now());
        }
        ends
    }

    #[test]
    fn payload_comes_back_and_time_passes_as_the_model_says() {
        run(1, |runtime, _| async move {
            let device = drive(&runtime, 0);
            assert_eq!(device.geometry().stability, Stability::Flushable);
            assert!(device.geometry().rotational);
            let offset = 3_000_000_000_000;
            device.write(offset, Buffer::from_slice(&[5; 8192])).await.unwrap();
            assert!(runtime.now().since(Instant::START) < Duration::from_millis(1), "cached");
            device.flush().await.unwrap();
            let flushed = runtime.now();
            assert!(flushed.since(Instant::START) > Duration::from_millis(5), "on the medium");
            let into = Buffer::zeroed(4096);
            device.read(offset + 4096, &into).await.unwrap();
            assert_eq!(into.to_vec(), [5; 4096]);
            let past = device.read(device.size_bytes(), Buffer::zeroed(512)).await;
            assert!(past.is_err());
        })
        .unwrap();
    }

    #[test]
    fn the_same_seed_takes_the_same_time_to_the_nanosecond() {
        let ends = |seed| {
            run(seed, |runtime, sim| async move {
                let device = drive(&runtime, sim.random().below(8_000_000));
                waves(&*device, &runtime).await
            })
            .unwrap()
        };
        assert_eq!(ends(1), ends(1));
        assert_ne!(ends(1), ends(2));
    }

    /// A clock that wakes sleepers late, each time by the same.
    struct LateClock(Cell<Instant>, Duration);

    impl Driver for LateClock {
        fn now(&self) -> Instant {
            self.0.get()
        }

        fn park(&self, wait: Wait) -> io::Result<()> {
            match wait {
                Wait::Poll => {}
                Wait::Until(at) => self.0.set(self.0.get().max(at + self.1)),
                Wait::Forever => return Err(io::ErrorKind::Deadlock.into()),
            }
            Ok(())
        }

        fn unparker(&self) -> Arc<dyn Fn() + Send + Sync> {
            Arc::new(|| {})
        }
    }

    /// When a queue of 200 reads, submitted at once, is done.
    fn queue_done(late: Duration) -> Duration {
        let clock = Box::new(LateClock(Cell::default(), late));
        let executor = Executor::new(clock, Order::Fifo);
        let runtime = executor.runtime();
        let done = executor.block_on(async {
            let device = drive(&runtime, 0);
            let read = |index: u64| {
                device.read(index * 19_999_998_976 / 4096 * 4096, Buffer::payload_free(4096))
            };
            join_all((0..200).map(read).collect()).await;
            runtime.now().since(Instant::START)
        });
        done.unwrap()
    }

    #[test]
    fn late_timers_do_not_add_up() {
        let late = Duration::from_millis(2);
        let (prompt, delayed) = (queue_done(Duration::ZERO), queue_done(late));
        assert!(delayed >= prompt);
        assert!(delayed <= prompt + late, "{delayed:?} against {prompt:?}");
    }
}
