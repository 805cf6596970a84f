//! Read-modify-write on an array of modelled drives, without the array's code: what the physics of
//! the drive alone says about a RAID 60 of 40 drives (4 groups of 8 + 2), 4 KiB random write.
//!
//! Each write reads old data and both syndromes from three drives of a group in parallel, then
//! writes the three. `cargo run --release -p headpond-sim --example rmw_array [WITHOUT_CACHE]`
//! prints operations a second in virtual time beside the published ones, which are no input to it.

use headpond_block::{BlockDevice, Buffer, Geometry, Instant, Runtime, sync::join_all};
use headpond_sim::hdd::HddModel;
use headpond_sim::{ModelDevice, Random, Sim, SparseDevice, run};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const GROUPS: u64 = 4;
const GROUP_DRIVES: u64 = 10;
const WARM_UP: Duration = Duration::from_secs(60);
const MEASURED: Duration = Duration::from_secs(240);

/// Strip 64 KiB, depths 1, 4, 8, 16, 32: reference/raid60_random_write.csv.
const PUBLISHED_WRITES: [(u32, f64); 5] =
    [(1, 62.0), (4, 201.0), (8, 337.0), (16, 560.0), (32, 929.0)];

/// Percent of reads at depth 32, reads and writes: reference/raid60_mixed_cached.csv, mode none.
const PUBLISHED_MIXES: [(u64, f64, f64); 3] =
    [(50, 591.0, 591.0), (30, 324.0, 751.0), (70, 930.0, 399.0)];

fn main() {
    let has_cache = std::env::args().nth(1).is_none();
    let model = HddModel::builtin("hdd-7k2-4t").expect("comes with the crate");
    let model = Rc::new(model.with_write_cache(has_cache));
    println!("40 x {}, write cache {}", model.parameters().description, switch(has_cache));
    println!("{:<28}{:>10}{:>12}{:>8}", "4 KiB random", "published", "simulated", "ratio");
    for (depth, published) in PUBLISHED_WRITES {
        let (_, writes) = measure(&model, depth, 0);
        row(&format!("write, depth {depth}"), published, writes);
    }
    for (read_percent, published_reads, published_writes) in PUBLISHED_MIXES {
        let (reads, writes) = measure(&model, 32, read_percent);
        row(&format!("{read_percent} % read, depth 32: reads"), published_reads, reads);
        row(&format!("{read_percent} % read, depth 32: writes"), published_writes, writes);
    }
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn row(what: &str, published: f64, simulated: f64) {
    println!("{what:<28}{published:>10.0}{simulated:>12.0}{:>8.2}", simulated / published);
}

/// Reads and writes a second.
fn measure(model: &Rc<HddModel>, depth: u32, read_percent: u64) -> (f64, f64) {
    run(1, |runtime, sim| async move {
        let array = Rc::new(Array::new(model, &runtime, &sim, read_percent));
        for _ in 0..depth {
            let (array, mut random, runtime) = (array.clone(), sim.random(), runtime.clone());
            drop(runtime.clone().spawn(async move {
                loop {
                    array.one_request(&runtime, &mut random).await;
                }
            }));
        }
        runtime.sleep(WARM_UP + MEASURED).await;
        let per_second = |count: &Cell<u64>| count.get() as f64 / MEASURED.as_secs_f64();
        (per_second(&array.reads), per_second(&array.writes))
    })
    .expect("clients always sleep")
}

struct Array {
    drives: Vec<Rc<dyn BlockDevice>>,
    read_percent: u64,
    reads: Cell<u64>,
    writes: Cell<u64>,
}

impl Array {
    fn new(model: &Rc<HddModel>, runtime: &Runtime, sim: &Sim, read_percent: u64) -> Self {
        let mut phases = sim.random();
        let drive = |index: u64| -> Rc<dyn BlockDevice> {
            let store = SparseDevice::new(
                format!("disk {index}").as_str(),
                Geometry::of_size(model.size_bytes()),
            );
            let phase_ns = phases.below(model.revolution_ns());
            Rc::new(ModelDevice::new(Rc::new(store), model.clone(), phase_ns, runtime))
        };
        let drives = (0..GROUPS * GROUP_DRIVES).map(drive).collect();
        Self { drives, read_percent, reads: Cell::new(0), writes: Cell::new(0) }
    }

    async fn one_request(&self, runtime: &Runtime, random: &mut Random) {
        let offset = random.below(self.drives[0].size_bytes() / 4096) * 4096;
        let members = self.three_of_a_group(random);
        let is_read = random.below(100) < self.read_percent;
        let count = if is_read { 1 } else { members.len() };
        let data = || Buffer::payload_free(4096);
        let reads = members[..count].iter().map(|drive| drive.read(offset, data())).collect();
        assert!(join_all(reads).await.iter().all(Result::is_ok));
        if !is_read {
            let writes = members.iter().map(|drive| drive.write(offset, data())).collect();
            assert!(join_all(writes).await.iter().all(Result::is_ok));
        }
        if runtime.now().since(Instant::START) > WARM_UP {
            let done = if is_read { &self.reads } else { &self.writes };
            done.set(done.get() + 1);
        }
    }

    fn three_of_a_group(&self, random: &mut Random) -> [&dyn BlockDevice; 3] {
        let group = random.below(GROUPS) * GROUP_DRIVES;
        let mut members: Vec<u64> = (group..group + GROUP_DRIVES).collect();
        random.shuffle(&mut members);
        std::array::from_fn(|index| &*self.drives[members[index] as usize])
    }
}
