//! Load by Headpond's own NBD client, if fio is not available.

use super::{Limit, LoadMaker, Measured, Pattern, Target, Workload};
use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use headpond_block::{
    BlockDevice, Buffer, BufferPool, ByteRange, Instant, PoolConfig, Request, Runtime,
};
use headpond_nbd::client::NbdDevice;
use headpond_uring::{Ring, RingConfig, SocketStream, run_with_pool};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub struct OwnLoad;

impl LoadMaker for OwnLoad {
    fn name(&self) -> String {
        "Headpond's own NBD client".to_owned()
    }

    fn run(&self, workload: &Workload, target: &Target, limit: Limit) -> Result<Measured> {
        let pool = BufferPool::new(&PoolConfig::default());
        let (workload, socket, run) = (*workload, target.socket.to_owned(), target.run);
        let region = target.sequential_region();
        let lend = pool.clone();
        run_with_pool(&RingConfig::default(), &pool, |ring: Ring, runtime| async move {
            let stream = SocketStream::connect_unix(&ring, &socket).await;
            let stream = stream.with_context(|| format!("{}", socket.display()))?;
            let device = NbdDevice::connect(&runtime, &lend, Rc::new(stream), "").await?;
            let device = Rc::new(device);
            let generator = Generator::new(workload, device.clone(), runtime, limit, run, region);
            let measured = generator.run().await;
            device.close().await;
            measured
        })?
    }
}

/// A closed loop of `depth` tasks.
struct Generator {
    workload: Workload,
    device: Rc<NbdDevice>,
    runtime: Runtime,
    limit: Limit,
    begun: Instant,
    region: ByteRange,
    draw: RefCell<Xoshiro256PlusPlus>,
    next_byte: Cell<u64>,
    bytes_left: Cell<u64>,
    tally: RefCell<LoadTally>,
}

struct LoadTally {
    reads: u64,
    writes: u64,
    nanos: Histogram<u64>,
    error: Option<headpond_block::DeviceError>,
}

impl Generator {
    fn new(
        workload: Workload,
        device: Rc<NbdDevice>,
        runtime: Runtime,
        limit: Limit,
        run: u64,
        region: ByteRange,
    ) -> Rc<Self> {
        let hour = 3_600_000_000_000;
        let nanos = Histogram::new_with_bounds(1, hour, 3).expect("three digits are possible");
        Rc::new(Self {
            workload,
            begun: runtime.now(),
            runtime,
            draw: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(run + 1)),
            next_byte: Cell::new(region.start()),
            region,
            bytes_left: Cell::new(limit.bytes.unwrap_or(u64::MAX)),
            tally: RefCell::new(LoadTally { reads: 0, writes: 0, nanos, error: None }),
            device,
            limit,
        })
    }

    async fn run(self: Rc<Self>) -> Result<Measured> {
        let task = |_| self.runtime.spawn(Rc::clone(&self).one_at_a_time());
        let tasks: Vec<_> = (0..self.workload.depth).map(task).collect();
        for task in tasks {
            task.await;
        }
        let seconds = self.runtime.now().since(self.begun).as_secs_f64();
        let tally = self.tally.borrow();
        if let Some(error) = &tally.error {
            return Err(anyhow!(error.clone()));
        }
        let bytes = (tally.reads + tally.writes) * u64::from(self.workload.block_bytes);
        Ok(Measured {
            read_iops: tally.reads as f64 / seconds,
            write_iops: tally.writes as f64 / seconds,
            mb_per_s: bytes as f64 / 1e6 / seconds,
            mean_ms: tally.nanos.mean() / 1e6,
            p99_ms: tally.nanos.value_at_quantile(0.99) as f64 / 1e6,
            seconds,
        })
    }

    async fn one_at_a_time(self: Rc<Self>) {
        let block_bytes = u64::from(self.workload.block_bytes);
        let memory = Buffer::zeroed(block_bytes as usize);
        memory.fill(self.draw.borrow_mut().next_u64() as u8);
        while self.goes_on(block_bytes) {
            let is_read = self.workload.pattern == Pattern::RandomMixed
                && self.draw.borrow_mut().next_u64() >> 63 == 0;
            let offset = self.next_offset(block_bytes);
            let request = match is_read {
                true => Request::read(offset, &memory),
                false => Request::write(offset, &memory),
            };
            let sent = self.runtime.now();
            let outcome = self.device.submit(request).await;
            let took = self.runtime.now().since(sent);
            let tally = &mut *self.tally.borrow_mut();
            if let Err(error) = outcome {
                tally.error.get_or_insert(error);
                return;
            }
            *(if is_read { &mut tally.reads } else { &mut tally.writes }) += 1;
            tally.nanos.saturating_record(took.as_nanos() as u64);
        }
    }

    fn goes_on(&self, block_bytes: u64) -> bool {
        let left = self.bytes_left.get();
        self.bytes_left.set(left.saturating_sub(block_bytes));
        let in_time = self.runtime.now().since(self.begun) < self.limit.time;
        in_time && left >= block_bytes && self.tally.borrow().error.is_none()
    }

    fn next_offset(&self, block_bytes: u64) -> u64 {
        if self.workload.pattern == Pattern::SequentialWrite {
            let offset = self.next_byte.get();
            let next = offset + block_bytes;
            let is_last = next + block_bytes > self.region.end();
            self.next_byte.set(if is_last { self.region.start() } else { next });
            return offset;
        }
        let size = self.device.geometry().size_bytes;
        self.draw.borrow_mut().next_u64() % (size / block_bytes) * block_bytes
    }
}
