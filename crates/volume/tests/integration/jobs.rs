//! What a volume says of how far a long act is, while somebody waits for it.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::Mode;
use headpond_sim::run;
use headpond_volume::{Devices, Dirty, JobKind, JobStatus, Volume};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: u64 = 4096;
const DIRTY: u64 = 400;

struct Slow {
    volume: Rc<Volume>,
    runtime: Runtime,
}

impl Slow {
    /// A volume with dirty blocks far from each other, on devices that take their time.
    async fn new(runtime: &Runtime) -> Self {
        let faults = FaultControl::default();
        let device = |name: &str, size_bytes| -> Rc<dyn BlockDevice> {
            let stability = Stability::Flushable;
            let geometry = Geometry { stability, ..Geometry::of_size(size_bytes) };
            let memory = Rc::new(RamDevice::with_geometry(name, geometry));
            Rc::new(FaultDevice::new(memory, faults.clone(), runtime.clone()))
        };
        let mut description = description(Mode::WriteBack, 2);
        let settings = &mut description.cache.as_mut().unwrap().settings;
        *settings = settings
            .with_all(&["cleaning=nop", "cleaning.in-flight-max=4"].map(|it| it.parse().unwrap()))
            .unwrap();
        let members = (0..3).map(|index| device(&format!("m{index}"), 32 << 20)).collect();
        let devices =
            Devices { cache: Some(device("cache", 32 << 20)), members, ..Devices::default() };
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(runtime, &description, devices, careful()).await.unwrap();
        for block in 0..DIRTY {
            let data = Buffer::from_slice(&[7; BLOCK as usize]);
            (&volume as &dyn BlockDevice).write(block * 33 * BLOCK, data).await.unwrap();
        }
        for kind in [RequestKind::Read, RequestKind::Write] {
            faults.add(FaultRule::on(kind, Fault::Delay(Duration::from_millis(20))));
        }
        Self { volume: Rc::new(volume), runtime: runtime.clone() }
    }

    /// What is told while `act` goes on; of one thing only.
    async fn watch<F: Future<Output = ()> + 'static>(
        &self,
        job: impl FnOnce(Rc<Volume>) -> F,
    ) -> Vec<JobStatus> {
        assert_eq!(self.volume.status().jobs, []);
        let is_done = Rc::new(Cell::new(false));
        let (job, done) = (job(Rc::clone(&self.volume)), Rc::clone(&is_done));
        drop(self.runtime.spawn(async move {
            job.await;
            done.set(true);
        }));
        let mut told = Vec::new();
        self.runtime.sleep(Duration::from_millis(1)).await;
        while !is_done.get() {
            let jobs = self.volume.status().jobs;
            assert!(jobs.len() <= 1, "{jobs:?}");
            told.extend(jobs);
            self.runtime.sleep(Duration::from_millis(30)).await;
        }
        assert_eq!(self.volume.status().jobs, []);
        told
    }
}

/// It begins with nothing, never falls, and the time that is left becomes true.
fn check(told: &[JobStatus], job: JobKind, total_bytes: u64) {
    assert!(told.len() > 5, "{told:?}");
    assert!(told.iter().all(|it| (it.job, it.total_bytes) == (job, total_bytes)), "{told:?}");
    assert!(told.is_sorted_by_key(|it| it.done_bytes), "{told:?}");
    let (first, last) = (&told[0], told.last().unwrap());
    assert_eq!((first.done_bytes, first.left_s), (0, None));
    assert!(last.done_bytes > total_bytes * 3 / 4, "{last:?}");
    let middle = &told[told.len() / 2];
    let guessed = middle.elapsed_s + middle.left_s.unwrap();
    let truth = last.elapsed_s;
    assert!((truth * 0.5..truth * 2.0).contains(&guessed), "{guessed} s of {truth} s");
}

#[test]
fn a_flush_a_detach_and_a_change_of_the_mode_tell_how_far_the_cleaning_is() {
    type Job = fn(Rc<Volume>) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;
    let jobs: [Job; 3] = [
        |volume| {
            Box::pin(async move { assert_eq!(volume.clean_all().await.unwrap(), DIRTY * BLOCK) })
        },
        |volume| Box::pin(async move { volume.detach(Dirty::Clean).await.unwrap() }),
        |volume| {
            let changes = ["mode=write-through".parse().unwrap()];
            Box::pin(async move { volume.set_and_clean(&changes).await.unwrap() })
        },
    ];
    for job in jobs {
        run(1, |runtime, _| async move {
            let slow = Slow::new(&runtime).await;
            check(&slow.watch(job).await, JobKind::Cleaning, DIRTY * BLOCK);
        })
        .expect("no deadlock");
    }
}

#[test]
fn a_change_of_the_mode_that_nobody_waits_for_tells_how_far_it_is() {
    run(1, |runtime, _| async move {
        let slow = Slow::new(&runtime).await;
        let change = |volume: Rc<Volume>| async move {
            volume.set(&["mode=write-through".parse().unwrap()]).await.unwrap();
            while volume.status().cache.unwrap().draining {
                runtime.sleep(Duration::from_millis(1)).await;
            }
        };
        check(&slow.watch(change).await, JobKind::Cleaning, DIRTY * BLOCK);
    })
    .expect("no deadlock");
}

#[test]
fn a_scrub_tells_how_much_of_the_cache_is_read() {
    run(1, |runtime, _| async move {
        let slow = Slow::new(&runtime).await;
        let stats = slow.volume.stats();
        let used = stats.slices.iter().map(|slice| slice.segments - slice.segments_free);
        let segment = stats.slices[0].capacity_bytes / u64::from(stats.slices[0].segments);
        let scrub = |volume: Rc<Volume>| async move { drop(volume.scrub_cache().await.unwrap()) };
        let told = slow.watch(scrub).await;
        let total = u64::from(used.sum::<u32>()) * segment;
        assert!(told.iter().all(|it| (it.job, it.total_bytes) == (JobKind::Scrubbing, total)));
        assert!(told.iter().any(|it| (1..total).contains(&it.done_bytes)), "{told:?}");
        assert!(told.is_sorted_by_key(|it| it.done_bytes), "{told:?}");
    })
    .expect("no deadlock");
}

/// The array has it, and a power cut may take it from there again.
#[test]
fn what_is_written_and_not_yet_flushed_counts_among_what_is_at_risk() {
    run(1, |runtime, _| async move {
        let slow = Slow::new(&runtime).await;
        let is_warned = |volume: &Volume| {
            volume.status().warnings.iter().any(|it| it.contains("one cache device only"))
        };
        let (volume, mut seen) = (Rc::clone(&slow.volume), 0);
        let (cleaning, done) = (Rc::clone(&volume), Rc::new(Cell::new(false)));
        let is_done = Rc::clone(&done);
        drop(runtime.spawn(async move {
            cleaning.clean_all().await.unwrap();
            done.set(true);
        }));
        while !is_done.get() {
            let cache = volume.status().cache.expect("a cache");
            let left = cache.unsafe_bytes();
            let told: u64 =
                volume.status().jobs.iter().map(|it| it.total_bytes - it.done_bytes).sum();
            assert!(told == 0 || told == left, "{told} {left}");
            assert_eq!(is_warned(&volume), cache.dirty_bytes > 0, "{cache:?}");
            seen = seen.max(cache.unflushed_bytes);
            runtime.sleep(Duration::from_millis(7)).await;
        }
        assert!(seen > 0);
        let cache = volume.status().cache.expect("a cache");
        assert_eq!((cache.unsafe_bytes(), is_warned(&volume)), (0, false));
    })
    .expect("no deadlock");
}
