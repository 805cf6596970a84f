//! What a cleaner at full speed costs those who write meanwhile: their latency, beside that with a
//! cleaner that does nothing.

use crate::scene::{FORTY_DISKS, Latencies, Scene};
use headpond_block::sync::join_all;
use headpond_block::{Runtime, Submission};
use headpond_volume::SettingChange;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

const EIGHT_NVME: &str = "raid = 5\nstrip = \"64K\"\ndrive = \"nvme-dc-2t\"\ndrives = 8\n";
/// So large that reclaim has nothing to do meanwhile, which would be another matter.
const CACHE: &str = "size = \"4G\"\nmodel = \"nvme-dc-2t\"\ncleaning = \"nop\"\n";
/// That is written where the core is fast; of disks all is, and each block is far from the next.
const REGION_BYTES: u64 = 2 << 30;
/// A fifteenth of what may be.
const DIRTY_BLOCKS: u64 = 60_000;

/// How the writes come.
#[derive(Clone, Copy, Debug)]
enum WriteLoad {
    /// So many at a time, each when the one before it is answered.
    Depth(u32),
    /// Whatever has been answered.
    Every(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cleaner {
    Quiet,
    /// As this setting says; `stripe` at full speed from the first dirty block on.
    Set(&'static str, &'static str),
    /// Somebody has asked for everything to be cleaned.
    Flush,
}

/// What the writers saw.
struct WriterTimes {
    latencies: Latencies,
    written_per_s: f64,
    cleaned_per_s: f64,
}

impl fmt::Display for WriterTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, p999] =
            [500, 990, 999].map(|per_mille| self.latencies.at(per_mille).as_micros());
        let (written, cleaned) = (self.written_per_s, self.cleaned_per_s);
        write!(f, "p50 {p50}, p99 {p99}, p99.9 {p999} us; {written:.0} written, ")?;
        write!(f, "{cleaned:.0} cleaned a second")
    }
}

impl Scene {
    async fn begin(self: &Rc<Self>, cleaner: Cleaner) {
        let volume = &self.machine.volume;
        match cleaner {
            Cleaner::Quiet => {}
            Cleaner::Set(key, value) => {
                self.want_full_speed().await;
                volume.set(&[SettingChange::new(key, value)]).await.unwrap();
            }
            Cleaner::Flush => {
                let scene = Rc::clone(self);
                drop(self.runtime.spawn(async move {
                    scene.machine.volume.clean_all().await.unwrap();
                }));
            }
        }
    }

    /// Latencies of the writes that begin within `time`.
    async fn latencies(self: &Rc<Self>, load: WriteLoad, time: Duration) -> Latencies {
        let latencies = Rc::new(RefCell::new(Vec::new()));
        let end = self.runtime.now() + time;
        let writer = || {
            let (scene, latencies) = (Rc::clone(self), Rc::clone(&latencies));
            async move {
                let took = scene.timed_write().await;
                latencies.borrow_mut().push(took);
            }
        };
        match load {
            WriteLoad::Depth(depth) => {
                let writers = (0..depth).map(|_| {
                    let runtime: &Runtime = &self.runtime;
                    Submission::pending(async move {
                        while runtime.now() < end {
                            writer().await;
                        }
                        Ok(())
                    })
                });
                join_all(writers.collect()).await;
            }
            WriteLoad::Every(pause) => {
                while self.runtime.now() < end {
                    drop(self.runtime.spawn(writer()));
                    self.runtime.sleep(pause).await;
                }
            }
        }
        latencies.take().into()
    }
}

fn look(core: &str, cleaner: Cleaner, load: WriteLoad, time: Duration) -> WriterTimes {
    let region = (core == EIGHT_NVME).then_some(REGION_BYTES);
    Scene::run((core, CACHE), region, move |scene| async move {
        scene.keep_writing(64);
        while scene.dirty_blocks() < DIRTY_BLOCKS {
            scene.runtime.sleep(Duration::from_millis(1)).await;
        }
        scene.is_over.set(true);
        scene.runtime.sleep(Duration::from_millis(1)).await;
        scene.begin(cleaner).await;
        scene.runtime.sleep(Duration::from_millis(5)).await;
        let (begun, cleaned) = (scene.runtime.now(), scene.cleaned_blocks());
        let latencies = scene.latencies(load, time).await;
        let seconds = scene.runtime.now().since(begun).as_secs_f64();
        assert!(scene.dirty_blocks() > 0, "the cleaner has rested");
        WriterTimes {
            written_per_s: latencies.len() as f64 / seconds,
            cleaned_per_s: (scene.cleaned_blocks() - cleaned) as f64 / seconds,
            latencies,
        }
    })
}

/// Before the core that is named, with so many cleaned a second at least.
fn compare(name: &str, core: &str, cleaner: Cleaner, load: WriteLoad, ms: u64, least: f64) {
    let time = Duration::from_millis(ms);
    let (quiet, busy) = (look(core, Cleaner::Quiet, load, time), look(core, cleaner, load, time));
    println!("{name}, {load:?}, quiet: {quiet}");
    println!("{name}, {load:?}, {cleaner:?}: {busy}");
    assert!(quiet.cleaned_per_s == 0.0 && !quiet.latencies.at(990).is_zero());
    assert!(busy.cleaned_per_s > least, "{name}, {load:?}, {cleaner:?}: {busy}");
    let most = quiet.latencies.at(990) * 2;
    assert!(
        busy.latencies.at(990) <= most,
        "{name}, {load:?}, {cleaner:?}: {busy}; quiet: {quiet}"
    );
}

const STRIPE: Cleaner = Cleaner::Set("cleaning", "stripe");
const ACP: Cleaner = Cleaner::Set("preset", "acp-very-aggressive");

#[test]
fn before_forty_disks_a_cleaner_at_full_speed_at_most_doubles_the_p99_of_writes() {
    for load in [WriteLoad::Depth(1), WriteLoad::Depth(8), WriteLoad::Depth(32)] {
        compare("disks", FORTY_DISKS, STRIPE, load, 200, 1_000.0);
    }
    // So long that the core is flushed many times.
    let seldom = WriteLoad::Every(Duration::from_micros(500));
    for (cleaner, least) in [(STRIPE, 1_000.0), (ACP, 50.0), (Cleaner::Flush, 1_000.0)] {
        compare("disks", FORTY_DISKS, cleaner, seldom, 5_000, least);
    }
}

/// Before a fast core it did ten times that: hundreds of reads at once stood in the cache device's
/// queues before each write.
#[test]
fn before_eight_nvme_drives_a_cleaner_at_full_speed_at_most_doubles_the_p99_of_writes() {
    let often = WriteLoad::Every(Duration::from_micros(25));
    for load in [WriteLoad::Depth(1), WriteLoad::Depth(8), WriteLoad::Depth(32), often] {
        compare("NVMe", EIGHT_NVME, STRIPE, load, 60, 20_000.0);
    }
    compare("NVMe", EIGHT_NVME, ACP, often, 60, 5_000.0);
    compare("NVMe", EIGHT_NVME, Cleaner::Flush, often, 60, 20_000.0);
}
