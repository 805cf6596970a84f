//! What a cleaner costs those who read meanwhile what the cache lacks: their latency, beside that
//! with a cleaner that does nothing; and what they cost it where as much is dirty as may be.

use crate::scene::{FORTY_DISKS, Latencies, Scene};
use headpond_volume::{Dirty, SettingChange};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// So large that what is read does not fill it, and nothing is urgent.
const CACHE: &str = "size = \"4G\"\nmodel = \"nvme-dc-2t\"\ncleaning = \"nop\"\n";
const DIRTY_BLOCKS: u64 = 100_000;
const SIX_DISKS: &str = "raid = 6\nstrip = \"64K\"\ndrive = \"hdd-7k2-4t\"\ndrives = 6\n";
/// Until the cleaner has seen that somebody reads, and what that takes without it.
const AT_FIRST: Duration = Duration::from_secs(3);
const WATCHED: Duration = Duration::from_secs(20);

/// How the reads come.
#[derive(Clone, Copy, Debug)]
enum ReadLoad {
    /// So many at a time.
    Depth(u32),
    /// Whatever has been answered.
    Every(Duration),
    /// So many at a time, while 64 writes come together ten times a second: more than the log takes
    /// at once, which wait for their turn and not for the cleaner.
    AmongWrites(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cleaner {
    Quiet,
    /// `stripe` at full speed from the first dirty block on.
    FullSpeed,
    /// A command that wants everything clean.
    Flush,
    /// The same in a hurry.
    FullRateFlush,
    Detach,
}

struct ReaderTimes {
    latencies: Latencies,
    cleaned_per_s: f64,
}

impl fmt::Display for ReaderTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p90, p99] =
            [500, 900, 990].map(|per_mille| self.latencies.at(per_mille).as_millis());
        let count = self.latencies.len();
        write!(f, "p50 {p50}, p90 {p90}, p99 {p99} ms of {count}; ")?;
        write!(f, "{:.0} cleaned a second", self.cleaned_per_s)
    }
}

type Taken = Rc<RefCell<Vec<Duration>>>;

impl Scene {
    /// Reads until the scene is over, which takes down how long each took.
    fn keep_reading(self: &Rc<Self>, load: ReadLoad) -> Taken {
        let latencies = Taken::default();
        match load {
            ReadLoad::Depth(depth) => (0..depth).for_each(|_| {
                let (scene, latencies) = (Rc::clone(self), Rc::clone(&latencies));
                drop(self.runtime.spawn(async move {
                    while !scene.is_over.get() {
                        scene.read_into(&latencies).await;
                    }
                }));
            }),
            ReadLoad::AmongWrites(depth) => {
                let scene = Rc::clone(self);
                drop(self.runtime.spawn(async move {
                    while !scene.is_over.get() {
                        for _ in 0..64 {
                            let scene = Rc::clone(&scene);
                            drop(scene.clone().runtime.spawn(async move { scene.write().await }));
                        }
                        scene.runtime.sleep(Duration::from_millis(100)).await;
                    }
                }));
                return self.keep_reading(ReadLoad::Depth(depth));
            }
            ReadLoad::Every(pause) => {
                let (scene, latencies) = (Rc::clone(self), Rc::clone(&latencies));
                drop(self.runtime.spawn(async move {
                    while !scene.is_over.get() {
                        let (here, latencies) = (Rc::clone(&scene), Rc::clone(&latencies));
                        drop(scene.runtime.spawn(async move { here.read_into(&latencies).await }));
                        scene.runtime.sleep(pause).await;
                    }
                }));
            }
        }
        latencies
    }

    async fn read_into(&self, latencies: &RefCell<Vec<Duration>>) {
        let took = self.timed_read().await;
        latencies.borrow_mut().push(took);
    }
}

impl Scene {
    async fn begin_to_clean(self: &Rc<Self>, cleaner: Cleaner) {
        let scene = Rc::clone(self);
        match cleaner {
            Cleaner::Quiet => {}
            Cleaner::FullSpeed => {
                self.want_full_speed().await;
                self.machine.volume.set(&[SettingChange::new("cleaning", "stripe")]).await.unwrap();
                self.runtime.sleep(Duration::from_secs(1)).await;
                assert!(self.cleaned_blocks() > 1_000, "at full speed");
            }
            Cleaner::Flush => drop(self.runtime.spawn(async move {
                // It is still under way when the scene ends.
                let _ = scene.machine.volume.clean_all().await;
            })),
            Cleaner::FullRateFlush => drop(self.runtime.spawn(async move {
                let _at_full_rate = scene.machine.volume.flush_at_full_rate();
                let _ = scene.machine.volume.clean_all().await;
            })),
            Cleaner::Detach => drop(self.runtime.spawn(async move {
                let _ = scene.machine.volume.detach(Dirty::Clean).await;
            })),
        }
    }
}

fn look(core: &str, cleaner: Cleaner, load: ReadLoad) -> ReaderTimes {
    Scene::run((core, CACHE), None, move |scene| async move {
        scene.keep_writing(64);
        while scene.dirty_blocks() < DIRTY_BLOCKS {
            scene.runtime.sleep(Duration::from_millis(1)).await;
        }
        scene.is_over.set(true);
        scene.runtime.sleep(Duration::from_secs(1)).await;
        scene.begin_to_clean(cleaner).await;
        scene.is_over.set(false);
        let latencies = scene.keep_reading(load);
        scene.runtime.sleep(AT_FIRST).await;
        latencies.take();
        let before = scene.cleaned_blocks();
        scene.runtime.sleep(WATCHED).await;
        scene.is_over.set(true);
        assert!(scene.dirty_blocks() > 0, "the cleaner has rested");
        let cleaned = scene.cleaned_blocks() - before;
        let latencies = latencies.take().into();
        ReaderTimes { latencies, cleaned_per_s: cleaned as f64 / WATCHED.as_secs_f64() }
    })
}

/// They stood in the drives' queues behind hundreds of writes: 161 ms in the median, 530 ms for the
/// slowest of a hundred.
#[test]
fn reads_beside_a_cleaner_at_full_speed_take_three_times_as_long_or_a_tenth_of_a_second() {
    let every = |ms| ReadLoad::Every(Duration::from_millis(ms));
    let depths =
        [ReadLoad::Depth(1), ReadLoad::Depth(8), ReadLoad::Depth(32), ReadLoad::AmongWrites(8)];
    for load in depths.into_iter().chain([every(2), every(50)]) {
        let [quiet, busy] =
            [Cleaner::Quiet, Cleaner::FullSpeed].map(|it| look(FORTY_DISKS, it, load));
        println!("{load:?}, quiet: {quiet}");
        println!("{load:?}, at full speed: {busy}");
        // One that comes alone finds writes under way in the drives.
        let most = (quiet.latencies.at(990) * 3).max(Duration::from_millis(100));
        assert_eq!(quiet.cleaned_per_s, 0.0);
        assert!(busy.cleaned_per_s > 200.0, "{load:?}: {busy}");
        assert!(busy.latencies.at(990) <= most, "{load:?}: {busy}; quiet: {quiet}");
        assert!(
            busy.latencies.at(500) * 2 <= quiet.latencies.at(500) * 3,
            "{load:?}: {busy}; quiet: {quiet}"
        );
    }
}

/// Reads took 197 ms in the mean and 759 for the slowest of a hundred, and came to 39 a second.
#[test]
fn readers_keep_nearly_two_thirds_of_their_rate_beside_a_command_that_flushes() {
    let load = ReadLoad::Depth(8);
    let [quiet, flush, at_full_rate, detach] =
        [Cleaner::Quiet, Cleaner::Flush, Cleaner::FullRateFlush, Cleaner::Detach].map(|cleaner| {
            let seen = look(SIX_DISKS, cleaner, load);
            println!("{load:?}, {cleaner:?}: {seen}");
            seen
        });
    let share = |seen: &ReaderTimes| seen.latencies.len() as f64 / quiet.latencies.len() as f64;
    for paced in [&flush, &detach] {
        assert!(share(paced) > 0.6, "{paced}; quiet: {quiet}");
        assert!(paced.cleaned_per_s > 10.0, "{paced}");
    }
    assert!(share(&at_full_rate) < 0.5 * share(&flush), "it takes what it can: {at_full_rate}");
    assert!(at_full_rate.cleaned_per_s > 1.5 * flush.cleaned_per_s, "{at_full_rate}; {flush}");
}

/// Writes a second at 100 % dirty.
fn written_beside(readers: u32) -> f64 {
    Scene::run((FORTY_DISKS, "size = \"320M\"\n"), None, move |scene| async move {
        scene.fill().await;
        scene.keep_writing(32);
        scene.keep_reading(ReadLoad::Depth(readers));
        scene.runtime.sleep(WATCHED).await;
        let before = scene.written.get();
        scene.runtime.sleep(WATCHED).await;
        scene.is_over.set(true);
        (scene.written.get() - before) as f64 / WATCHED.as_secs_f64()
    })
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn where_writes_wait_for_the_cleaner_readers_hold_it_back_no_more() {
        let (alone, beside) = (written_beside(0), written_beside(8));
        println!("alone {alone:.0}/s, beside 8 readers {beside:.0}/s");
        assert!(beside > 0.8 * alone, "{beside:.0}/s of {alone:.0}/s");
    }
}
