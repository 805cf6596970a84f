//! A machine and somebody who writes random blocks all over it, for the promises that tests keep an
//! eye on.

use crate::machine::Machine;
use crate::stack::Stack;
use headpond_block::{Buffer, Request, Runtime};
use headpond_sim::{Random, run};
use headpond_volume::SettingChange;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const BLOCK_BYTES: u64 = 4096;
/// No cache device takes so long by itself.
const WAIT: Duration = Duration::from_millis(10);

/// Of the scenes with disks.
pub const FORTY_DISKS: &str =
    "raid = 60\ngroups = 4\nstrip = \"64K\"\ndrive = \"hdd-7k2-4t\"\ndrives = 40\n";

pub struct Scene {
    pub machine: Machine,
    pub runtime: Runtime,
    random: RefCell<Random>,
    /// Blocks that are written: from the first one on, so many.
    region: u64,
    pub written: Cell<u64>,
    pub is_over: Cell<bool>,
}

/// How long requests took, ascending.
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// What so many of a thousand did not take longer than.
    pub fn at(&self, per_mille: usize) -> Duration {
        self.0[self.0.len() * per_mille / 1000]
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<Vec<Duration>> for Latencies {
    fn from(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        Self(took)
    }
}

impl Scene {
    /// Plays `course` on a machine of this core and this cache; `region` bytes of it are written,
    /// or all.
    pub fn run<T: 'static, F: Future<Output = T>>(
        (core, cache): (&str, &str),
        region: Option<u64>,
        course: impl FnOnce(Rc<Self>) -> F,
    ) -> T {
        let text = format!("name = \"scene\"\n[core]\n{core}[cache]\n{cache}");
        let stack = Stack::parse(&text).unwrap();
        let parts = stack.parts().unwrap();
        run(1, |runtime, sim| async move {
            let machine = Machine::start(&stack, &parts, &runtime, &sim).await.unwrap();
            let (random, written) = (RefCell::new(sim.random()), Cell::new(0));
            let region = region.unwrap_or(machine.front.size_bytes()) / BLOCK_BYTES;
            let is_over = Cell::new(false);
            course(Rc::new(Self { machine, runtime, random, region, written, is_over })).await
        })
        .expect("it goes on")
    }

    pub fn dirty_blocks(&self) -> u64 {
        self.machine.volume.stats().slices[0].dirty_bytes / BLOCK_BYTES
    }

    pub fn dirty_blocks_max(&self) -> u64 {
        self.machine.volume.stats().slices[0].dirty_bytes_max / BLOCK_BYTES
    }

    pub fn cleaned_blocks(&self) -> u64 {
        self.machine.volume.stats().slices[0].counters.cleaned_blocks
    }

    /// Has `stripe` go at full speed from the first dirty block on.
    pub async fn want_full_speed(&self) {
        let ratio = |ratio| SettingChange::new(&format!("cleaning.stripe.{ratio}-percent"), 0);
        self.machine.volume.set(&["low", "target", "high"].map(ratio)).await.unwrap();
    }

    pub async fn write(&self) {
        let block = self.random.borrow_mut().below(self.region);
        let data = Buffer::payload_free(BLOCK_BYTES as usize);
        self.machine.front.submit(Request::write(block * BLOCK_BYTES, data)).await.unwrap();
        self.written.set(self.written.get() + 1);
    }

    /// Writes of this length, one after the other from the beginning on, until the scene is over.
    pub fn keep_streaming(self: &Rc<Self>, bytes: u64) {
        let scene = Rc::clone(self);
        drop(self.runtime.spawn(async move {
            let per_lap = scene.region * BLOCK_BYTES / bytes;
            while !scene.is_over.get() {
                let data = Buffer::payload_free(bytes as usize);
                let offset = scene.written.get() % per_lap * bytes;
                scene.machine.front.submit(Request::write(offset, data)).await.unwrap();
                scene.written.set(scene.written.get() + 1);
            }
        }));
    }

    /// As [`Scene::write`]; how long it took.
    pub async fn timed_write(&self) -> Duration {
        let begun = self.runtime.now();
        self.write().await;
        self.runtime.now().since(begun)
    }

    /// Of a random block, wherever it lies; how long it took.
    pub async fn timed_read(&self) -> Duration {
        let begun = self.runtime.now();
        let block = self.random.borrow_mut().below(self.region);
        let data = Buffer::payload_free(BLOCK_BYTES as usize);
        self.machine.front.submit(Request::read(block * BLOCK_BYTES, data)).await.unwrap();
        self.runtime.now().since(begun)
    }

    /// Until no more may be dirty, or a write waits for the cleaner: with long lines the pool for
    /// scattered ones is used up sooner.
    pub async fn fill(&self) {
        while self.dirty_blocks() + 1 < self.dirty_blocks_max() {
            if self.timed_write().await >= WAIT {
                break;
            }
        }
    }

    /// A closed loop of so many requests, until the scene is over.
    pub fn keep_writing(self: &Rc<Self>, depth: u32) {
        for _ in 0..depth {
            let scene = Rc::clone(self);
            drop(self.runtime.spawn(async move {
                while !scene.is_over.get() {
                    scene.write().await;
                }
            }));
        }
    }
}
