//! Starts without the device of the cache: where the members say that it had nothing that they
//! lack, and nowhere else.

use crate::support::{CREATE, careful, description};
use headpond_block::{BlockDevice, Buffer, Request, Runtime};
use headpond_cache::Mode;
use headpond_sim::{Ended, Medium, OperationTime, Power, Sim, SimDisk, run_until_cut};
use headpond_volume::{Description, Devices, OpenError, Volume};
use std::rc::Rc;

const MIB: u64 = 1 << 20;

/// The disks of a RAID 5 behind a cache, the cache's first.
struct Disks {
    media: Vec<Rc<Medium>>,
    power: Power,
}

impl Disks {
    fn new() -> Self {
        let member = |name: &str| Rc::new(Medium::flushable(name, 9 * MIB).with_atoms(4096));
        let mut media = vec![Rc::new(Medium::flushable("cache", 26 * MIB))];
        media.extend(["m0", "m1", "m2"].map(member));
        let disks = Self { media, power: Power::on() };
        disks.live(1, true, async |runtime, devices| {
            drop(runtime);
            Volume::create(&described(), &devices, &CREATE).await.expect("created");
        });
        disks
    }

    fn live<T>(
        &self,
        seed: u64,
        with_cache: bool,
        life: impl AsyncFnOnce(Runtime, Devices) -> T,
    ) -> Ended<T> {
        let main = async |runtime: Runtime, sim: Sim| {
            let attach = |medium: &Rc<Medium>| {
                let (medium, time) = (Rc::clone(medium), OperationTime::SOME);
                let disk = SimDisk::attach(medium, &self.power, &runtime, &sim, time);
                Rc::new(disk) as Rc<dyn BlockDevice>
            };
            let devices = Devices {
                cache: with_cache.then(|| attach(&self.media[0])),
                members: self.media[1..].iter().map(attach).collect(),
                ..Devices::default()
            };
            life(runtime.clone(), devices).await
        };
        let ended = run_until_cut(seed, &self.power, main).expect("no deadlock");
        self.power.come_back(&self.media, seed);
        ended
    }

    /// Opens it, writes `value` and flushes, cleans where that is wanted, and stops.
    fn write(&self, value: u8, how: Life) -> Ended<()> {
        self.live(value.into(), how.with_cache, async |runtime, devices| {
            let volume = Volume::open(&runtime, &described(), devices, careful()).await;
            let volume = volume.expect("opens");
            let content = Buffer::from_slice(&[value; 8192]);
            volume.submit(Request::write(4096, content)).await.expect("written");
            volume.submit(Request::flush()).await.expect("flushed");
            if how.is_cleaned {
                volume.clean_all().await.expect("cleaned");
            }
            if how.is_stopped {
                volume.stop().await.expect("stopped");
            }
        })
    }

    /// What is read without the cache, and what was told at the start; or that it is refused.
    fn without_cache(&self) -> Result<(u8, Vec<String>), OpenError> {
        let ended = self.live(99, false, async |runtime, devices| {
            let volume = Volume::open(&runtime, &described(), devices, careful()).await?;
            let found = Buffer::zeroed(4096);
            volume.submit(Request::read(4096, &found)).await.expect("read");
            let told = volume.status().warnings;
            volume.stop().await.expect("stopped");
            Ok((found.to_vec()[0], told))
        });
        let Ended::Finished(found) = ended else { panic!("nobody cut the power") };
        found
    }
}

#[derive(Clone, Copy)]
struct Life {
    with_cache: bool,
    is_cleaned: bool,
    is_stopped: bool,
}

const CLEAN: Life = Life { with_cache: true, is_cleaned: true, is_stopped: true };

fn described() -> Description {
    description(Mode::WriteBack, 1)
}

fn is_refused(found: &Result<(u8, Vec<String>), OpenError>) -> bool {
    matches!(found, Err(OpenError::NoCacheDevice { .. }))
}

#[test]
fn a_cache_that_had_nothing_may_be_away_and_is_not_used_when_it_comes_back() {
    let disks = Disks::new();
    disks.write(1, CLEAN);
    let (found, told) = disks.without_cache().expect("it starts");
    assert_eq!(found, 1);
    assert!(told.iter().any(|it| it.contains("started without its cache")), "{told:?}");
    assert_eq!(disks.without_cache().expect("again").0, 1);
    disks.write(2, Life { with_cache: false, ..CLEAN });
    // It still has the first version, as clean.
    let ended = disks.live(5, true, async |runtime, devices| {
        let volume = Volume::open(&runtime, &described(), devices, careful()).await.expect("opens");
        let found = Buffer::zeroed(4096);
        volume.submit(Request::read(4096, &found)).await.expect("read");
        (found.to_vec()[0], volume.status().cache.is_some())
    });
    assert!(matches!(ended, Ended::Finished((2, false))));
}

#[test]
fn a_cache_that_may_have_something_is_missed() {
    let dirty = Life { is_cleaned: false, ..CLEAN };
    let killed = Life { is_stopped: false, ..CLEAN };
    for last in [dirty, killed, Life { is_stopped: false, ..dirty }] {
        for is_clean_before in [false, true] {
            let disks = Disks::new();
            if is_clean_before {
                disks.write(1, CLEAN);
            }
            disks.write(2, last);
            assert!(is_refused(&disks.without_cache()));
            disks.write(3, CLEAN);
            assert_eq!(disks.without_cache().expect("it starts").0, 3);
        }
    }
}

/// Cut anywhere, it is missed, or nobody misses anything.
#[test]
fn a_stop_that_is_cut_says_no_more_than_is_true() {
    let (mut started, mut refused) = (0, 0);
    for at in 0.. {
        let disks = Disks::new();
        disks.write(1, Life { is_cleaned: false, ..CLEAN });
        disks.power.cut_after(at * 3);
        let was_cut = disks.write(2, CLEAN).was_cut();
        // The one that was acknowledged before the clean stop is there wherever it starts.
        match disks.without_cache() {
            Ok((found, _)) => {
                assert_eq!(found, 2, "cut {at}");
                started += 1;
            }
            found => {
                assert!(is_refused(&found), "cut {at}");
                refused += 1;
            }
        }
        if !was_cut {
            break;
        }
    }
    assert!(started > 1 && refused > 10, "{started}, {refused}");
}

/// What happens between the copy of a cache and its return.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    Stop,
    /// A stop with everything cleaned before.
    CleanStop,
    Kill,
}

/// Writes in a life, and what ends it; a life that goes on is ended by the next step.
fn play(disks: &Disks, steps: &[Step], first: u8) -> u8 {
    let mut newest = first;
    for step in steps {
        let how = match step {
            Step::Write | Step::Kill => Life { is_stopped: false, is_cleaned: false, ..CLEAN },
            Step::Stop => Life { is_cleaned: false, ..CLEAN },
            Step::CleanStop => CLEAN,
        };
        newest += 1;
        disks.write(newest, how);
    }
    newest
}

/// A cache is copied after a first history, and put back after a second one. Each step is a life: a
/// start, a write that is flushed, and an end. Whatever starts then has the newest write.
#[test]
fn an_older_image_of_a_cache_is_never_taken_for_the_cache() {
    let all = [Step::Write, Step::Stop, Step::CleanStop, Step::Kill];
    let mut histories = Vec::new();
    for [before, first] in all.iter().flat_map(|it| all.map(|other| [*it, other])) {
        histories.push((before, vec![first]));
        histories.extend(all[1..].iter().map(|more| (before, vec![first, *more])));
    }
    let mut refused = 0;
    for (before, steps) in histories {
        let disks = Disks::new();
        let newest = play(&disks, &[before], 0);
        let image = disks.media[0].duplicate();
        let newest = play(&disks, &steps, newest);
        disks.media[0].poke(0, &image.peek(0, (26 * MIB) as usize));
        let ended = disks.live(50, true, async |runtime, devices| {
            let volume = Volume::open(&runtime, &described(), devices, careful()).await?;
            let found = Buffer::zeroed(4096);
            volume.submit(Request::read(4096, &found)).await.expect("read");
            Ok(found.to_vec()[0])
        });
        let Ended::Finished(found) = ended else { panic!("nobody cut the power") };
        let context = format!("{before:?}, then {steps:?}");
        match found {
            Ok(found) => assert_eq!(found, newest, "{context}"),
            Err(OpenError::OlderCache { .. }) => refused += 1,
            Err(error) => panic!("{context}: {error}"),
        }
    }
    // Where the last stop left nothing dirty it starts without the cache.
    assert!(refused > 30, "{refused}");
}

/// Copied and put back while nobody serves, it is the cache.
#[test]
fn an_image_that_is_no_older_is_taken_without_a_word() {
    for step in [Step::Stop, Step::CleanStop, Step::Kill] {
        let disks = Disks::new();
        let newest = play(&disks, &[Step::Stop, step], 0);
        let image = disks.media[0].duplicate();
        disks.media[0].poke(0, &image.peek(0, (26 * MIB) as usize));
        let ended = disks.live(50, true, async |runtime, devices| {
            let volume = Volume::open(&runtime, &described(), devices, careful()).await;
            let volume = volume.expect("opens");
            assert!(volume.status().cache.is_some());
            let found = Buffer::zeroed(4096);
            volume.submit(Request::read(4096, &found)).await.expect("read");
            found.to_vec()[0]
        });
        assert!(matches!(ended, Ended::Finished(found) if found == newest), "{step:?}");
    }
}
