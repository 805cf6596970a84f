//! Drives an NBD server on a Unix socket with our own client and prints what it managed:
//! `drive SOCKET read|write BLOCK_BYTES DEPTH SECONDS`. Offsets are random, aligned to the block.

use headpond_block::{BlockDevice, Buffer, BufferPool, DeviceError, Instant, PoolConfig, Runtime};
use headpond_nbd::client::NbdDevice;
use headpond_uring::{RunConfig, SocketStream, run};
use std::error::Error;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

struct Load {
    is_write: bool,
    block_bytes: u64,
    depth: u64,
    time: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, direction, block, depth, seconds] = &arguments[..] else {
        return Err("usage: drive SOCKET read|write BLOCK_BYTES DEPTH SECONDS".into());
    };
    let load = Load {
        is_write: direction == "write",
        block_bytes: block.parse()?,
        depth: depth.parse()?,
        time: Duration::from_secs(seconds.parse()?),
    };
    run(&RunConfig::default(), |ring, runtime| async move {
        let stream = SocketStream::connect_unix(&ring, Path::new(socket)).await?;
        let pool = BufferPool::new(&PoolConfig::default());
        let device = NbdDevice::connect(&runtime, &pool, Rc::new(stream), "").await?;
        drive(&runtime, Rc::new(device), Rc::new(load)).await?;
        Ok(())
    })?
}

async fn drive(
    runtime: &Runtime,
    device: Rc<NbdDevice>,
    load: Rc<Load>,
) -> Result<(), DeviceError> {
    let begun = runtime.now();
    let end = begun + load.time;
    let workers: Vec<_> = (0..load.depth)
        .map(|seed| {
            let (runtime, device, load) = (runtime.clone(), Rc::clone(&device), Rc::clone(&load));
            runtime.clone().spawn(async move { work(&runtime, &*device, &load, seed, end).await })
        })
        .collect();
    let mut count = 0;
    for worker in workers {
        count += worker.await?;
    }
    let seconds = runtime.now().since(begun).as_secs_f64();
    let mib = count as f64 * load.block_bytes as f64 / (1 << 20) as f64;
    println!("{:.0} operations/s, {:.0} MiB/s", count as f64 / seconds, mib / seconds);
    device.close().await;
    Ok(())
}

/// One request after another until the time is up; returns how many.
async fn work(
    runtime: &Runtime,
    device: &dyn BlockDevice,
    load: &Load,
    seed: u64,
    end: Instant,
) -> Result<u64, DeviceError> {
    let buffer = Buffer::zeroed(load.block_bytes as usize);
    let blocks = device.size_bytes() / load.block_bytes;
    let (mut state, mut count) = (seed, 0);
    while runtime.now() < end {
        // Knuth's MMIX multiplier; the high bits are random enough for offsets.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (state >> 20) % blocks * load.block_bytes;
        if load.is_write {
            device.write(offset, &buffer).await?;
        } else {
            device.read(offset, &buffer).await?;
        }
        count += 1;
    }
    Ok(count)
}
