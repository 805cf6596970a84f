//! Shares of I/O classes and the adaptive bypass, where there is more than one cache, or another;
//! and what is read for classes.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::{BypassPolicy, Mode, SliceStats};
use headpond_raid::Occupied;
use headpond_sim::run;
use headpond_volume::{
    ClassSetting, Description, Devices, Dirty, Size, TierDescription, TierSettings, Volume,
};
use std::future::ready;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
/// Where the class with a share begins, and the one that goes past.
const SHARED: u64 = 6 * MIB;
const PAST: u64 = 24 * MIB;
const SHARE_PERCENT: u64 = 10;

const RULES: &str = "[[class]]\nid = 1\nwhen = \"lba:ge:49152&done\"\npass_through = true\n\n\
                     [[class]]\nid = 2\nwhen = \"lba:ge:12288&done\"\noccupancy = 0.10\n";
const _: () = assert!(PAST == 49152 * 512 && SHARED == 12288 * 512);

/// Devices that do not lend their memory.
fn device(runtime: &Runtime, name: &str) -> Rc<dyn BlockDevice> {
    faulty(runtime, name, FaultControl::default())
}

fn faulty(runtime: &Runtime, name: &str, faults: FaultControl) -> Rc<dyn BlockDevice> {
    let stability = Stability::Flushable;
    let geometry = Geometry { stability, ..Geometry::of_size(16 * MIB) };
    let inner: Rc<dyn BlockDevice> = Rc::new(RamDevice::with_geometry(name, geometry));
    Rc::new(FaultDevice::new(inner, faults, runtime.clone()))
}

async fn open(runtime: &Runtime, tier: Option<Mode>) -> Volume {
    let memory = || -> Rc<dyn BlockDevice> { Rc::new(RamDevice::new("ram", 16 * MIB)) };
    let devices = Devices {
        tier: tier.map(|_| memory()),
        cache: Some(device(runtime, "cache")),
        members: ["m0", "m1", "m2"].map(|name| device(runtime, name)).into(),
        journals: Vec::new(),
        absent: Vec::new(),
        changed: Vec::new(),
        copies: Vec::new(),
    };
    let mut description = Description {
        tier: tier.map(|mode| TierDescription {
            device: "ram:16M".into(),
            line: Size(4096),
            settings: TierSettings { mode, ..TierSettings::default() },
            volatile_allowed: mode.is_write_back(),
        }),
        ..description(Mode::WriteBack, 2)
    };
    let settings = &mut description.cache.as_mut().unwrap().settings;
    settings.classes = ClassSetting::parse(RULES).unwrap();
    settings.bypass = BypassPolicy::Adaptive;
    settings.readahead.policy = headpond_volume::ReadaheadPolicy::Off;
    Volume::create(&description, &devices, &CREATE).await.unwrap();
    Volume::open(runtime, &description, devices, careful()).await.unwrap()
}

/// Reads everything from one place to another, block by block, in no order that is a stream.
async fn read_all(volume: &Volume, runtime: &Runtime, from: u64, to: u64) {
    let blocks = (to - from) / 4096;
    for turn in 0..blocks {
        let place = from + turn * 613 % blocks * 4096;
        (volume as &dyn BlockDevice).read(place, Buffer::zeroed(4096)).await.unwrap();
        runtime.sleep(Duration::from_micros(200)).await;
    }
}

fn held(slices: &[SliceStats], class: u8) -> u64 {
    let classes = slices.iter().flat_map(|slice| &slice.classes);
    let of_class = classes.filter(|stats| u8::from(stats.id) == class);
    of_class.map(|stats| stats.usage.resident_blocks).sum()
}

/// All of the share, and no more, for who asked for more than that; nothing for who goes past.
fn check(slices: &[SliceStats]) {
    let residents = |slice: &SliceStats| slice.eviction.resident_bytes_max / 4096;
    let most = slices.iter().map(|slice| residents(slice) * SHARE_PERCENT / 100).sum();
    let found = held(slices, 2);
    assert!(found <= most && found + 2 >= most, "{found} of {most}");
    assert_eq!(held(slices, 1), 0);
    let past = slices.iter().flat_map(|slice| &slice.classes).find(|it| u8::from(it.id) == 1);
    assert!(past.is_some_and(|stats| stats.bypass.class > 0));
}

#[test]
fn a_class_has_its_share_of_the_tier_and_of_the_cache_and_goes_past_both() {
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        run(1, |runtime, _| async move {
            let volume = open(&runtime, Some(mode)).await;
            read_all(&volume, &runtime, SHARED, SHARED + 8 * MIB).await;
            read_all(&volume, &runtime, PAST, PAST + MIB).await;
            let stats = volume.stats();
            check(&stats.tier_slices);
            check(&stats.slices);
            volume.self_check();
            let report = volume.report();
            for cache in [report.tier.unwrap(), report.cache.unwrap()] {
                let class = cache.classes.iter().find(|class| class.id == 2).unwrap();
                let row = class.usage.iter().find(|row| row.name == "Resident").unwrap();
                assert!((9.0..=10.0).contains(&row.percent), "{}", row.percent);
            }
            volume.stop().await.unwrap();
        })
        .expect("no deadlock");
    }
}

/// Memory answers sooner than anything below it.
#[test]
fn the_bypass_concerns_the_cache_and_not_the_tier() {
    run(1, |runtime, _| async move {
        let volume = open(&runtime, Some(Mode::WriteThrough)).await;
        let status = volume.status();
        let policies = |cache: headpond_volume::CacheStatus| -> Vec<_> {
            cache.bypasses.iter().map(|slice| slice.policy).collect()
        };
        assert_eq!(policies(status.tier.unwrap()), [BypassPolicy::Off; 2]);
        assert_eq!(policies(status.cache.unwrap()), [BypassPolicy::Adaptive; 2]);
        volume.set(&["bypass=off".parse().unwrap()]).await.unwrap();
        assert_eq!(policies(volume.status().cache.unwrap()), [BypassPolicy::Off; 2]);
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}

/// As `resize`, `purge` and `replace` do.
#[test]
fn another_cache_begins_with_nothing_held_and_the_same_shares() {
    run(1, |runtime, _| async move {
        let volume = open(&runtime, None).await;
        for round in 0..3 {
            let stats = volume.stats();
            assert_eq!([held(&stats.slices, 1), held(&stats.slices, 2)], [0, 0]);
            read_all(&volume, &runtime, SHARED, SHARED + 8 * MIB).await;
            read_all(&volume, &runtime, PAST, PAST + MIB).await;
            for place in (SHARED..SHARED + 8 * MIB).step_by(64 << 10) {
                let data = Buffer::from_slice(&[round; 4096]);
                (&volume as &dyn BlockDevice).write(place, data).await.unwrap();
            }
            check(&volume.stats().slices);
            let bypasses = volume.status().cache.unwrap().bypasses;
            assert!(bypasses.iter().all(|slice| slice.policy == BypassPolicy::Adaptive));
            let cache = volume.description().cache.unwrap();
            volume.detach(Dirty::Clean).await.unwrap();
            let new = (device(&runtime, "new"), cache, Uuid::from_u128(10 + u128::from(round)));
            let new = volume.make_cache(new.0, new.1, new.2, Occupied::Overwrite).await.unwrap();
            volume.attach(new, &|_| Box::pin(ready(Ok(())))).await.unwrap();
            volume.self_check();
        }
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}

/// A volume that looks at metadata with a read that takes a second, of which half has gone by.
async fn that_looks_for_metadata(runtime: &Runtime, mode: Mode) -> Volume {
    let faults = FaultControl::default();
    let devices = Devices {
        tier: None,
        cache: Some(faulty(runtime, "cache", faults.clone())),
        members: ["m0", "m1", "m2"].map(|name| device(runtime, name)).into(),
        journals: Vec::new(),
        absent: Vec::new(),
        changed: Vec::new(),
        copies: Vec::new(),
    };
    let mut description = description(mode, 2);
    let settings = &mut description.cache.as_mut().unwrap().settings;
    settings.classes = ClassSetting::parse("[[class]]\nid = 1\nwhen = \"metadata\"\n").unwrap();
    Volume::create(&description, &devices, &CREATE).await.unwrap();
    let volume = Volume::open(runtime, &description, devices, careful()).await.unwrap();
    (&volume as &dyn BlockDevice).write(0, Buffer::from_slice(&[7; 4096])).await.unwrap();
    faults.add(FaultRule::on(RequestKind::Read, Fault::Delay(Duration::from_secs(1))));
    runtime.sleep(Duration::from_millis(1500)).await;
    assert_eq!(requests_in_flight(&volume), 1, "the volume looks");
    volume
}

fn requests_in_flight(volume: &Volume) -> u64 {
    volume.stats().slices.iter().map(|slice| slice.requests_in_flight).sum()
}

/// Found by the swarm (seed 97001175): a superblock had been written, the volume was looked at
/// again a second later, and its stop answered while the cache device still read for that.
#[test]
fn a_stop_waits_for_what_is_read_in_search_of_metadata() {
    run(1, |runtime, _| async move {
        let volume = that_looks_for_metadata(&runtime, Mode::WriteBack).await;
        volume.stop().await.unwrap();
        assert_eq!(requests_in_flight(&volume), 0);
        runtime.sleep(Duration::from_secs(20)).await;
        assert_eq!(requests_in_flight(&volume), 0);
        volume.self_check();
    })
    .expect("no deadlock");
}

/// A cache that is taken away ended such reads with an error, and they were done again.
#[test]
fn a_detach_waits_for_what_is_read_in_search_of_metadata() {
    run(1, |runtime, _| async move {
        let volume = that_looks_for_metadata(&runtime, Mode::WriteThrough).await;
        let begun = runtime.now();
        volume.detach(Dirty::Clean).await.unwrap();
        assert!(runtime.now().since(begun) >= Duration::from_millis(400), "it was waited for");
        runtime.sleep(Duration::from_secs(20)).await;
        volume.self_check();
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}
