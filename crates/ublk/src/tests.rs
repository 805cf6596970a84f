//! Queues of a twin of the driver, in virtual time: servers are killed, and others take over.

use crate::server::{Queue, Service, serve};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, Buffers, DeviceName, Geometry, Outcome, Request, RequestKind, Runtime,
    Submission,
};
use headpond_sim::{Sim, run};
use headpond_uring::ublk::Descriptor;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;
const DEPTH: u16 = 4;
const IO_BYTES_MAX: u32 = 8 * BLOCK as u32;

/// The driver's side of one device: its requests, and the tags that ask for them.
#[derive(Default)]
struct Driver {
    waiting: VecDeque<Rc<Asked>>,
    tags: Vec<Tag>,
    /// Servers so far; an earlier one is not heard.
    server: u32,
    is_removed: bool,
}

#[derive(Default)]
struct Tag {
    /// What the server asks with.
    memory: Option<Buffer>,
    given: Option<Rc<Asked>>,
    waker: Option<Waker>,
}

/// A request of a user of the block device.
struct Asked {
    kind: RequestKind,
    first: u64,
    count: u64,
    /// What is written, or was read.
    data: RefCell<Vec<u8>>,
    result: Cell<Option<i32>>,
    waker: RefCell<Option<Waker>>,
}

impl Driver {
    /// Hands requests to tags that ask.
    fn dispatch(&mut self) {
        for tag in self.tags.iter_mut().filter(|tag| tag.given.is_none()) {
            let Some(memory) = &tag.memory else { continue };
            let Some(asked) = self.waiting.pop_front() else { return };
            if asked.kind == RequestKind::Write {
                memory.copy_from(&asked.data.borrow());
            }
            tag.given = Some(asked);
            tag.memory = None;
            wake(tag.waker.take());
        }
    }

    /// The server is gone: what it had not answered is for the next one, before all others.
    fn lose_server(&mut self) {
        self.server += 1;
        for tag in self.tags.drain(..).rev() {
            self.waiting.extend(tag.given);
            self.waiting.rotate_right(1);
        }
        self.tags.resize_with(DEPTH.into(), Tag::default);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The queue as one server has it.
#[derive(Clone)]
struct Twin {
    driver: Rc<RefCell<Driver>>,
    server: u32,
}

struct Fetch {
    twin: Twin,
    tag: usize,
}

impl Future for Fetch {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut driver = self.twin.driver.borrow_mut();
        if driver.is_removed || driver.server != self.twin.server {
            return Poll::Ready(Err(io::Error::from_raw_os_error(19)));
        }
        let tag = &mut driver.tags[self.tag];
        tag.waker = Some(context.waker().clone());
        if tag.given.is_some() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Queue for Twin {
    type Fetch = Fetch;

    fn depth(&self) -> u16 {
        DEPTH
    }

    fn fetch(&self, tag: u16, memory: Buffer) -> Fetch {
        let mut driver = self.driver.borrow_mut();
        if driver.server == self.server {
            assert!(driver.tags[usize::from(tag)].memory.replace(memory).is_none(), "asks twice");
            driver.dispatch();
        }
        Fetch { twin: self.clone(), tag: tag.into() }
    }

    fn commit_and_fetch(&self, tag: u16, result: i32, memory: Buffer) -> Fetch {
        let mut driver = self.driver.borrow_mut();
        if driver.server == self.server {
            let asked = driver.tags[usize::from(tag)].given.take().expect("nothing to answer");
            if asked.kind == RequestKind::Read && result > 0 {
                memory.slice(0..result as usize).copy_to(&mut asked.data.borrow_mut());
            }
            assert!(asked.result.replace(Some(result)).is_none(), "answers twice");
            wake(asked.waker.take());
        }
        drop(driver);
        self.fetch(tag, memory)
    }

    fn descriptor(&self, tag: u16) -> Descriptor {
        let driver = self.driver.borrow();
        let asked = driver.tags[usize::from(tag)].given.as_ref().expect("a request");
        let operation = match asked.kind {
            RequestKind::Read => 0,
            RequestKind::Write => 1,
            RequestKind::Flush => 2,
            RequestKind::Discard => 3,
            RequestKind::WriteZeroes => 5,
        };
        Descriptor::new(operation, (asked.count * BLOCK / 512) as u32, asked.first * BLOCK / 512)
    }
}

impl Twin {
    fn next_server(driver: &Rc<RefCell<Driver>>) -> Self {
        let mut state = driver.borrow_mut();
        state.lose_server();
        Self { driver: Rc::clone(driver), server: state.server }
    }
}

/// A request by the block device.
async fn ask(
    driver: &Rc<RefCell<Driver>>,
    kind: RequestKind,
    first: u64,
    data: Vec<u8>,
) -> (i32, Vec<u8>) {
    let count = data.len() as u64 / BLOCK;
    let (result, waker) = (Cell::new(None), RefCell::new(None));
    let asked = Rc::new(Asked { kind, first, count, data: RefCell::new(data), result, waker });
    driver.borrow_mut().waiting.push_back(Rc::clone(&asked));
    driver.borrow_mut().dispatch();
    let result = poll_fn(|context| match asked.result.get() {
        Some(result) => Poll::Ready(result),
        None => {
            asked.waker.replace(Some(context.waker().clone()));
            Poll::Pending
        }
    })
    .await;
    (result, asked.data.take())
}

/// A device that takes a while, of a process that may be killed, and that keeps the memory of reads
/// for longer.
struct Slow {
    runtime: Runtime,
    sim: Sim,
    ram: Rc<RamDevice>,
    is_killed: Rc<Cell<bool>>,
    /// With what was read.
    kept: RefCell<Vec<(Buffer, Vec<u8>)>>,
}

impl Slow {
    fn check_kept(&self, more: Option<&Buffers>) {
        let mut kept = self.kept.borrow_mut();
        assert!(kept.iter().all(|(memory, read)| memory.to_vec() == *read), "was overwritten");
        kept.truncate(8);
        let more = more.into_iter().flat_map(Buffers::iter);
        kept.extend(more.map(|part| (part.clone(), part.to_vec())));
    }
}

impl BlockDevice for Slow {
    fn name(&self) -> &DeviceName {
        self.ram.name()
    }

    fn geometry(&self) -> &Geometry {
        self.ram.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        Submission::pending(async move {
            let mut random = self.sim.random();
            let pause = random.between(Duration::from_micros(1), Duration::from_micros(100));
            self.runtime.sleep(pause).await;
            // Of a process that was killed some writes are carried out, and others are not.
            if self.is_killed.get() && random.one_in(2) {
                std::future::pending::<()>().await;
            }
            let is_kept = request.kind == RequestKind::Read && random.one_in(2);
            let memory = request.buffers.clone();
            let device: &dyn BlockDevice = &*self.ram;
            let outcome: Outcome = device.submit(request).await;
            self.check_kept(is_kept.then_some(&memory));
            if self.is_killed.get() {
                std::future::pending::<()>().await;
            }
            outcome
        })
    }
}

/// Writes numbers to a block of its own, and reads what it has written.
async fn user(driver: Rc<RefCell<Driver>>, sim: Sim, block: u64, rounds: u64) {
    let mut random = sim.random();
    let mut last = vec![0; BLOCK as usize];
    for _ in 0..rounds {
        if random.one_in(2) {
            last = vec![random.below(256) as u8; BLOCK as usize];
            let (result, _) = ask(&driver, RequestKind::Write, block, last.clone()).await;
            assert_eq!(result, BLOCK as i32);
        } else {
            let empty = vec![0xee; BLOCK as usize];
            let (result, data) = ask(&driver, RequestKind::Read, block, empty).await;
            assert_eq!(result, BLOCK as i32);
            assert!(data == last, "block {block} has {} instead of {}", data[0], last[0]);
        }
    }
}

/// The law of requests that are issued again: until it is answered, a request is the only one of
/// its block that its user has, and it may be carried out twice.
fn servers_come_and_go(seed: u64, kills: u64) {
    run(seed, |runtime, sim| async move {
        let ram = Rc::new(RamDevice::new("ram", BLOCKS * BLOCK));
        let driver = Rc::new(RefCell::new(Driver::default()));
        let start = || {
            let is_killed = Rc::new(Cell::new(false));
            let device = Slow {
                runtime: runtime.clone(),
                sim: sim.clone(),
                ram: Rc::clone(&ram),
                is_killed: Rc::clone(&is_killed),
                kept: RefCell::default(),
            };
            let twin = Twin::next_server(&driver);
            serve(&runtime, twin, Rc::new(device), IO_BYTES_MAX, Rc::new(Service::default()));
            is_killed
        };
        let mut is_killed = start();
        let users: Vec<_> = (0..BLOCKS)
            .map(|block| runtime.spawn(user(Rc::clone(&driver), sim.clone(), block, 40)))
            .collect();
        for _ in 0..kills {
            runtime.sleep(sim.random().between(Duration::ZERO, Duration::from_millis(1))).await;
            is_killed.set(true);
            runtime.sleep(Duration::from_millis(1)).await;
            is_killed = start();
        }
        for user in users {
            user.await;
        }
        driver.borrow_mut().is_removed = true;
    })
    .unwrap_or_else(|stalled| panic!("{stalled}"));
}

#[test]
fn one_server_answers_all_requests() {
    (0..20).for_each(|seed| servers_come_and_go(seed, 0));
}

#[test]
fn next_server_goes_on_where_one_was_killed() {
    (0..50).for_each(|seed| servers_come_and_go(seed, 3));
}

#[test]
fn requests_of_other_kinds_and_errors_reach_both_sides() {
    run(1, |runtime, _| async move {
        let driver = Rc::new(RefCell::new(Driver::default()));
        let ram = Rc::new(RamDevice::new("ram", BLOCKS * BLOCK));
        let service = Rc::new(Service::default());
        let twin = Twin::next_server(&driver);
        serve(&runtime, twin, ram, IO_BYTES_MAX, Rc::clone(&service));
        let blocks = |count: u64, byte| vec![byte; (count * BLOCK) as usize];
        let write = ask(&driver, RequestKind::Write, 2, blocks(8, 7)).await;
        assert_eq!(write.0, IO_BYTES_MAX as i32);
        assert_eq!(ask(&driver, RequestKind::Flush, 0, Vec::new()).await.0, 0);
        assert_eq!(ask(&driver, RequestKind::WriteZeroes, 3, blocks(1, 0)).await.0, 0);
        let (result, data) = ask(&driver, RequestKind::Read, 2, blocks(2, 9)).await;
        assert_eq!(result, 2 * BLOCK as i32);
        assert_eq!((data[0], data[BLOCK as usize]), (7, 0));
        assert_eq!(ask(&driver, RequestKind::Discard, 2, blocks(4, 0)).await.0, 0);
        // Past the end, and longer than was agreed.
        assert_eq!(ask(&driver, RequestKind::Read, BLOCKS, blocks(1, 0)).await.0, -22);
        assert_eq!(ask(&driver, RequestKind::Read, 0, blocks(9, 0)).await.0, -22);
        assert_eq!((service.errors.get(), service.in_flight.get()), (2, 0));
        assert_eq!(service.written_bytes.get(), u64::from(IO_BYTES_MAX));
        driver.borrow_mut().is_removed = true;
    })
    .unwrap_or_else(|stalled| panic!("{stalled}"));
}

#[test]
fn what_writes_to_a_device_that_is_read_only_is_refused() {
    run(1, |runtime, _| async move {
        let driver = Rc::new(RefCell::new(Driver::default()));
        let ram = Rc::new(RamDevice::new("ram", BLOCKS * BLOCK));
        let service = Rc::new(Service::new(true));
        let twin = Twin::next_server(&driver);
        serve(&runtime, twin, ram, IO_BYTES_MAX, Rc::clone(&service));
        let block = |byte| vec![byte; BLOCK as usize];
        for kind in [RequestKind::Write, RequestKind::WriteZeroes, RequestKind::Discard] {
            assert_eq!(ask(&driver, kind, 2, block(7)).await.0, -30);
        }
        assert_eq!(ask(&driver, RequestKind::Flush, 0, Vec::new()).await.0, 0);
        assert_eq!(ask(&driver, RequestKind::Read, 2, block(9)).await, (BLOCK as i32, block(0)));
        assert_eq!(service.errors.get(), 3);
        driver.borrow_mut().is_removed = true;
    })
    .unwrap_or_else(|stalled| panic!("{stalled}"));
}
