use super::*;
use crate::{RingDriver, RunConfig, run};
use headpond_block::{Buffer, Buffers, Driver, Executor, Order, PoolConfig, Wait};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::task::Waker;

fn small(entries: u32) -> RunConfig {
    let ring = RingConfig { entries, files: 16 };
    RunConfig { ring, pool: PoolConfig::none() }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

#[test]
fn more_operations_than_the_queue_holds_are_all_answered() {
    run(&small(8), |ring, runtime| async move {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let handle = ring.register(file.into());
        let read = |index: u64| {
            let buffer = Buffers::from(Buffer::zeroed(512));
            ring.transfer(&handle, Direction::Read, index * 512, buffer)
        };
        let pending: Vec<_> = (0..1000).map(read).collect();
        for one in pending {
            assert_eq!(one.await.count(), Ok(512));
        }
        assert!(ring.counters().enters >= 1000 / 8);
        drop(runtime);
    })
    .unwrap();
}

#[test]
fn overflow_of_the_completion_queue_loses_no_answer() {
    run(&small(8), |ring, runtime| async move {
        let pairs: Vec<_> = (0..200).map(|_| pair()).collect();
        let receive = |(near, _): &(OwnedFd, OwnedFd)| {
            let handle = ring.register(near.try_clone().unwrap());
            ring.receive(&handle, Buffer::zeroed(8))
        };
        let pending: Vec<_> = pairs.iter().map(receive).collect();
        runtime.yield_now().await;
        for (_, far) in &pairs {
            rustix::io::write(far, b"answered").unwrap();
        }
        for one in pending {
            assert_eq!(one.await.count(), Ok(8));
        }
        assert!(ring.counters().files_refused > 0, "more files than places");
    })
    .unwrap();
}

#[test]
fn memory_of_a_dropped_operation_is_kept_until_the_kernel_answers() {
    run(&small(8), |ring, runtime| async move {
        let (near, far) = pair();
        let handle = ring.register(near);
        let buffer = Buffer::zeroed(8);
        drop(ring.receive(&handle, buffer.clone()));
        runtime.yield_now().await;
        assert_eq!(ring.core.operations.in_flight().len(), 1);
        rustix::io::write(&far, b"too late").unwrap();
        while !ring.core.operations.in_flight().is_empty() {
            runtime.yield_now().await;
        }
        assert_eq!(buffer.to_vec(), b"too late");
    })
    .unwrap();
}

#[test]
fn ring_with_operations_that_never_end_closes_at_once() {
    let start = Instant::now();
    let (near, far) = pair();
    let inner = near.as_fd().try_clone_to_owned().unwrap();
    run(&small(8), |ring, runtime| async move {
        let handle = ring.register(inner);
        for _ in 0..20 {
            drop(ring.receive(&handle, Buffer::zeroed(8)));
        }
        runtime.yield_now().await;
    })
    .unwrap();
    assert!(start.elapsed() < CLOSE_PATIENCE / 2, "{:?}", start.elapsed());
    // Nobody has taken what arrives now.
    rustix::io::write(&far, b"x").unwrap();
    let mut byte = [0; 1];
    assert_eq!(rustix::io::read(&near, &mut byte).unwrap(), 1);
}

#[test]
fn sleep_ends_in_time_though_nothing_else_happens() {
    run(&RunConfig::default(), |_ring, runtime| async move {
        let start = runtime.now();
        runtime.sleep(Duration::from_millis(20)).await;
        let slept = runtime.now() - start;
        assert!(slept >= Duration::from_millis(20), "{slept:?}");
        assert!(slept < Duration::from_millis(500), "{slept:?}");
    })
    .unwrap();
}

#[test]
fn another_thread_wakes_a_parked_ring_again_and_again() {
    const ROUNDS: u32 = 200;
    let shared = Arc::new(Mutex::new((0_u32, None::<Waker>)));
    let other = Arc::clone(&shared);
    let thread = std::thread::spawn(move || {
        for round in 1..=ROUNDS {
            loop {
                let waker = other.lock().unwrap().1.take();
                if let Some(waker) = waker {
                    other.lock().unwrap().0 = round;
                    waker.wake();
                    break;
                }
                std::thread::yield_now();
            }
        }
    });
    let wait = |round: u32| {
        let shared = Arc::clone(&shared);
        std::future::poll_fn(move |context| {
            let mut shared = shared.lock().unwrap();
            if shared.0 >= round {
                return Poll::Ready(());
            }
            shared.1 = Some(context.waker().clone());
            Poll::Pending
        })
    };
    run(&RunConfig::default(), |_ring, _runtime| async {
        for round in 1..=ROUNDS {
            wait(round).await;
        }
    })
    .unwrap();
    thread.join().unwrap();
}

#[test]
fn unparked_ring_returns_from_a_wait_without_end() {
    let pool = BufferPool::new(&PoolConfig::none());
    let driver = RingDriver::new(Ring::new(&RingConfig::default(), &pool).unwrap());
    let unpark = driver.unparker();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(10));
        unpark();
    });
    driver.park(Wait::Forever).unwrap();
    thread.join().unwrap();
}

#[test]
fn pool_memory_is_used_as_registered_and_foreign_memory_is_not() {
    let pool = BufferPool::new(&PoolConfig::default());
    let other = BufferPool::new(&PoolConfig::default());
    let ring = Ring::new(&RingConfig::default(), &pool).unwrap();
    if ring.counters().fixed_buffers_refused {
        eprintln!("skipped: pool_memory_is_used_as_registered: RLIMIT_MEMLOCK forbids it");
        return;
    }
    let arenas = &ring.core.arenas;
    assert!(arenas.contains(&pool.take(4096)));
    assert!(arenas.contains(&pool.take(1 << 20).slice(512..1024)));
    assert!(!arenas.contains(&other.take(4096)));
    assert!(!arenas.contains(&Buffer::zeroed(4096)));
}

/// Small and large parts, in no order of addresses, and one that is not registered.
#[test]
fn several_parts_in_one_operation_are_moved_as_registered_and_as_on_older_kernels() {
    const NAME: &str = "several_parts_in_one_operation";
    run(&RunConfig::default(), |ring, _| async move {
        let handle = ring.register(tempfile::tempfile().unwrap().into());
        let (large, small) = (ring.pool().take(64 << 10), ring.pool().take(4096));
        let foreign = Buffer::zeroed(512);
        let ours = [small.slice(512..1024), large.slice(4096..20_000), small.slice(0..512)];
        let sets: [Vec<Buffer>; 2] = [ours.to_vec(), [&ours[..], &[foreign]].concat()];
        let is_known = ring.core.arenas.takes(&sets[0].iter().cloned().collect());
        if !is_known {
            eprintln!("skipped: {NAME}: registered parts, which this kernel does not take");
        }
        for is_old in [false, true] {
            if is_old {
                ring.core.arenas.take_no_parts();
            }
            for (number, parts) in sets.iter().enumerate() {
                let parts: Buffers = parts.iter().cloned().collect();
                let byte = |at: usize| (at / 7 + number + usize::from(is_old)) as u8;
                let bytes: Vec<u8> = (0..parts.len_bytes()).map(byte).collect();
                let before = ring.counters().fixed_parts;
                parts.copy_from(&bytes);
                let write = Direction::Write { flags: 0 };
                let written = ring.transfer(&handle, write, 512, parts.clone()).await;
                parts.fill(0);
                let read = ring.transfer(&handle, Direction::Read, 512, parts.clone()).await;
                let all = Ok(parts.len_bytes());
                assert_eq!((written.count(), read.count()), (all, all));
                assert!(parts.to_vec() == bytes);
                let fixed = u64::from(is_known && !is_old && number == 0) * 2;
                assert_eq!(ring.counters().fixed_parts - before, fixed);
            }
        }
    })
    .unwrap();
}

#[test]
fn executors_of_two_threads_have_rings_of_their_own() {
    let thread = || {
        std::thread::spawn(|| {
            let pool = BufferPool::new(&PoolConfig::none());
            let ring = Ring::new(&RingConfig::default(), &pool).unwrap();
            let executor = Executor::new(Box::new(RingDriver::new(ring)), Order::Fifo);
            let runtime = executor.runtime();
            executor.block_on(runtime.sleep(Duration::from_millis(5))).unwrap();
        })
    };
    let threads = [thread(), thread()];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Two threads that run, sleep and poll in turn, without pauses and with some: no doorbell is lost.
#[test]
fn requests_cross_between_two_rings_and_come_back() {
    use headpond_block::channel::channel;
    use headpond_block::devices::RamDevice;
    use headpond_block::{BlockDevice, sync::join_all};
    const BLOCK: usize = 4096;

    let ram = || RamDevice::new("ram", 1 << 20);
    let (client, end) = channel(ram().geometry().clone(), 8);
    let far = std::thread::spawn(move || {
        run(&small(8), |_, runtime| end.serve(runtime, Rc::new(ram()))).unwrap();
    });
    run(&small(8), |_, runtime| async move {
        let device: Rc<dyn BlockDevice> = Rc::new(client.open(&runtime, "far"));
        for round in 0..2000_u32 {
            let count = 1 + round as usize % 16;
            let pattern = |at: usize| (round as usize + at) as u8;
            let write =
                |at| device.write((at * BLOCK) as u64, Buffer::from_slice(&[pattern(at); BLOCK]));
            join_all((0..count).map(write).collect()).await.into_iter().for_each(Result::unwrap);
            let read = Buffer::zeroed(count * BLOCK);
            device.read(0, &read).await.unwrap();
            let bytes = read.to_vec();
            assert!((0..count * BLOCK).all(|at| bytes[at] == pattern(at / BLOCK)));
            if round % 500 == 0 {
                runtime.sleep(Duration::from_millis(1)).await;
            }
        }
    })
    .unwrap();
    far.join().unwrap();
}
