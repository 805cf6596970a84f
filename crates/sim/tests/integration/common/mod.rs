//! A load on one device in virtual time.

use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, Geometry, Instant, Runtime, Submission};
use headpond_sim::ssd::{SsdModel, SsdParameters, State};
use headpond_sim::{Model, ModelDevice, Random, SparseDevice, run};
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Copy)]
pub struct Load {
    pub writes: bool,
    pub random: bool,
    pub bytes: u64,
    pub depth: usize,
    pub flush_each: bool,
    /// Requests before counting, and counted.
    pub ramp: u64,
    pub count: u64,
}

impl Load {
    pub const fn random_write(depth: usize, count: u64) -> Self {
        let (writes, random, flush_each) = (true, true, false);
        Self { writes, random, bytes: 4096, depth, flush_each, ramp: count / 10, count }
    }

    pub const fn random_read(depth: usize, count: u64) -> Self {
        Self { writes: false, ..Self::random_write(depth, count) }
    }

    #[allow(dead_code, reason = "not every test file has such loads")]
    pub const fn sequential_write(count: u64) -> Self {
        Self { random: false, bytes: 1 << 20, ..Self::random_write(8, count) }
    }
}

/// Requests a second.
pub async fn rate(device: &Rc<dyn BlockDevice>, runtime: &Runtime, load: Load) -> f64 {
    let next = Cell::new(0u64);
    let begun = Cell::new(Instant::START);
    let random = std::cell::RefCell::new(Random::new(42));
    let blocks = device.size_bytes() / load.bytes;
    let one = |_| {
        let (next, begun, random) = (&next, &begun, &random);
        Submission::pending(async move {
            loop {
                let number = next.replace(next.get() + 1);
                if number >= load.ramp + load.count {
                    return Ok(());
                }
                if number == load.ramp {
                    begun.set(runtime.now());
                }
                let block =
                    if load.random { random.borrow_mut().below(blocks) } else { number % blocks };
                let buffer = Buffer::payload_free(load.bytes as usize);
                match load.writes {
                    true => device.write(block * load.bytes, buffer).await?,
                    false => device.read(block * load.bytes, buffer).await?,
                }
                if load.flush_each {
                    device.flush().await?;
                }
            }
        })
    };
    join_all((0..load.depth).map(one).collect()).await.into_iter().for_each(Result::unwrap);
    load.count as f64 / runtime.now().since(begun.get()).as_secs_f64()
}

pub fn parameters(name: &str) -> SsdParameters {
    let Ok(Model::Ssd(model)) = Model::builtin(name) else { panic!("{name} is no SSD") };
    model.parameters().clone()
}

pub fn ssd(parameters: &SsdParameters, state: State, runtime: &Runtime) -> Rc<dyn BlockDevice> {
    let model = Rc::new(SsdModel::new(parameters.clone()).unwrap());
    let store = SparseDevice::new("ssd", Geometry::of_size(model.size_bytes()));
    Rc::new(ModelDevice::ssd(Rc::new(store), model, state, 1, runtime))
}

/// The rate of a load on one SSD.
#[allow(dead_code, reason = "not every test file has loads on SSDs")]
pub fn ssd_rate(parameters: &SsdParameters, state: State, load: Load) -> f64 {
    run(1, |runtime, _| async move {
        let device = ssd(parameters, state, &runtime);
        rate(&device, &runtime, load).await
    })
    .unwrap()
}
