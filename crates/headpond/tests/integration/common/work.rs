//! A load of which each request is known, for tests of what is counted.

use super::User;
use headpond_block::{BlockDevice, Buffer, BufferPool, PoolConfig};
use headpond_nbd::client::NbdDevice;
use headpond_uring::{RingConfig, SocketStream, run_with_pool};
use std::rc::Rc;

/// Blocks that are written, and read again.
pub const WRITES: u64 = 40;

/// Writes and reads blocks again, reads others, and writes one large request.
pub fn work(user: &User, name: &str) {
    let (pool, socket) = (BufferPool::new(&PoolConfig::default()), user.socket(name));
    let lend = pool.clone();
    let work = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let stream = SocketStream::connect_unix(&ring, &socket).await.unwrap();
        let device = NbdDevice::connect(&runtime, &lend, Rc::new(stream), "").await.unwrap();
        let volume: &dyn BlockDevice = &device;
        for index in 0..WRITES {
            volume.write(index << 16, Buffer::from_slice(&[7; 4096])).await.unwrap();
            volume.read(index << 16, Buffer::zeroed(4096)).await.unwrap();
        }
        volume.read(32 << 20, Buffer::zeroed(4096)).await.unwrap();
        volume.write(16 << 20, Buffer::from_slice(&[1; 1 << 18])).await.unwrap();
        volume.flush().await.unwrap();
        device.close().await;
    });
    work.unwrap();
}
