//! What one ring reaches here: `cargo run --release -p headpond-uring --example rates [DIR...]`.
//!
//! 4 KiB random reads and writes on a file in memory (or in the directories given), and messages
//! over a socket pair. To compare: fio's io_uring engine with the same settings.

use headpond_block::{BlockDevice, Buffer, Request, RequestFlags, RequestKind, Runtime, Stream};
use headpond_uring::{Allocation, FileDevice, FileOptions, Ring, RunConfig, SocketStream, run};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

const SIZE: u64 = 256 << 20;
const RUN_TIME: Duration = Duration::from_secs(1);

fn main() {
    let mut dirs: Vec<String> = std::env::args().skip(1).collect();
    if dirs.is_empty() {
        dirs.push("/dev/shm".to_owned());
    }
    run(&RunConfig::default(), |ring, runtime| async move {
        for dir in &dirs {
            files(&ring, &runtime, Path::new(dir)).await;
        }
        sockets(&ring, &runtime).await;
        println!("{:?}", ring.counters());
    })
    .expect("a ring");
}

async fn files(ring: &Ring, runtime: &Runtime, dir: &Path) {
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    let options = FileOptions::new(dir.path().join("f")).create(SIZE, Allocation::Preallocated);
    let device = Rc::new(FileDevice::open(ring, &options).expect("a file"));
    for offset in (0..SIZE).step_by(1 << 20) {
        (&*device as &dyn BlockDevice).write(offset, Buffer::zeroed(1 << 20)).await.expect("fill");
    }
    println!("{}: {:?}", device.name(), device.properties());
    use RequestFlags as Flags;
    for (name, depth, kind, flags) in [
        ("read", 1, RequestKind::Read, Flags::empty()),
        ("read", 32, RequestKind::Read, Flags::empty()),
        ("write", 1, RequestKind::Write, Flags::empty()),
        ("write", 32, RequestKind::Write, Flags::empty()),
        ("write FUA", 1, RequestKind::Write, Flags::FUA),
        ("write FUA", 32, RequestKind::Write, Flags::FUA),
        ("flush", 1, RequestKind::Flush, Flags::empty()),
    ] {
        let (lane_device, pool) = (Rc::clone(&device), ring.pool().clone());
        let rate = rate(runtime, depth, move |draw| {
            let (device, buffer) = (Rc::clone(&lane_device), pool.take(4096));
            async move {
                let offset = draw % (SIZE / 4096) * 4096;
                let request = match kind {
                    RequestKind::Flush => Request::flush(),
                    RequestKind::Write => Request::write(offset, buffer).with_flags(flags),
                    _ => Request::read(offset, buffer),
                };
                device.submit(request).await.expect("an answer");
            }
        })
        .await;
        println!("  4 KiB {name:9} depth {depth:2}: {rate:9.0}/s");
    }
}

async fn sockets(ring: &Ring, runtime: &Runtime) {
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let near = Rc::new(SocketStream::from_connected(ring, near.into(), "near"));
    let far = SocketStream::from_connected(ring, far.into(), "far");
    drop(runtime.spawn(async move {
        let (request, reply) = (Buffer::zeroed(4096), Buffer::zeroed(4112));
        while far.read(request.clone()).await.is_ok_and(|count| count > 0) {
            far.write_all((&reply).into()).await.expect("a reply");
        }
    }));
    let rate = rate(runtime, 1, move |_| {
        let near = Rc::clone(&near);
        async move {
            near.write_all(Buffer::zeroed(28).into()).await.expect("a request");
            let buffer = Buffer::zeroed(8192);
            let mut done = 0;
            while done < 4112 {
                done += near.read(buffer.slice(done..8192)).await.expect("a reply");
            }
        }
    })
    .await;
    println!("socket pair, both ends on this ring, 28 B out, 4112 B back: {rate:9.0}/s");
}

/// Operations a second, with `depth` in flight. Each gets a number drawn at random.
async fn rate<F: Future<Output = ()> + 'static>(
    runtime: &Runtime,
    depth: u64,
    operation: impl Fn(u64) -> F + 'static,
) -> f64 {
    let (operation, count) = (Rc::new(operation), Rc::new(Cell::new(0_u64)));
    let start = Instant::now();
    let lanes: Vec<_> = (1..=depth)
        .map(|lane| {
            let (operation, count) = (Rc::clone(&operation), Rc::clone(&count));
            runtime.spawn(async move {
                let mut state = lane;
                while start.elapsed() < RUN_TIME {
                    for _ in 0..16 {
                        state = state
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        operation(state >> 20).await;
                        count.set(count.get() + 1);
                    }
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await;
    }
    count.get() as f64 / start.elapsed().as_secs_f64()
}
