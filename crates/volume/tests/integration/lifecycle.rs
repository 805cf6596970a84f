//! A cache that is taken away while the volume is served.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::{CleaningPolicy, Mode};
use headpond_raid::Occupied;
use headpond_sim::{Medium, OperationTime, Power, SimDisk, run};
use headpond_volume::{
    AttachError, CacheDescription, Description, DetachError, Devices, Dirty, ExchangeError, Keep,
    Keeping, NewDevice, Reopening, Replacement, Size, Volume,
};
use std::cell::{Cell, RefCell};
use std::future::ready;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

fn flushable(name: &str, size_bytes: u64) -> Rc<dyn BlockDevice> {
    let geometry = Geometry { stability: Stability::Flushable, ..Geometry::of_size(size_bytes) };
    Rc::new(RamDevice::with_geometry(name, geometry))
}

/// A cache, and members whose faults are on command.
fn devices(runtime: &Runtime, faults: &FaultControl) -> Devices {
    let member = |index: usize| -> Rc<dyn BlockDevice> {
        let inner = flushable(&format!("m{index}"), 16 << 20);
        Rc::new(FaultDevice::new(inner, faults.clone(), runtime.clone()))
    };
    Devices {
        tier: None,
        cache: Some(flushable("cache", 16 << 20)),
        members: (0..3).map(member).collect(),
        journals: Vec::new(),
        ..Devices::default()
    }
}

/// Whichever write fails: a volume that could not be made is none, and its devices are free.
#[test]
fn what_fails_half_way_through_a_create_leaves_no_superblock_behind() {
    run(1, |runtime, _| async move {
        let description = description(Mode::WriteBack, 1);
        for failing in 0..3 {
            for after in 0.. {
                let faults = [(); 3].map(|()| FaultControl::default());
                let kind = RequestKind::Write;
                faults[failing].add(FaultRule { after, ..FaultRule::on(kind, Fault::Media) });
                let member = |index: usize| -> Rc<dyn BlockDevice> {
                    let inner = flushable(&format!("m{index}"), 16 << 20);
                    Rc::new(FaultDevice::new(inner, faults[index].clone(), runtime.clone()))
                };
                let cache = flushable("cache", 16 << 20);
                let members: Vec<_> = (0..3).map(member).collect();
                let devices = Devices {
                    cache: Some(cache.clone()),
                    members: members.clone(),
                    ..Devices::default()
                };
                if Volume::create(&description, &devices, &CREATE).await.is_ok() {
                    assert!(after > 2, "a member is written to");
                    break;
                }
                assert!(headpond_cache::load(&*cache).await.is_err(), "{failing} {after}");
                for (index, member) in members.iter().enumerate() {
                    let found = headpond_raid::inspect(&**member).await;
                    let is_free = matches!(found, Ok(headpond_raid::Inspection::Empty));
                    assert!(is_free || index == failing, "{failing} {after}: {index} {found:?}");
                }
            }
        }
    })
    .unwrap();
}

#[test]
fn cleaning_in_order_is_refused_where_there_are_several_slices() {
    run(1, |runtime, _| async move {
        let none = FaultControl::default();
        let devices = devices(&runtime, &none);
        let cache = devices.cache.clone();
        let several = description(Mode::WriteBack, 2);
        assert!(several.check_new().is_ok());
        Volume::create(&several, &devices, &CREATE).await.unwrap();
        let members = devices.members.clone();
        let volume = Volume::open(&runtime, &several, devices, careful()).await.unwrap();
        let changes = ["mode=write-only", "cleaning=ordered"].map(|text| text.parse().unwrap());
        let refused = volume.set(&changes).await.unwrap_err().to_string();
        assert!(refused.contains("stack has 2") && refused.contains("one slice"), "{refused}");
        let settings = || volume.description().cache.unwrap().settings;
        assert_eq!(settings().mode, Mode::WriteBack, "all changes or none");
        volume.set(&["cleaning=alru".parse().unwrap()]).await.unwrap();
        let mut described = volume.description().cache.unwrap();
        described.settings.cleaning.policy = CleaningPolicy::Ordered;
        volume.detach(Dirty::Refuse).await.unwrap();
        let new = cache.clone().unwrap();
        let identity = Uuid::from_u128(7);
        let made = volume.make_cache(new, described.clone(), identity, Occupied::Overwrite).await;
        assert!(matches!(made, Err(AttachError::Description(_))));
        described.settings.cleaning.policy = CleaningPolicy::Alru;
        let new = cache.clone().unwrap();
        let made = volume.make_cache(new, described.clone(), identity, Occupied::Overwrite).await;
        volume.attach(made.unwrap(), &|_| Box::pin(ready(Ok(())))).await.unwrap();
        volume.stop().await.unwrap();
        // One that is there already is served, and says what it cannot do.
        described.settings.cleaning.policy = CleaningPolicy::Ordered;
        let before = Description { cache: Some(described), ..several };
        assert!(before.check_new().is_err());
        let devices = Devices { cache, members, ..Devices::default() };
        let volume = Volume::open(&runtime, &before, devices, careful()).await.unwrap();
        let warnings = volume.status().warnings;
        assert!(
            warnings.iter().any(|told| told.contains("not a consistent past state")),
            "{warnings:?}"
        );
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}

/// Found by a client that verified beside attach and detach: the detach span beside the flush that
/// it waited for, and nothing else got its turn.
#[test]
fn a_detach_waits_for_a_flush_of_the_array_that_is_under_way() {
    run(1, |runtime, _| async move {
        let faults = FaultControl::default();
        let (devices, description) = (devices(&runtime, &faults), description(Mode::WriteBack, 1));
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let cache = devices.cache.clone().unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await;
        let volume = Rc::new(volume.unwrap());
        let device: &dyn BlockDevice = &*volume;
        device.write(0, Buffer::from_slice(&[7; 4096])).await.unwrap();
        // The flush that follows what is cleaned takes its time, and those after it do not.
        let slow = FaultRule::on(RequestKind::Flush, Fault::Delay(Duration::from_secs(2)));
        faults.add(FaultRule { times: Some(3), ..slow });
        let other = Rc::clone(&volume);
        let cleaning = runtime.spawn(async move { other.clean_all().await });
        runtime.sleep(Duration::from_secs(1)).await;
        volume.detach(Dirty::Clean).await.unwrap();
        cleaning.await.unwrap();
        assert!(volume.status().cache.is_none());
        assert_eq!(Rc::strong_count(&cache), 1, "it may be opened again");
        let back = Buffer::zeroed(4096);
        device.read(0, &back).await.unwrap();
        assert_eq!(back.to_vec(), [7; 4096]);
    })
    .expect("no deadlock");
}

/// What may be lost is what cannot be written, not what a stop left no time for.
#[test]
fn a_detach_by_force_that_a_stop_cuts_off_gives_up_nothing() {
    run(1, |runtime, _| async move {
        let faults = FaultControl::default();
        let (devices, description) = (devices(&runtime, &faults), description(Mode::WriteBack, 1));
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await;
        let volume = Rc::new(volume.unwrap());
        volume.set(&["cleaning=nop".parse().unwrap()]).await.unwrap();
        let device: &dyn BlockDevice = &*volume;
        for block in 0..64 {
            device.write(block * 40_960, Buffer::from_slice(&[7; 4096])).await.unwrap();
        }
        faults.add(FaultRule::on(RequestKind::Write, Fault::Delay(Duration::from_secs(3))));
        let other = Rc::clone(&volume);
        let detaching = runtime.spawn(async move { other.detach(Dirty::Lose).await });
        runtime.sleep(Duration::from_secs(1)).await;
        volume.end_flushes().await;
        let ended = detaching.await.unwrap_err();
        assert!(ended.to_string().contains("being stopped"), "{ended}");
        let cache = volume.status().cache.expect("it stays");
        assert!(cache.dirty_bytes > 0 && volume.description().cache.is_some());
        assert!(
            volume.set(&["cleaning=alru".parse().unwrap()]).await.is_err(),
            "nothing is changed now"
        );
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}

fn replacement(
    device: Rc<dyn BlockDevice>,
    change: impl FnOnce(&mut CacheDescription),
) -> Replacement<'static> {
    let mut described = description(Mode::WriteBack, 1).cache.unwrap();
    change(&mut described);
    Replacement {
        device: NewDevice::Other(device.into()),
        described,
        identities: [Uuid::from_u128(50), Uuid::from_u128(51)],
        occupied: Occupied::Refuse,
    }
}

const KEPT: Keep<'static> = &|_| Box::pin(ready(Ok(())));

#[test]
fn a_new_cache_that_fails_while_it_is_made_gives_the_place_back_to_the_old_one() {
    run(1, |runtime, _| async move {
        let faults = FaultControl::default();
        let (devices, mut description) =
            (devices(&runtime, &faults), description(Mode::WriteBack, 1));
        description.cache.as_mut().unwrap().settings.cleaning.policy = CleaningPolicy::Nop;
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let old = devices.cache.clone().unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
        let device: &dyn BlockDevice = &volume;
        device.write(0, Buffer::from_slice(&[7; 4096])).await.unwrap();
        let tiny = replacement(flushable("tiny", 1 << 20), |_| ());
        let refused = volume.replace_cache(tiny, Dirty::Clean, KEPT).await.unwrap_err();
        assert!(refused.is_refusal(), "{refused}");
        let occupied = replacement(Rc::clone(&old), |_| ());
        let refused = volume.replace_cache(occupied, Dirty::Clean, KEPT).await.unwrap_err();
        assert!(
            refused.is_refusal() && refused.to_string().contains("is the cache of this volume")
        );
        assert_eq!(volume.status().cache.unwrap().dirty_bytes, 4096, "it was left alone");
        let broken = FaultControl::default();
        let new =
            Rc::new(FaultDevice::new(flushable("new", 16 << 20), broken.clone(), runtime.clone()));
        broken.add(FaultRule::on(RequestKind::Write, Fault::Media));
        let failed = volume.replace_cache(replacement(new, |_| ()), Dirty::Clean, KEPT).await;
        let failed = failed.unwrap_err();
        assert!(matches!(failed, ExchangeError::Back { .. }) && !failed.is_refusal(), "{failed}");
        let cache = volume.status().cache.unwrap();
        let policy = volume.description().cache.unwrap().settings.cleaning.policy;
        assert_eq!((cache.dirty_bytes, policy), (0, CleaningPolicy::Nop));
        assert_eq!(volume.description(), description);
        // What cannot be kept does not come true either.
        let names = RefCell::new(Vec::new());
        let keep = |kept: &Description| -> Keeping<'_> {
            let device = kept.cache.clone().map(|cache| cache.device);
            names.borrow_mut().push(device.clone());
            let is_refused = device.as_deref() == Some("next");
            Box::pin(ready(if is_refused { Err("no room".into()) } else { Ok(()) }))
        };
        let next = replacement(flushable("next", 16 << 20), |it| it.device = "next".into());
        let failed = volume.replace_cache(next, Dirty::Clean, &keep).await.unwrap_err();
        assert!(failed.to_string().contains("no room"), "{failed}");
        assert_eq!(names.take(), [Some("next".into()), Some("cache".into())]);
        device.write(4096, Buffer::from_slice(&[8; 4096])).await.unwrap();
        let back = Buffer::zeroed(8192);
        device.read(0, &back).await.unwrap();
        assert_eq!(back.to_vec(), [[7; 4096], [8; 4096]].concat());
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}

/// A cleaner that goes on would write what was given up over what came later.
#[test]
fn dirty_data_that_is_dropped_never_comes_over_what_is_written_afterwards() {
    for seed in 0..40 {
        run(seed, |runtime, _| async move {
            let faults = FaultControl::default();
            let (devices, description) =
                (devices(&runtime, &faults), description(Mode::WriteBack, 1));
            Volume::create(&description, &devices, &CREATE).await.unwrap();
            let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
            let volume = Rc::new(volume);
            let device: &dyn BlockDevice = &*volume;
            faults.add(FaultRule::on(RequestKind::Write, Fault::Delay(Duration::from_millis(9))));
            for block in 0..64 {
                device.write(block * 4096, Buffer::from_slice(&[7; 4096])).await.unwrap();
            }
            let other = Rc::clone(&volume);
            let cleaning = runtime.spawn(async move { other.clean_all().await });
            runtime.sleep(Duration::from_millis(seed)).await;
            let identities = [Uuid::from_u128(60), Uuid::from_u128(61)];
            volume.purge_cache(Dirty::Drop, identities, KEPT).await.unwrap();
            assert_eq!(volume.status().cache.unwrap().dirty_bytes, 0);
            for block in 0..64 {
                device.write(block * 4096, Buffer::from_slice(&[8; 4096])).await.unwrap();
            }
            volume.clean_all().await.unwrap();
            let _ = cleaning.await;
            runtime.sleep(Duration::from_secs(1)).await;
            volume.detach(Dirty::Clean).await.unwrap();
            let back = Buffer::zeroed(64 * 4096);
            device.read(0, &back).await.unwrap();
            assert!(back.to_vec().iter().all(|byte| *byte == 8), "seed {seed}");
            volume.stop().await.unwrap();
        })
        .expect("no deadlock");
    }
}

/// Found by the swarm (seed 157): the cache did not flush the array for writes from before it.
#[test]
fn a_flush_after_an_attach_covers_what_was_written_before_it() {
    run(1, |runtime, sim| async move {
        let media: Vec<_> = (0..3)
            .map(|index| Rc::new(Medium::flushable(&*format!("m{index}"), 16 << 20)))
            .collect();
        let attach = |medium: &Rc<Medium>| -> Rc<dyn BlockDevice> {
            let (power, time) = (Power::on(), OperationTime::SOME);
            Rc::new(SimDisk::attach(Rc::clone(medium), &power, &runtime, &sim, time))
        };
        let members = media.iter().map(attach).collect();
        let devices = Devices {
            tier: None,
            cache: None,
            members,
            journals: Vec::new(),
            ..Devices::default()
        };
        let mut plain = description(Mode::WriteBack, 1);
        let described = plain.cache.take().unwrap();
        Volume::create(&plain, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(&runtime, &plain, devices, careful()).await.unwrap();
        let device: &dyn BlockDevice = &volume;
        device.write(0, Buffer::from_slice(&[7; 4096])).await.unwrap();
        let cache = attach(&Rc::new(Medium::flushable("cache", 16 << 20)));
        let identity = Uuid::from_u128(5);
        let new = volume.make_cache(cache, described, identity, Occupied::Refuse).await.unwrap();
        volume.attach(new, &|_| Box::pin(ready(Ok(())))).await.unwrap();
        device.flush().await.unwrap();
        assert!(media.iter().all(|member| member.undurable_writes() == 0));
    })
    .expect("no deadlock");
}

/// Whoever keeps the description meanwhile for another reason would keep one without a cache, and
/// the next start would refuse the one that the members name.
#[test]
fn the_description_names_the_cache_for_as_long_as_it_is_exchanged() {
    run(1, |runtime, _| async move {
        let (devices, description) =
            (devices(&runtime, &FaultControl::default()), description(Mode::WriteBack, 1));
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await;
        let volume = Rc::new(volume.unwrap());
        let device: &dyn BlockDevice = &*volume;
        device.write(0, Buffer::from_slice(&[7; 4096])).await.unwrap();
        let is_exchanging = Rc::new(Cell::new(true));
        let looking = runtime.spawn({
            let (volume, runtime) = (Rc::clone(&volume), runtime.clone());
            let is_exchanging = Rc::clone(&is_exchanging);
            async move {
                while is_exchanging.get() {
                    assert!(volume.description().cache.is_some());
                    runtime.sleep(Duration::from_micros(1)).await;
                }
            }
        });
        let keep = |kept: &Description| -> Keeping<'_> {
            assert_eq!(*kept, volume.description(), "what is kept is what is said");
            Box::pin(ready(Ok(())))
        };
        let identities = |first| [first, first + 1].map(Uuid::from_u128);
        let smaller = Some(Size(headpond_cache::bytes_min(1)));
        volume.resize_cache(smaller, NewDevice::Same, identities(1), &keep).await.unwrap();
        volume.purge_cache(Dirty::Clean, identities(3), &keep).await.unwrap();
        is_exchanging.set(false);
        looking.await;
        let refuses = |_: &Description| -> Keeping<'_> { Box::pin(ready(Err("no room".into()))) };
        let refused = volume.purge_cache(Dirty::Clean, identities(5), &refuses).await;
        assert!(matches!(refused, Err(ExchangeError::Gone { .. })));
        assert!(volume.description().cache.is_none() && volume.status().cache.is_none());
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}

/// The device may be another's by now.
#[test]
fn a_cache_that_is_only_named_is_neither_resized_nor_emptied() {
    run(1, |runtime, _| async move {
        let devices = devices(&runtime, &FaultControl::default());
        let named = description(Mode::WriteBack, 1);
        let bare = Description { cache: None, ..named.clone() };
        let members = devices.members.clone();
        let without = Devices { members: members.clone(), ..Devices::default() };
        Volume::create(&bare, &without, &CREATE).await.unwrap();
        let without = Devices { members, ..Devices::default() };
        let volume = Volume::open(&runtime, &named, without, careful()).await.unwrap();
        let open = |_: CacheDescription| -> Reopening<'_> { panic!("nothing is opened") };
        let again = NewDevice::Reopened { bytes: 16 << 20, open: &open };
        let keep = |_: &Description| -> Keeping<'_> { panic!("nothing is changed") };
        let identities = [1, 2].map(Uuid::from_u128);
        let resized = volume.resize_cache(None, again, identities, &keep).await;
        assert!(matches!(resized, Err(ExchangeError::Detach(DetachError::NoCache { .. }))));
        let purged = volume.purge_cache(Dirty::Clean, identities, &keep).await;
        assert!(matches!(purged, Err(ExchangeError::Detach(DetachError::NoCache { .. }))));
        assert_eq!(volume.description().cache, named.cache);
        volume.stop().await.unwrap();
    })
    .expect("no deadlock");
}
