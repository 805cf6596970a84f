//! What the priority and the share of an I/O class do to what the cache holds.

use crate::bench::{Bench, block, nop, simulate};
use crate::machine::{CACHE_BYTES, CORE_BYTES};
use headpond_block::{BlockDevice, Buffer, Hints, Request, Runtime};
use headpond_cache::classes::{ClassId, Classes};
use headpond_cache::{
    AdmissionConfig, ClassUsage, CleaningConfig, CleaningPolicy, EvictionPolicy, Mode, Slice,
    SliceConfig,
};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const REQUESTS: u64 = 6000;
/// Blocks of the core that one class works on: several times what the cache keeps, for all of them.
const BLOCKS: u64 = CORE_BYTES / 4096 / 4;
const _: () = assert!(BLOCKS * 4096 > CACHE_BYTES);
/// A working set that is smaller than the cache.
const FEW: u64 = 300;
/// What rounding may cost.
const SLACK: u64 = 2;

const RULES: &str = "[[class]]\nid = 0\npriority = 200\n\n\
                     [[class]]\nid = 1\nwhen = \"never\"\npriority = 100\noccupancy = 0.10\n\n\
                     [[class]]\nid = 2\nwhen = \"never\"\npriority = 100\noccupancy = 0.30\n\n\
                     [[class]]\nid = 3\nwhen = \"never\"\npriority = \"pinned\"\n";

fn with(rules: &str, eviction: EvictionPolicy, mode: Mode) -> SliceConfig {
    let classes = Arc::new(Classes::parse(rules).unwrap());
    let admission = AdmissionConfig { classes, ..AdmissionConfig::default() };
    SliceConfig { admission, eviction, mode, cleaning: CleaningConfig::default(), ..nop() }
}

async fn submit(slice: &Slice, request: Request, class: u8) {
    let hints = Hints { class, ..Hints::default() };
    (slice as &dyn BlockDevice).submit(request.with_hints(hints)).await.unwrap();
}

async fn read(slice: &Slice, runtime: &Runtime, place: u64, class: u8) {
    submit(slice, Request::read(place * 4096, Buffer::zeroed(4096)), class).await;
    runtime.sleep(Duration::from_millis(5)).await;
}

async fn write(slice: &Slice, runtime: &Runtime, place: u64, class: u8) {
    submit(slice, Request::write(place * 4096, block(place as u8)), class).await;
    runtime.sleep(Duration::from_millis(5)).await;
}

fn usage(slice: &Slice, class: u8) -> ClassUsage {
    let id = ClassId::new(class.into()).unwrap();
    let classes = slice.stats().classes;
    classes.iter().find(|stats| stats.id == id).map(|stats| stats.usage).unwrap_or_default()
}

fn resident_max(slice: &Slice) -> u64 {
    slice.stats().eviction.resident_bytes_max / 4096
}

/// Reads and writes of all four classes, each at its own part of the core. The pinned class asks
/// for few blocks, the others for more than the cache has.
async fn work(slice: &Slice, runtime: &Runtime, requests: u64) {
    for _ in 0..requests {
        let draw = SplitMix64::seed_from_u64(slice.stats().counters.requests()).next_u64();
        let (class, draw) = (draw % 4, draw / 4);
        let among = if class == 3 { FEW } else { BLOCKS };
        let place = class * BLOCKS + draw / 4 % among;
        match draw.is_multiple_of(4) {
            true => write(slice, runtime, place, class as u8).await,
            false => read(slice, runtime, place, class as u8).await,
        }
    }
}

fn check_shares(slice: &Slice, shares: &[(u8, u64)]) {
    slice.self_check();
    for &(class, percent) in shares {
        let (held, most) = (usage(slice, class).resident_blocks, resident_max(slice));
        assert!(held <= most * percent / 100, "class {class} holds {held} of {most}");
    }
}

/// What is said of the classes adds up to what is said of the cache.
fn check_sums(slice: &Slice) {
    let stats = slice.stats();
    let mut sum = ClassUsage::default();
    stats.classes.iter().for_each(|class| sum += class.usage);
    let dirty = stats.dirty_bytes + stats.written_bytes;
    assert_eq!(sum.clean_blocks * 4096, stats.clean_bytes);
    assert_eq!(sum.dirty_blocks * 4096, dirty);
    assert_eq!(sum.resident_blocks * 4096, stats.eviction.resident_bytes);
}

fn every_policy() -> Vec<EvictionPolicy> {
    EvictionPolicy::PLAIN.into_iter().chain([EvictionPolicy::Adaptive]).collect()
}

#[test]
fn shares_hold_under_mixed_load_and_the_pinned_class_keeps_its_blocks() {
    for (eviction, mode, line) in every_policy().into_iter().flat_map(|eviction| {
        [(Mode::WriteBack, 4096), (Mode::WriteThrough, 4096), (Mode::WriteThrough, 65536)]
            .map(|(mode, line)| (eviction, mode, line))
    }) {
        simulate(async |runtime| {
            let bench = Bench::with_lines(&runtime, line).await;
            let slice = bench.open(with(RULES, eviction, mode)).await;
            for _ in 0..4 {
                work(&slice, &runtime, REQUESTS / 4).await;
                check_shares(&slice, &[(1, 10), (2, 30)]);
                check_sums(&slice);
            }
            let most = resident_max(&slice);
            // In write-back, what is written when a share is dirty goes past, and ends what was
            // there; and scattered blocks use up the map of long lines.
            let is_exact = !mode.is_write_back() && line == 4096;
            for (class, percent) in [(1, 10), (2, 30)].into_iter().filter(|_| is_exact) {
                let (held, share) = (usage(&slice, class).resident_blocks, most * percent / 100);
                assert!(held + SLACK >= share, "{eviction:?}: class {class} has {held} of {share}");
            }
            let before = slice.stats().counters.read.blocks_missed;
            for place in 0..FEW {
                read(&slice, &runtime, 3 * BLOCKS + place, 3).await;
            }
            let missed = slice.stats().counters.read.blocks_missed - before;
            assert!(
                !is_exact || missed <= FEW / 20,
                "{eviction:?}: {missed} of the pinned class had left"
            );
            assert!(slice.stats().counters.segments_reclaimed > 5);
        });
    }
}

#[test]
fn other_rules_hold_at_once_and_blocks_stay_of_their_class() {
    for eviction in every_policy() {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let slice = bench.open(with(RULES, eviction, Mode::WriteThrough)).await;
            work(&slice, &runtime, REQUESTS / 2).await;
            let before = usage(&slice, 2);
            let other = RULES.replace("0.30", "0.05").replace("0.10", "0.20");
            slice.set_config(with(&other, eviction, Mode::WriteThrough)).unwrap();
            let occupied = usage(&slice, 2).occupied_blocks();
            assert_eq!(occupied, before.occupied_blocks(), "what is there is there");
            for _ in 0..3 {
                check_shares(&slice, &[(1, 20), (2, 5)]);
                check_sums(&slice);
                work(&slice, &runtime, REQUESTS / 6).await;
            }
            slice.set_config(with("", eviction, Mode::WriteThrough)).unwrap();
            check_sums(&slice);
            assert_eq!(slice.stats().memory.classes, 0, "nobody asks any more");
            work(&slice, &runtime, REQUESTS / 6).await;
            slice.self_check();
        });
    }
}

/// The lowest priority leaves first; a class drives nobody out who stands above it.
#[test]
fn priorities_decide_who_leaves_for_whom() {
    for eviction in every_policy() {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let rules = "[[class]]\nid = 1\nwhen = \"never\"\npriority = 1\n\n\
                         [[class]]\nid = 2\nwhen = \"never\"\npriority = 2\n\n\
                         [[class]]\nid = 3\nwhen = \"never\"\npriority = 3\n";
            let slice = bench.open(with(rules, eviction, Mode::WriteThrough)).await;
            let most = resident_max(&slice);
            let (third, half) = (most / 3, most / 2);
            for place in 0..third {
                for class in [1, 2, 3] {
                    read(&slice, &runtime, u64::from(class) * BLOCKS + place, class).await;
                }
            }
            let held = |class| usage(&slice, class).resident_blocks;
            assert_eq!([held(1), held(2), held(3)], [third; 3]);
            for place in third..half {
                read(&slice, &runtime, 2 * BLOCKS + place, 2).await;
            }
            let left = most - third - half;
            assert_eq!([held(1), held(2), held(3)], [third, half, left], "{eviction:?}");
            for place in third..most {
                read(&slice, &runtime, BLOCKS + place, 1).await;
            }
            assert_eq!([held(1), held(2), held(3)], [most, 0, 0], "{eviction:?}");
            let before = slice.stats().counters;
            read(&slice, &runtime, 3 * BLOCKS + BLOCKS - 1, 3).await;
            let after = slice.stats().counters;
            assert_eq!(held(1), most, "class 3 has no place");
            assert_eq!(after.bypass.class_share, before.bypass.class_share + 1);
            assert_eq!(after.inserted_blocks, before.inserted_blocks);
            slice.self_check();
        });
    }
}

#[test]
fn of_what_may_be_dirty_a_class_gets_its_share() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let config = with(RULES, EvictionPolicy::S3Fifo, Mode::WriteBack);
        let slice = bench.open(SliceConfig { cleaning: nop().cleaning, ..config }).await;
        let most = slice.stats().dirty_bytes_max / 4096 / 10;
        for place in 0..2 * most {
            write(&slice, &runtime, place, 1).await;
        }
        let counters = slice.stats().counters;
        assert!((most - SLACK..=most).contains(&usage(&slice, 1).dirty_blocks));
        assert_eq!(counters.write.pass_through, counters.bypass.class_share);
        assert_eq!(counters.bypass.class_share, most, "the rest went past");
        write(&slice, &runtime, 0, 1).await;
        write(&slice, &runtime, BLOCKS, 0).await;
        let after = slice.stats().counters;
        assert_eq!(after.bypass.total(), counters.bypass.total(), "a dirty one, and another's");
        slice.self_check();
    });
}

/// What went past would be at the core before its turn.
#[test]
fn in_order_what_a_class_writes_beyond_its_share_stays_in_the_log() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let config = with(RULES, EvictionPolicy::S3Fifo, Mode::WriteBack);
        let cleaning = CleaningConfig { policy: CleaningPolicy::Ordered, ..config.cleaning };
        let slice = bench.open(SliceConfig { cleaning, ..config }).await;
        let share = slice.stats().dirty_bytes_max / 4096 / 10;
        for place in 0..2 * share {
            let request = Request::write(place * 4096, block(place as u8));
            submit(&slice, request, 1).await;
        }
        assert_eq!(slice.stats().counters.bypass.total(), 0);
        assert_eq!(usage(&slice, 1).dirty_blocks, 2 * share);
        check_shares(&slice, &[(1, 10)]);
    });
}

#[test]
fn a_hit_makes_a_block_one_of_the_class_that_asked() {
    for eviction in EvictionPolicy::PLAIN {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let slice = bench.open(with(RULES, eviction, Mode::WriteBack)).await;
            let held = |class| usage(&slice, class).resident_blocks;
            for place in 0..10 {
                read(&slice, &runtime, place, 0).await;
            }
            read(&slice, &runtime, 0, 2).await;
            assert_eq!([held(0), held(1), held(2)], [9, 0, 1], "{eviction:?}");
            write(&slice, &runtime, 1, 1).await;
            assert_eq!([held(0), held(1), held(2)], [8, 1, 1], "{eviction:?}");
            write(&slice, &runtime, 0, 2).await;
            read(&slice, &runtime, 1, 1).await;
            assert_eq!([held(0), held(1), held(2)], [8, 1, 1], "{eviction:?}");
            slice.self_check();
            check_sums(&slice);
        });
    }
}

/// Found by the swarm: its first blocks drove out the last ones, which then counted as hits.
#[test]
fn a_write_that_drives_out_blocks_of_its_own_brings_them_in_again() {
    for eviction in every_policy() {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let rules = RULES.replace("0.10", "0.02");
            let slice = bench.open(with(&rules, eviction, Mode::WriteThrough)).await;
            let most = resident_max(&slice) * 2 / 100;
            for place in 10..10 + most {
                write(&slice, &runtime, place, 1).await;
                runtime.sleep(Duration::from_millis(200)).await;
            }
            assert_eq!(usage(&slice, 1).resident_blocks, most);
            let request = Request::write(0, Buffer::zeroed(16 * 4096));
            submit(&slice, request, 1).await;
            assert_eq!(slice.stats().counters.bypass.total(), 0);
            assert!(usage(&slice, 1).resident_blocks + SLACK >= most);
            slice.self_check();
        });
    }
}

/// What each class holds: all of it, and what is resident.
fn held(slice: &Slice) -> [[u64; 2]; 4] {
    [0, 1, 2, 3].map(|class| {
        let ClassUsage { clean_blocks, dirty_blocks, resident_blocks } = usage(slice, class);
        [clean_blocks + dirty_blocks, resident_blocks]
    })
}

/// Devices that outlive a simulation, with a cache of such lines.
fn devices(line_bytes: u32) -> Keep<Bench> {
    let (bench, place) = kept();
    simulate(async move |runtime| {
        place.replace(Some(Bench::with_lines(&runtime, line_bytes).await));
    });
    bench
}

/// One life on them, which ends in order where it stops the slice.
fn live<T: 'static>(
    bench: &Keep<Bench>,
    config: &SliceConfig,
    life: impl AsyncFnOnce(Slice, Runtime) -> T,
) -> T {
    let (result, place) = kept();
    let (bench, config) = (bench.borrow().clone().expect("devices"), config.clone());
    simulate(async move |runtime| {
        let slice = Bench { runtime: runtime.clone(), ..bench }.open(config).await;
        place.replace(Some(life(slice, runtime).await));
    });
    result.take().expect("a life with a result")
}

fn kept<T>() -> (Keep<T>, Keep<T>) {
    let place = Keep::default();
    (Rc::clone(&place), place)
}

type Keep<T> = Rc<RefCell<Option<T>>>;

#[test]
fn after_a_stop_blocks_are_of_their_class_and_as_resident_as_they_were() {
    for eviction in every_policy() {
        for (line, mode) in [4096, 65536].into_iter().zip([Mode::WriteBack, Mode::WriteThrough]) {
            let (bench, config) = (devices(line), with(RULES, eviction, mode));
            let before = live(&bench, &config, async |slice, runtime| {
                work(&slice, &runtime, REQUESTS).await;
                let before = held(&slice);
                slice.stop().await.unwrap();
                before
            });
            assert!(before.iter().all(|[.., resident]| *resident > 0), "{before:?}");
            let after = live(&bench, &config, async |slice, _| {
                slice.self_check();
                check_sums(&slice);
                let after = held(&slice);
                slice.stop().await.unwrap();
                after
            });
            // Of a long line the piece that lies furthest on says for which class it is.
            match line {
                4096 => assert_eq!(before, after, "{eviction:?}"),
                _ => assert_eq!(before.map(|[all, _]| all), after.map(|[all, _]| all)),
            }
            let residents = |held: [[u64; 2]; 4]| held.map(|[_, it]| it).into_iter().sum::<u64>();
            assert_eq!(residents(before), residents(after), "{eviction:?}, {line}");
            // Without classes they stay, and where there is room others beside them.
            let plain = SliceConfig { admission: AdmissionConfig::default(), ..config };
            let found = live(&bench, &plain, async |slice, _| {
                slice.self_check();
                slice.stats().eviction.resident_bytes
            });
            assert!(found >= residents(before) * 4096, "{eviction:?}, {line}: {found}");
        }
    }
}

#[test]
fn after_a_cut_what_the_core_lacks_is_of_its_class_and_resident_though_it_came_after_a_stop() {
    for line in [4096, 65536] {
        let (bench, config) = (devices(line), with(RULES, EvictionPolicy::S3Fifo, Mode::WriteBack));
        let config = SliceConfig { cleaning: nop().cleaning, ..config };
        let writes = async |slice: &Slice, runtime: &Runtime, places: std::ops::Range<u64>| {
            for place in places {
                write(slice, runtime, place, (place % 4) as u8).await;
            }
            (slice as &dyn BlockDevice).flush().await.unwrap();
        };
        live(&bench, &config, async |slice, runtime| {
            writes(&slice, &runtime, 0..60).await;
            slice.stop().await.unwrap();
        });
        let before = live(&bench, &config, async |slice, runtime| {
            writes(&slice, &runtime, 64..124).await;
            held(&slice)
        });
        assert_eq!(before.map(|[mapped, _]| mapped), [30; 4]);
        for _ in 0..2 {
            let after = live(&bench, &config, async |slice, _| {
                slice.self_check();
                held(&slice)
            });
            assert_eq!(before, after);
        }
    }
}

/// As caches were made before classes were kept.
#[test]
fn a_cache_without_the_flag_knows_no_class_after_a_stop_until_blocks_are_asked_for() {
    let rules = RULES.replace("id = 0\n", "id = 0\npass_through = true\n");
    let config = with(&rules, EvictionPolicy::S3Fifo, Mode::WriteBack);
    let bench = devices(4096);
    let older = bench.borrow().clone().expect("devices");
    simulate(async |_| older.forget_classes().await);
    live(&bench, &config, async |slice, runtime| {
        for place in 0..FEW {
            read(&slice, &runtime, place, 3).await;
        }
        assert_eq!(usage(&slice, 3).resident_blocks, FEW);
        slice.stop().await.unwrap();
    });
    live(&bench, &config, async |slice, runtime| {
        assert_eq!(usage(&slice, 0).resident_blocks, FEW, "kept, though class 0 goes past");
        for place in 0..FEW / 2 {
            read(&slice, &runtime, place, 3).await;
        }
        let held = [0, 3].map(|class| usage(&slice, class).resident_blocks);
        assert_eq!(held, [FEW / 2, FEW / 2]);
        assert_eq!(slice.stats().counters.read.hits, FEW / 2);
    });
}

#[test]
fn classes_take_a_byte_for_each_place_and_nothing_where_there_is_one() {
    simulate(async |runtime| {
        for line in [4096, 65536] {
            let bench = Bench::with_lines(&runtime, line).await;
            let slice = bench.open(nop()).await;
            assert_eq!(slice.stats().memory.classes, 0);
            let before = slice.stats().memory_bytes;
            let config = with(RULES, nop().eviction, nop().mode);
            slice.set_config(config).unwrap();
            let (stats, places) = (slice.stats(), CACHE_BYTES / 4096);
            assert!(stats.memory.classes <= places + 5000, "{:?}", stats.memory);
            assert!(stats.memory_bytes - before >= stats.memory.classes);
        }
    });
}
