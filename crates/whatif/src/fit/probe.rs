//! Timed requests to a device.

use super::FitError;
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, Runtime, Submission};
use headpond_sim::Random;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The smallest request, on which all alignments agree.
pub(super) const BLOCK: u64 = 4096;
pub(super) const MIB: u64 = 1 << 20;

pub(super) struct Probe<'a> {
    device: &'a Rc<dyn BlockDevice>,
    pub runtime: &'a Runtime,
    random: RefCell<Random>,
    progress: &'a dyn Fn(&str),
    memory: Buffer,
    /// Bytes from the start that are used.
    used: Cell<u64>,
}

/// Requests of one kind, several at a time.
#[derive(Clone, Copy)]
pub(super) struct ProbeLoad {
    pub is_write: bool,
    pub bytes: u64,
    pub depth: usize,
    pub count: u64,
    /// Where a sequential load begins; a random one goes everywhere.
    pub from: Option<u64>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(
        device: &'a Rc<dyn BlockDevice>,
        runtime: &'a Runtime,
        random: Random,
        progress: &'a dyn Fn(&str),
    ) -> Self {
        let random = RefCell::new(random);
        let (memory, used) = (Buffer::zeroed(MIB as usize), Cell::new(device.size_bytes()));
        Self { device, runtime, random, progress, memory, used }
    }

    pub(super) fn tell(&self, what: &str) {
        (self.progress)(what);
    }

    /// Bytes that are measured.
    pub(super) fn size_bytes(&self) -> u64 {
        self.used.get() / BLOCK * BLOCK
    }

    pub(super) fn device_bytes(&self) -> u64 {
        self.device.size_bytes() / BLOCK * BLOCK
    }

    /// Nothing behind so many bytes is read or written any more.
    pub(super) fn stay_below(&self, bytes: u64) {
        self.used.set(self.used.get().min(bytes));
    }

    /// What is written from now on, until something is read: storage may drop zeros.
    pub(super) fn write_no_zeros(&self) {
        let bytes: Vec<u8> = (0..MIB).map(|_| self.below(255) as u8 + 1).collect();
        self.memory.copy_from(&bytes);
    }

    /// Whether what was read last is nothing but zeros.
    pub(super) fn is_zero(&self, bytes: u64) -> bool {
        self.memory.slice(0..bytes as usize).to_vec().iter().all(|byte| *byte == 0)
    }

    pub(super) fn is_stable(&self) -> bool {
        self.device.geometry().stability == headpond_block::Stability::StableOnCompletion
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// Some block, away from the end.
    pub(super) fn anywhere(&self) -> u64 {
        self.below(self.size_bytes() / BLOCK - 1) * BLOCK
    }

    /// Seconds that one read takes.
    pub(super) async fn read(&self, offset: u64, bytes: u64) -> Result<f64, FitError> {
        let begun = self.runtime.now();
        self.device.read(offset, self.memory.slice(0..bytes as usize)).await?;
        Ok(self.runtime.now().since(begun).as_secs_f64())
    }

    /// Seconds that one write takes.
    pub(super) async fn write(&self, offset: u64, bytes: u64) -> Result<f64, FitError> {
        let begun = self.runtime.now();
        self.device.write(offset, self.memory.slice(0..bytes as usize)).await?;
        Ok(self.runtime.now().since(begun).as_secs_f64())
    }

    pub(super) async fn flush(&self) -> Result<f64, FitError> {
        let begun = self.runtime.now();
        self.device.flush().await?;
        Ok(self.runtime.now().since(begun).as_secs_f64())
    }

    pub(super) async fn rest(&self, duration: Duration) {
        self.runtime.sleep(duration).await;
    }

    /// The middle of several reads of blocks anywhere, in seconds.
    pub(super) async fn median_read(&self, count: usize) -> Result<f64, FitError> {
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(self.read(self.anywhere(), BLOCK).await?);
        }
        Ok(median(times))
    }

    /// Seconds between the answer that ends a load's first tenth and the one that ends the load;
    /// requests go on until then, so that the last ones have company.
    pub(super) async fn carry_out(&self, load: ProbeLoad) -> Result<f64, FitError> {
        let ramp = load.count / 10;
        let (next, answered) = (Cell::new(0), Cell::new(0));
        let (begun, ended) = (Cell::new(self.runtime.now()), Cell::new(None));
        let blocks = self.size_bytes() / load.bytes;
        let one = |_| {
            let (next, answered, begun, ended) = (&next, &answered, &begun, &ended);
            Submission::pending(async move {
                while ended.get().is_none() {
                    let number = next.replace(next.get() + 1);
                    let block = match load.from {
                        Some(from) => (from / load.bytes + number) % blocks,
                        None => self.below(blocks),
                    };
                    let memory = self.memory.slice(0..load.bytes as usize);
                    match load.is_write {
                        true => self.device.write(block * load.bytes, memory).await?,
                        false => self.device.read(block * load.bytes, memory).await?,
                    }
                    answered.set(answered.get() + 1);
                    if answered.get() == ramp {
                        begun.set(self.runtime.now());
                    } else if answered.get() == ramp + load.count {
                        ended.set(Some(self.runtime.now()));
                    }
                }
                Ok(())
            })
        };
        let outcomes = join_all((0..load.depth).map(one).collect()).await;
        outcomes.into_iter().collect::<Result<(), _>>()?;
        let ended = ended.get().expect("they went on until then");
        Ok(ended.since(begun.get()).as_secs_f64())
    }
}

/// # Panics
/// Where there are none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
