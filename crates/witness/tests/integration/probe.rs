//! The probe on modelled drives whose ways are known.

use headpond_block::{
    BlockDevice, DeviceName, Geometry, Request, RequestKind, Runtime, Stability, Submission,
};
use headpond_sim::ssd::State;
use headpond_sim::{Controller, Model, ModelDevice, SparseDevice, run};
use headpond_witness::probe::{
    Depth, Explanation, Judgement, Measured, Options, OwnCache, ReadOnly, Reported, Writes, judge,
    measure,
};
use std::rc::Rc;
use std::time::Duration;

/// Answers flushes and does nothing.
struct Deaf(Rc<dyn BlockDevice>);

impl BlockDevice for Deaf {
    fn name(&self) -> &DeviceName {
        self.0.name()
    }

    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        match request.kind {
            RequestKind::Flush => Submission::ready(Ok(())),
            _ => self.0.submit(request),
        }
    }
}

fn drive(name: &str, runtime: &Runtime) -> Rc<dyn BlockDevice> {
    let model = Model::builtin(name).unwrap();
    let size = model.capacity_bytes().expect("a drive");
    let store = Rc::new(SparseDevice::new(name, Geometry::of_size(size)));
    match model {
        Model::Hdd(model) => Rc::new(ModelDevice::new(store, model, 0, runtime)),
        Model::Ssd(model) => Rc::new(ModelDevice::ssd(store, model, State::Full, 1, runtime)),
        _ => panic!("{name} is no drive"),
    }
}

fn behind(controller: &str, name: &str, runtime: &Runtime) -> Rc<dyn BlockDevice> {
    let Ok(Model::Controller(model)) = Model::builtin(controller) else { panic!("a controller") };
    // Such controllers switch the cache of their drives off.
    let Ok(Model::Hdd(disk)) = Model::builtin(name) else { panic!("a disk") };
    let disk = Rc::new((*disk).clone().with_write_cache(false));
    let store = Rc::new(SparseDevice::new(name, Geometry::of_size(disk.size_bytes())));
    let drive = Rc::new(ModelDevice::new(store, disk, 0, runtime));
    Controller::new(model, runtime).attach(drive)
}

fn probed(
    write_bytes: u64,
    device: impl Fn(&Runtime) -> Rc<dyn BlockDevice> + 'static,
) -> (Judgement, Measured) {
    run(1, move |runtime, _| async move {
        let device = device(&runtime);
        let geometry = device.geometry();
        // Drives of flash say that they have a cache, protected or not; a controller does not.
        let is_stable = geometry.stability == Stability::StableOnCompletion;
        let reported = Reported {
            rotational: Some(geometry.rotational),
            write_cache: Some(!is_stable || !geometry.rotational),
            ..Reported::default()
        };
        let options = Options { write_bytes, time: Duration::from_secs(5) };
        let measured = measure(&*device, &runtime, options, 1, &|_| {}).await.unwrap();
        (judge(&reported, &measured), measured)
    })
    .unwrap()
}

const WRITTEN: u64 = 64 << 30;

fn named(device: impl Fn(&Runtime) -> Rc<dyn BlockDevice> + 'static) -> Vec<Explanation> {
    let (judgement, measured) = probed(WRITTEN, device);
    eprintln!("{measured:#?}\n{judgement:#?}");
    judgement.named
}

#[test]
fn a_disk_that_flushes_its_cache_honours_flushes() {
    assert_eq!(named(|runtime| drive("hdd-7k2-4t", runtime)), [Explanation::HonoursFlushes]);
}

#[test]
fn a_disk_without_a_cache_writes_through() {
    let device = |runtime: &Runtime| -> Rc<dyn BlockDevice> {
        let Ok(Model::Hdd(disk)) = Model::builtin("hdd-7k2-4t") else { panic!("a disk") };
        let disk = Rc::new((*disk).clone().with_write_cache(false));
        let store = Rc::new(SparseDevice::new("disk", Geometry::of_size(disk.size_bytes())));
        Rc::new(ModelDevice::new(store, disk, 0, runtime))
    };
    assert_eq!(named(device), [Explanation::WritesThrough]);
}

#[test]
fn a_disk_that_answers_flushes_faster_than_it_turns_ignores_them() {
    let named = named(|runtime| Rc::new(Deaf(drive("hdd-7k2-4t", runtime))));
    assert_eq!(named[0], Explanation::IgnoresFlushes);
    assert!(!named.contains(&Explanation::HonoursFlushes), "{named:?}");
}

#[test]
fn a_disk_behind_a_controller_with_a_cache_is_hidden() {
    let named = named(|runtime| behind("raid-cache-1g", "hdd-7k2-4t", runtime));
    assert_eq!(named, [Explanation::BehindACache]);
}

#[test]
fn a_drive_of_flash_without_protection_that_waits_for_flash_honours_flushes() {
    let named = named(|runtime| drive("ssd-consumer-250g", runtime));
    assert_eq!(named, [Explanation::HonoursFlushes]);
}

#[test]
fn protected_caches_and_ignored_flushes_are_named_both_where_nothing_tells_them_apart() {
    for (name, truth) in [
        ("ssd-dc-960g", Explanation::ProtectedCache),
        ("ssd-x25m-g2-160g", Explanation::IgnoresFlushes),
    ] {
        let named = named(move |runtime| drive(name, runtime));
        assert!(named.contains(&truth), "{name}: {named:?}");
        assert!(!named.contains(&Explanation::HonoursFlushes), "{name}: {named:?}");
        assert!(named.len() > 1, "{name}: timing cannot tell: {named:?}");
    }
}

#[test]
fn reads_alone_tell_nothing_of_flushes() {
    let (judgement, measured) = probed(0, |runtime| drive("hdd-7k2-4t", runtime));
    assert_eq!((judgement.named, measured.writes), (vec![], None));
}

fn depth(median_us: f64, per_second: f64) -> Depth {
    Depth { count: 1000, per_second, median_us, shortest_us: median_us, longest_us: median_us }
}

/// Flash of which so much is left at depth 16 with a flush after each write, and all else open.
fn flash(left: f64) -> Measured {
    let writes = Writes {
        same_unsynced: depth(50.0, 20_000.0),
        same_synced: depth(90.0, 11_000.0),
        flush: depth(40.0, 11_000.0),
        spread_unsynced: depth(600.0, 25_000.0),
        spread_synced: depth(600.0 / left, 25_000.0 * left),
        burst_blocks: 20_000,
        burst_is_bounded: false,
        burst_flush_us: 45.0,
    };
    Measured { reads: ReadOnly { random: depth(90.0, 11_000.0) }, writes: Some(writes) }
}

fn likelihood(reported: &Reported, measured: &Measured, of: Explanation) -> f64 {
    let judgement = judge(reported, measured);
    judgement.likelihoods.iter().find(|(explanation, _)| *explanation == of).unwrap().1
}

#[test]
fn what_flushes_leave_at_depth_is_weighed() {
    let unknown = Reported::default();
    let honours = |left| likelihood(&unknown, &flash(left), Explanation::HonoursFlushes);
    assert!(honours(0.05) > 2.0 * honours(0.3), "{} {}", honours(0.05), honours(0.3));
    assert!(honours(0.3) > 2.0 * honours(1.0), "{} {}", honours(0.3), honours(1.0));
    let said = judge(&unknown, &flash(0.3)).reasons;
    assert!(said.iter().any(|it| it.seen.contains("7500 with one after each (30 % are left)")));
}

#[test]
fn what_a_drive_says_of_itself_tells_apart_what_its_times_do_not() {
    let measured = flash(1.0);
    let of = |reported: &Reported, what| likelihood(reported, &measured, what);
    let (protected, ignored) = (Explanation::ProtectedCache, Explanation::IgnoresFlushes);
    let unknown = Reported::default();
    let odds = |reported: &Reported| of(reported, protected) / of(reported, ignored);
    for reported in [
        Reported { non_volatile_cache: Some(true), ..Reported::default() },
        Reported { own_cache: Some(OwnCache::Absent), ..Reported::default() },
        Reported { is_sold_as_protected: Some("by its name".into()), ..Reported::default() },
        Reported { fua: Some(true), ..Reported::default() },
    ] {
        assert!(odds(&reported) > 1.2 * odds(&unknown), "{reported:?}");
        assert_eq!(judge(&reported, &measured).reasons.len(), 4, "{reported:?}");
    }
    let behind = Reported { controller: Some("megaraid_sas".into()), ..Reported::default() };
    let hidden = Explanation::BehindACache;
    assert!(of(&behind, hidden) > 1.3 * of(&unknown, hidden));
}

#[test]
fn a_disk_that_says_how_fast_it_turns_is_held_to_that() {
    // 6 ms with a flush: a turn at 10,000 a minute, and too soon at 7,200.
    let mut measured = flash(1.0);
    measured.reads.random = depth(8000.0, 125.0);
    measured.writes.as_mut().unwrap().same_synced = depth(6000.0, 166.0);
    let honest = |turns| {
        let reported = Reported { turns_per_minute: turns, ..Reported::default() };
        let judged = judge(&reported, &measured).likelihoods;
        let of = |wanted| judged.iter().find(|(it, _)| *it == wanted).unwrap().1;
        of(Explanation::HonoursFlushes) + of(Explanation::WritesThrough)
    };
    assert!(honest(None) > 0.8 && honest(Some(10_000)) > 0.8, "{}", honest(Some(10_000)));
    assert!(honest(Some(7200)) < 0.2, "{}", honest(Some(7200)));
}
