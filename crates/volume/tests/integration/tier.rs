//! A cache in memory in front of the cache: what reaches which device, and what outlives what.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{
    Fault, FaultControl, FaultDevice, FaultRule, ProbeDevice, WindowDevice,
};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::Mode;
use headpond_raid::Occupied;
use headpond_sim::{Ended, Medium, OperationTime, Power, Sim, SimDisk, run, run_until_cut};
use headpond_volume::{
    AlertKind, AttachError, CacheDescription, Description, DetachError, Devices, Dirty, SetError,
    SettingsError, Size, TierDescription, TierSettings, Volume,
};
use headpond_witness::{Client, Witness, Workload};
use std::cell::RefCell;
use std::future::ready;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const WINDOW_BYTES: u64 = 512 << 10;

fn tier(mode: Mode) -> TierDescription {
    TierDescription {
        device: "ram:8M".into(),
        line: Size(4096),
        settings: TierSettings { mode, ..TierSettings::default() },
        volatile_allowed: mode.is_write_back(),
    }
}

fn memory() -> Rc<dyn BlockDevice> {
    Rc::new(RamDevice::new("ram", 16 * MIB))
}

/// Devices whose traffic is counted.
struct Counted {
    cache: Rc<ProbeDevice>,
    members: Vec<Rc<ProbeDevice>>,
}

impl Counted {
    fn new(runtime: &Runtime) -> Self {
        let device = |name: &str| {
            let stability = Stability::Flushable;
            let geometry = Geometry { stability, ..Geometry::of_size(16 * MIB) };
            let ram: Rc<dyn BlockDevice> = Rc::new(RamDevice::with_geometry(name, geometry));
            Rc::new(ProbeDevice::new(ram, runtime.clone()))
        };
        Self { cache: device("cache"), members: ["m0", "m1", "m2"].map(device).into() }
    }

    fn devices(&self) -> Devices {
        let member = |member: &Rc<ProbeDevice>| Rc::clone(member) as Rc<dyn BlockDevice>;
        Devices {
            tier: Some(memory()),
            cache: Some(self.cache.clone()),
            members: self.members.iter().map(member).collect(),
            journals: Vec::new(),
            absent: Vec::new(),
            changed: Vec::new(),
            copies: Vec::new(),
        }
    }

    async fn open(&self, runtime: &Runtime, description: &Description) -> Volume {
        Volume::create(description, &self.devices(), &CREATE).await.unwrap();
        Volume::open(runtime, description, self.devices(), careful()).await.unwrap()
    }

    fn bytes_written(&self) -> (u64, u64) {
        let members = self.members.iter().map(|member| member.snapshot().writes.bytes);
        (self.cache.snapshot().writes.bytes, members.sum())
    }
}

fn with_tier(mode: Mode, below: Mode) -> Description {
    Description { tier: Some(tier(mode)), ..description(below, 2) }
}

async fn read(volume: &Volume, offset: u64) -> u8 {
    let back = Buffer::zeroed(4096);
    (volume as &dyn BlockDevice).read(offset, &back).await.unwrap();
    let bytes = back.to_vec();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

async fn write(volume: &Volume, offset: u64, byte: u8) {
    let data = Buffer::from_slice(&[byte; 4096]);
    (volume as &dyn BlockDevice).write(offset, data).await.unwrap();
}

#[test]
fn what_was_read_once_is_read_from_memory_afterwards() {
    run(1, |runtime, _| async move {
        let counted = Counted::new(&runtime);
        let volume = counted.open(&runtime, &with_tier(Mode::WriteThrough, Mode::WriteBack)).await;
        let before = counted.bytes_written();
        write(&volume, 0, 7).await;
        let (cache, members) = counted.bytes_written();
        assert!(cache > before.0 && members == before.1, "through the tier into the cache");
        counted.cache.reset();
        let asked = || counted.members.iter().map(|member| member.snapshot().reads.bytes).sum();
        let before: u64 = asked();
        assert_eq!((read(&volume, 0).await, read(&volume, 8 * MIB).await), (7, 0));
        runtime.sleep(Duration::from_millis(1)).await;
        let missed: u64 = asked();
        assert!(missed > before, "the second was in neither cache");
        assert_eq!((read(&volume, 0).await, read(&volume, 8 * MIB).await), (7, 0));
        assert_eq!(counted.cache.snapshot().reads.bytes, 0, "the tier has both");
        assert_eq!(asked(), missed);
        let (tier, cache) = (volume.report().tier.unwrap(), volume.report().cache.unwrap());
        let hits = |groups: &headpond_volume::Groups| groups.requests[0].count;
        assert_eq!((hits(&tier.groups), hits(&cache.groups)), (3, 0));
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}

#[test]
fn a_write_back_tier_keeps_writes_until_they_are_flushed_and_then_lower_tiers_have_them() {
    run(1, |runtime, _| async move {
        let counted = Counted::new(&runtime);
        let mut description = with_tier(Mode::WriteBack, Mode::WriteThrough);
        let settings = &mut description.tier.as_mut().unwrap().settings;
        settings.cleaning.policy = headpond_cache::CleaningPolicy::Nop;
        let volume = counted.open(&runtime, &description).await;
        let before = counted.bytes_written();
        write(&volume, 0, 7).await;
        runtime.sleep(Duration::from_secs(5)).await;
        assert_eq!(counted.bytes_written(), before, "it is in memory");
        let status = volume.status();
        assert_eq!(status.tier.unwrap().dirty_bytes, 4096);
        assert!(
            status
                .warnings
                .iter()
                .any(|warning| warning.contains("tier is lost in a power failure"))
        );
        (&volume as &dyn BlockDevice).flush().await.unwrap();
        let (cache, members) = counted.bytes_written();
        assert!(cache > before.0 && members > before.1, "each below has it in its own mode");
        assert_eq!(volume.status().tier.unwrap().dirty_bytes, 0);
        write(&volume, 4096, 8).await;
        volume.stop().await.unwrap();
        // Memory is new with every open, and what a stop left is below it.
        let volume = Volume::open(&runtime, &description, counted.devices(), careful()).await;
        let volume = volume.unwrap();
        assert_eq!(volume.status().tier.unwrap().clean_bytes, 0);
        assert_eq!((read(&volume, 0).await, read(&volume, 4096).await), (7, 8));
    })
    .expect("no deadlock");
}

#[test]
fn what_goes_past_the_tier_as_a_stream_goes_past_the_cache_as_well() {
    run(1, |runtime, _| async move {
        let counted = Counted::new(&runtime);
        let volume = counted.open(&runtime, &with_tier(Mode::WriteThrough, Mode::WriteBack)).await;
        let streams = ["seq-cutoff=64K", "readahead=off"].map(|text| text.parse().unwrap());
        volume.set(&streams).await.unwrap();
        for at in (0..MIB).step_by(64 << 10) {
            let data = Buffer::zeroed(64 << 10);
            (&volume as &dyn BlockDevice).read(at, &data).await.unwrap();
        }
        runtime.sleep(Duration::from_millis(10)).await;
        let status = volume.status();
        let held = |cache: Option<headpond_volume::CacheStatus>| cache.unwrap().clean_bytes;
        assert_eq!((held(status.tier), held(status.cache)), (64 << 10, 64 << 10));
    })
    .expect("no deadlock");
}

#[test]
fn each_tier_has_its_own_mode_and_refuses_what_it_cannot_be() {
    run(1, |runtime, _| async move {
        let counted = Counted::new(&runtime);
        let volume = counted.open(&runtime, &with_tier(Mode::WriteThrough, Mode::WriteBack)).await;
        let set = async |text: &str| volume.set(&[text.parse().unwrap()]).await;
        set("tier.mode=write-around").await.unwrap();
        let description = volume.description();
        let modes =
            (description.tier.unwrap().settings.mode, description.cache.unwrap().settings.mode);
        assert_eq!(modes, (Mode::WriteAround, Mode::WriteBack));
        let told = set("tier.mode=write-back").await.unwrap_err().to_string();
        assert!(told.contains("is volatile"), "{told}");
        let told = set("tier.classes=lustre").await.unwrap_err().to_string();
        assert!(told.contains("there are: tier.cleaning"), "{told}");
        let again = volume.attach_tier(tier(Mode::WriteThrough), memory()).await;
        assert!(matches!(again, Err(AttachError::HasTier { .. })));
        volume.detach_tier(Dirty::Refuse).await.unwrap();
        assert!(volume.status().tier.is_none() && volume.description().tier.is_none());
        assert!(matches!(volume.detach_tier(Dirty::Refuse).await, Err(DetachError::NoTier { .. })));
        assert!(matches!(
            set("tier.mode=write-around").await,
            Err(SetError::Settings(SettingsError::NoTier { .. }))
        ));
        let flash: Rc<dyn BlockDevice> = Rc::new(RamDevice::with_geometry(
            "flash",
            Geometry { stability: Stability::Flushable, ..Geometry::of_size(16 * MIB) },
        ));
        let told = volume.attach_tier(tier(Mode::WriteThrough), flash).await.unwrap_err();
        assert!(told.to_string().contains("is non-volatile"), "{told}");
        assert!(volume.description().tier.is_none());
    })
    .expect("no deadlock");
}

const BUSY: Workload = Workload {
    requests: 1200,
    depth: 6,
    blocks: WINDOW_BYTES / 4096,
    blocks_max: 10,
    flush_percent: 3,
    discard_percent: 2,
    fua_percent: 10,
    sector_percent: 20,
    ..Workload::BUSY
};

/// Attach and detach of both under a client whose every answer is judged.
#[test]
fn caches_and_tiers_come_and_go_under_load() {
    run(1, |runtime, _| async move {
        let counted = Counted::new(&runtime);
        let described = with_tier(Mode::WriteBack, Mode::WriteBack);
        let volume = Rc::new(counted.open(&runtime, &described).await);
        let (whole, witness) = (volume.clone(), Witness::new(WINDOW_BYTES, 1));
        let start = 4 * MIB - WINDOW_BYTES / 2;
        let window = Rc::new(WindowDevice::new(whole, start, WINDOW_BYTES));
        let client = Client::new(window, Rc::new(RefCell::new(witness)), &runtime);
        let load = {
            let client = client.clone();
            runtime.spawn(async move { client.run(&BUSY, 1).await })
        };
        let cache: CacheDescription = described.cache.clone().unwrap();
        for round in 0..3 {
            let pause = || runtime.sleep(Duration::from_micros(300));
            pause().await;
            volume.detach(Dirty::Clean).await.unwrap();
            let status = volume.status();
            assert!(status.cache.is_none() && status.tier.is_some(), "the tier is above the array");
            pause().await;
            volume.detach_tier(Dirty::Clean).await.unwrap();
            pause().await;
            let device = Rc::clone(&counted.cache) as Rc<dyn BlockDevice>;
            let identity = Uuid::from_u128(10 + round);
            let new = volume.make_cache(device, cache.clone(), identity, Occupied::Overwrite);
            volume.attach(new.await.unwrap(), &|_| Box::pin(ready(Ok(())))).await.unwrap();
            pause().await;
            volume.attach_tier(tier(Mode::WriteBack), memory()).await.unwrap();
            volume.self_check();
        }
        load.await.unwrap();
        client.check_all().await.unwrap();
        assert_eq!(client.tally().failed_reads + client.tally().failed_others, 0);
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}

/// Memory is gone with the power, and nothing that was promised with it.
#[test]
fn flushed_writes_outlive_the_tier() {
    for seed in 0..60 {
        let power = Power::on();
        let medium = |name: &str, bytes| Rc::new(Medium::flushable(name, bytes).with_atoms(4096));
        let cache = medium("cache", 26 * MIB);
        let members: Vec<_> = ["m0", "m1", "m2"].map(|name| medium(name, 7 * MIB)).into();
        let witness = Rc::new(RefCell::new(Witness::new(WINDOW_BYTES, seed)));
        let modes = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteOnly, Mode::WriteAround];
        let mode = modes[seed as usize % modes.len()];
        let described = with_tier(mode, Mode::WriteBack);
        let live = |is_new: bool, requests: u32| {
            let main = async |runtime: Runtime, sim: Sim| {
                let disk = |medium: &Rc<Medium>| -> Rc<dyn BlockDevice> {
                    let (medium, time) = (Rc::clone(medium), OperationTime::SOME);
                    Rc::new(SimDisk::attach(medium, &power, &runtime, &sim, time))
                };
                let devices = || Devices {
                    tier: Some(memory()),
                    cache: Some(disk(&cache)),
                    members: members.iter().map(disk).collect(),
                    journals: Vec::new(),
                    absent: Vec::new(),
                    changed: Vec::new(),
                    copies: Vec::new(),
                };
                if is_new {
                    Volume::create(&described, &devices(), &CREATE).await.unwrap();
                    power.cut_after(100 + seed * 17);
                }
                let volume = Volume::open(&runtime, &described, devices(), careful()).await;
                let volume = Rc::new(volume.unwrap());
                let window = Rc::new(WindowDevice::new(volume.clone(), 0, WINDOW_BYTES));
                let client = Client::new(window, Rc::clone(&witness), &runtime);
                client.check_all().await.unwrap_or_else(|verdict| panic!("{seed}: {verdict}"));
                let workload = Workload { requests, ..BUSY };
                let verdict = client.run(&workload, seed).await;
                verdict.unwrap_or_else(|verdict| panic!("{seed}: {verdict}"));
                volume.stop().await.unwrap();
            };
            run_until_cut(seed, &power, main).expect("no deadlock")
        };
        assert!(matches!(live(true, 4000), Ended::Cut), "seed {seed} worked until the cut");
        power.come_back([&cache].into_iter().chain(&members), seed);
        witness.borrow_mut().crash();
        assert!(matches!(live(false, 50), Ended::Finished(())));
    }
}

/// Memory that errs once, and then takes nothing any more.
#[test]
fn a_tier_that_fails_says_what_is_at_risk_and_what_to_do() {
    for (mode, dirty) in [(Mode::WriteThrough, 0), (Mode::WriteBack, 1)] {
        run(1, |runtime, _| async move {
            let (counted, faults) = (Counted::new(&runtime), FaultControl::default());
            let faulty = FaultDevice::new(memory(), faults.clone(), runtime.clone());
            let devices = Devices { tier: Some(Rc::new(faulty)), ..counted.devices() };
            let description = with_tier(mode, Mode::WriteBack);
            Volume::create(&description, &counted.devices(), &CREATE).await.unwrap();
            let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
            write(&volume, 0, 1).await;
            let told = |kind| {
                let alerts = volume.status().alerts;
                let found = alerts.iter().find(|alert| alert.kind == kind).cloned();
                found.unwrap_or_else(|| panic!("no {kind:?} in {alerts:?}"))
            };
            assert!(volume.status().alerts.is_empty());
            let rule = FaultRule::on(RequestKind::Write, Fault::Media);
            faults.add(FaultRule { times: Some(1), ..rule.clone() });
            write(&volume, 4096, 2).await;
            let errors = told(AlertKind::CacheWriteErrors);
            assert_eq!(errors.at_risk.blocks, dirty, "{errors}");
            assert!(errors.action.contains("cache attach stack ram:SIZE --tier"), "{errors}");
            faults.add(rule);
            write(&volume, 8192, 3).await;
            // Nothing can be put in the place of the record, which nobody waits for.
            runtime.sleep(Duration::from_millis(1)).await;
            let failed = told(AlertKind::CacheFailed);
            assert!(failed.cause.starts_with("the tier device failed"), "{failed}");
            // What was dirty is on its way to the volume below, or there by now.
            let tier = volume.status().tier.expect("the volume has a tier");
            assert_eq!(failed.at_risk.bytes, tier.dirty_bytes, "{failed}");
            assert!(failed.action.contains("`headpond cache detach stack --tier"), "{failed}");
            for (offset, byte) in [(0, 1), (4096, 2), (8192, 3)] {
                assert_eq!(read(&volume, offset).await, byte);
            }
            volume.self_check();
        })
        .expect("no deadlock");
    }
}
