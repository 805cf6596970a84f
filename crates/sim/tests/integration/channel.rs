//! Requests that cross to a device on another thread, on executors in virtual time.

use headpond_block::channel::channel;
#[cfg(debug_assertions)]
use headpond_block::defect::{Defect, activate};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, Cause, DeviceName, Geometry, Request, RequestKind, Runtime, Stalled,
    Submission,
};
use headpond_sim::{Random, run_threads};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;
const CLIENTS: u64 = 4;
const OPERATIONS: u64 = 20;
/// Fewer than the clients have in flight.
const PLACES: usize = 4;

/// Takes some time, and still reads the memory of a write after it has answered.
struct Late {
    inner: RamDevice,
    runtime: Runtime,
    random: RefCell<Random>,
    seen: Rc<Seen>,
}

/// What the device has seen.
#[derive(Default)]
struct Seen {
    begun: Cell<u64>,
    done: Cell<u64>,
    /// Memory of writes that changed while the device had it.
    changed: Cell<u64>,
}

impl BlockDevice for Late {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        self.seen.begun.set(self.seen.begun.get() + 1);
        let pause = || Duration::from_micros(self.random.borrow_mut().below(50));
        let (before, after) = (pause(), pause());
        Submission::pending(async move {
            self.runtime.sleep(before).await;
            let outcome = self.inner.submit(request.clone()).await;
            self.seen.done.set(self.seen.done.get() + 1);
            if request.kind == RequestKind::Write {
                let (runtime, seen) = (self.runtime.clone(), Rc::clone(&self.seen));
                let written = request.buffers.to_vec();
                drop(self.runtime.spawn(async move {
                    runtime.sleep(after).await;
                    let is_same = request.buffers.to_vec() == written;
                    seen.changed.set(seen.changed.get() + u64::from(!is_same));
                }));
            }
            outcome
        })
    }
}

/// Clients, each with blocks of its own, on a device on another thread.
///
/// # Errors
/// What is wrong.
async fn use_channel(runtimes: Vec<Runtime>, mut random: Random) -> Result<(), String> {
    let [clients, far] = [0, 1].map(|at: usize| runtimes[at].clone());
    let (seen, inner) = (Rc::<Seen>::default(), RamDevice::new("ram", BLOCKS * BLOCK));
    let geometry = inner.geometry().clone();
    let late = RefCell::new(random.fork());
    let late = Late { inner, runtime: far.clone(), random: late, seen: Rc::clone(&seen) };
    let (client, device) = channel(geometry, PLACES);
    let served = far.spawn(device.serve(far.clone(), Rc::new(late)));
    let device = Rc::new(client.open(&clients, "far"));
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (device, random) = (Rc::clone(&device), random.fork());
            clients.spawn(use_blocks(device, client, random))
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    clients.sleep(Duration::from_millis(1)).await;
    if device.in_use() > 0 {
        return Err(format!("{} places are still in use", device.in_use()));
    }
    // Sent, and nobody waits for them; then the clients' end is closed.
    let device: Rc<dyn BlockDevice> = device;
    for block in 0..PLACES as u64 {
        drop(device.write(block * BLOCK, Buffer::zeroed(BLOCK as usize)));
    }
    drop(device);
    served.await;
    clients.sleep(Duration::from_millis(1)).await;
    let (begun, done) = (seen.begun.get(), seen.done.get());
    let sent = CLIENTS * OPERATIONS + PLACES as u64;
    if (begun, done) != (sent, sent) {
        return Err(format!("of {sent} requests {begun} arrived, and {done} were done"));
    }
    match seen.changed.get() {
        0 => Ok(()),
        changed => Err(format!("the memory of {changed} writes changed while the device had it")),
    }
}

/// Writes to the blocks of one client and reads them again.
async fn use_blocks(
    device: Rc<dyn BlockDevice>,
    client: u64,
    mut random: Random,
) -> Result<(), String> {
    let own = BLOCKS / CLIENTS;
    let mut model = vec![0_u8; own as usize];
    for _ in 0..OPERATIONS {
        let block = random.below(own);
        let at = (client * own + block) * BLOCK;
        let expected = &mut model[block as usize];
        if random.below(2) == 0 {
            *expected = random.number() as u8;
            let written = Buffer::from_slice(&[*expected; BLOCK as usize]);
            device.write(at, written).await.map_err(|error| error.to_string())?;
        } else {
            let read = Buffer::zeroed(BLOCK as usize);
            device.read(at, &read).await.map_err(|error| error.to_string())?;
            if read.to_vec() != [*expected; BLOCK as usize] {
                return Err(format!("block {block} of client {client} has other contents"));
            }
        }
    }
    Ok(())
}

fn try_seed(seed: u64) -> Result<(), String> {
    let tried = run_threads(seed, 2, |runtimes, sim| use_channel(runtimes, sim.random()));
    tried.map_err(|stalled: Stalled| stalled.to_string())?
}

#[test]
fn device_on_another_thread_does_what_it_is_asked() {
    for seed in 0..200 {
        try_seed(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[cfg(debug_assertions)]
#[test]
fn mistakes_on_purpose_are_found() {
    for defect in Defect::OF_CHANNELS {
        activate(Some(defect));
        let is_found = (0..50).any(|seed| try_seed(seed).is_err());
        activate(None);
        assert!(is_found, "{defect:?} was not found");
    }
}

#[test]
fn requests_are_answered_where_the_thread_of_the_device_has_ended() {
    run_threads(1, 2, |runtimes, _| async move {
        let [clients, far] = [0, 1].map(|at: usize| runtimes[at].clone());
        let inner = Rc::new(RamDevice::new("ram", BLOCKS * BLOCK));
        let (client, device) = channel(inner.geometry().clone(), PLACES);
        let served = far.deadline(far.now(), device.serve(far.clone(), inner));
        let device: Rc<dyn BlockDevice> = Rc::new(client.open(&clients, "far"));
        drop(served);
        let memory = Buffer::zeroed(BLOCK as usize);
        for _ in 0..3 * PLACES {
            let error = device.read(0, &memory).await.unwrap_err();
            assert!(matches!(error.cause(), Cause::Gone), "{error}");
        }
    })
    .unwrap();
}

#[test]
fn one_seed_gives_one_run_of_several_threads() {
    let order = |seed| {
        let run = run_threads(seed, 3, |runtimes, _| async move {
            let steps = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = runtimes
                .iter()
                .enumerate()
                .map(|(at, runtime)| {
                    let (steps, own) = (Rc::clone(&steps), runtime.clone());
                    runtime.spawn(async move {
                        for step in 0..20 {
                            steps.borrow_mut().push((at, step, own.now()));
                            if step % 3 == 0 {
                                own.sleep(Duration::from_micros(step)).await;
                            } else {
                                own.yield_now().await;
                            }
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            steps.take()
        });
        run.unwrap()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}
