//! A cache on copies: what each of them may do, and what a volume makes of those it finds.

mod alerts;
mod departures;
mod rig;
mod starts;

use self::rig::{
    BLOCKS, COPY_BYTES, Rig, active, byte_at, cache, expect, mirrored, ram, returning, simulate,
    until_whole, warns, write,
};
use crate::support::{CREATE, careful};
use headpond_block::decorators::{Fault, FaultControl, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, RequestKind};
use headpond_raid::Occupied;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_volume::{
    CACHE_COPIES, CreateError, CreateOptions, Description, Devices, Dirty, NewMember, OpenError,
    OpenOptions, ScrubCacheError, Tolerance, Volume,
};
use std::future::ready;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

#[test]
fn dirty_blocks_outlive_what_rots_or_cannot_be_read_on_one_copy() {
    simulate(async |runtime| {
        for copy in [0, 1] {
            let rig = Rig::new(&runtime).await;
            let volume = rig.open(&[0, 1]).await;
            write(&volume, 7).await;
            assert_eq!(cache(&volume).dirty_bytes, BLOCKS * 4096);
            assert!(!warns(&volume, "one cache device only"), "it is inside the redundancy");
            rig.rot(copy, 7);
            // Copies take turns.
            expect(&volume, 7).await;
            byte_at(&volume, 0).await.unwrap();
            expect(&volume, 7).await;
            let errors = volume.stats().slices[0].counters.errors;
            assert_eq!((errors.cache_repaired, errors.dirty_unreadable), (BLOCKS, 0));
            let media = FaultRule::on(RequestKind::Read, Fault::Media);
            rig.copies[copy].1.add(FaultRule { times: Some(5), ..media });
            expect(&volume, 7).await;
            assert_eq!(active(&volume), 2, "rewritten, and a copy still");
            let data = DATA_OFFSET_MIN as usize;
            assert!(rig.image(0)[data..] == rig.image(1)[data..]);
            volume.stop().await.unwrap();
        }
    });
}

#[test]
fn one_copy_that_is_lost_costs_nothing_and_both_cost_what_was_dirty() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        rig.fail(0, Fault::Gone);
        write(&volume, 8).await;
        expect(&volume, 8).await;
        assert_eq!(active(&volume), 1);
        let mirror = cache(&volume).mirror.unwrap();
        assert_eq!(mirror.at_risk_bytes, BLOCKS * 4096);
        assert!(warns(&volume, "headpond array add-spare stack DEVICE --cache"));
        assert_eq!(mirror.array.members[0].device.as_deref(), Some("a"));
        rig.fail(1, Fault::Gone);
        assert!(byte_at(&volume, 0).await.is_err(), "never what the core has");
    });
}

#[test]
fn a_copy_that_missed_writes_is_left_out_beside_the_other_and_refused_alone() {
    simulate(async |runtime| {
        let mut rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        rig.fail(1, Fault::Gone);
        write(&volume, 8).await;
        drop(volume);
        rig.copies[1].1 = FaultControl::default();
        let before = rig.image(1);
        let error = rig.try_open(&[1]).await.err().expect("it is stale");
        assert!(error.is_refusal() && error.to_string().contains("generation"), "{error}");
        assert!(rig.image(1) == before, "a refusal changes nothing");
        let volume = rig.open(&[0, 1]).await;
        assert!(warns(&volume, "headpond array re-add stack b --cache"));
        assert_eq!(active(&volume), 1);
        expect(&volume, 8).await;
        // It comes back, and is as good as the other.
        volume.re_add_member(Some(CACHE_COPIES), returning(&rig, 1)).await.unwrap();
        until_whole(&rig, &volume).await;
        assert_eq!(volume.description().cache, rig.description.cache);
        volume.stop().await.unwrap();
        drop(volume);
        let volume = rig.open(&[1]).await;
        expect(&volume, 8).await;
    });
}

#[test]
fn a_volume_without_a_fitting_copy_starts_only_by_force_and_then_without_its_cache() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        rig.fail(1, Fault::Gone);
        write(&volume, 8).await;
        drop(volume);
        let rig =
            Rig { copies: vec![(Rc::clone(&rig.copies[1].0), FaultControl::default())], ..rig };
        let forced = OpenOptions { tolerance: Tolerance::Forced, ..careful() };
        let devices = rig.devices(&[0]);
        let volume = Volume::open(&runtime, &rig.description, devices, forced).await.unwrap();
        assert!(volume.status().cache.is_none() && warns(&volume, "without its cache"));
        assert_eq!(byte_at(&volume, 0).await, Ok(0), "nothing was cleaned");
    });
}

/// The power goes when one copy has the newest records and the other has not: what was promised is
/// on both afterwards, and what was not is on both or on neither.
#[test]
fn a_cut_with_one_copy_behind_leaves_both_alike() {
    simulate(async |runtime| {
        for behind in [0, 1] {
            let rig = Rig::new(&runtime).await;
            let volume = rig.open(&[0, 1]).await;
            write(&volume, 7).await;
            let old = rig.image(behind);
            let device: &dyn BlockDevice = &volume;
            device.write(0, Buffer::from_slice(&[8; 4096])).await.unwrap();
            drop(volume);
            rig.put_back(behind, &old);
            let volume = rig.open(&[0, 1]).await;
            let first = byte_at(&volume, 0).await.unwrap();
            assert!([7, 8].contains(&first));
            assert_eq!(byte_at(&volume, 1).await, Ok(7));
            volume.stop().await.unwrap();
            drop(volume);
            for only in [0, 1] {
                let saved = [rig.image(0), rig.image(1)];
                let members: Vec<_> = rig.members.iter().map(|it| it.memory().to_vec()).collect();
                let volume = rig.open(&[only]).await;
                assert_eq!(byte_at(&volume, 0).await, Ok(first), "copy {only}");
                drop(volume);
                (0..2).for_each(|copy| rig.put_back(copy, &saved[copy]));
                let pairs = rig.members.iter().zip(&members);
                pairs.for_each(|(member, image)| member.memory().copy_from(image));
            }
        }
    });
}

#[test]
fn devices_that_are_no_copies_are_set_aside_and_named() {
    simulate(async |runtime| {
        let mut rig = Rig::new(&runtime).await;
        let other = Rig::new(&runtime).await;
        let foreign = (ram("foreign", COPY_BYTES), FaultControl::default());
        foreign.0.memory().slice(0..4096).fill(0x55);
        let swapped = (Rc::clone(&other.members[0]), FaultControl::default());
        rig.copies.extend([(ram("blank", COPY_BYTES), FaultControl::default()), foreign, swapped]);
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        drop(volume);
        let before: Vec<_> = (2..5).map(|copy| rig.image(copy)).collect();
        let volume = rig.open(&[2, 0, 3, 4]).await;
        expect(&volume, 7).await;
        for text in
            ["blank is not a copy of the cache, but blank", "foreign is not", "m0 is not a copy"]
        {
            assert!(warns(&volume, text), "{text}: {:?}", volume.status().warnings);
        }
        assert!((2..5).all(|copy| rig.image(copy) == before[copy - 2]), "left alone");
        drop(volume);
        let error = rig.try_open(&[2, 3]).await.err().expect("there is no copy");
        assert!(matches!(&error, OpenError::NoCacheDevice { .. }), "{error}");
        assert!(error.to_string().contains("foreign"), "{error}");
    });
}

#[test]
fn a_copy_is_replaced_while_the_volume_is_served_and_no_scrub_disturbs_that() {
    simulate(async |runtime| {
        let mut rig = Rig::new(&runtime).await;
        rig.copies.push((ram("c", COPY_BYTES), FaultControl::default()));
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        volume.pause_background(Some(CACHE_COPIES), true).unwrap();
        let with = NewMember {
            word: "c".into(),
            device: rig.devices(&[2]).copies.remove(0),
            uuid: Uuid::from_u128(78),
            occupied: Occupied::Refuse,
        };
        volume.replace_member(Some(CACHE_COPIES), "a", Some(with)).await.unwrap();
        let error = volume.scrub_cache().await.unwrap_err();
        assert!(matches!(error, ScrubCacheError::CatchingUp { .. }), "{error}");
        write(&volume, 8).await;
        volume.pause_background(Some(CACHE_COPIES), false).unwrap();
        let names = || volume.description().cache.unwrap().devices().map(String::from).collect();
        for _ in 0..1000 {
            if names() == ["b".to_owned(), "c".to_owned()] {
                break;
            }
            rig.runtime.sleep(Duration::from_secs(1)).await;
        }
        let names: Vec<String> = names();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(volume.scrub_cache().await.unwrap().lost, []);
        write(&volume, 9).await;
        volume.stop().await.unwrap();
        rig.description = volume.description();
        drop(volume);
        let volume = rig.open(&[2]).await;
        expect(&volume, 9).await;
        assert!(rig.try_open(&[0]).await.is_err(), "it is a copy no more");
    });
}

#[test]
fn a_cache_on_copies_is_attached_and_detached_and_leaves_its_devices_free() {
    simulate(async |runtime| {
        let mut rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        volume.detach(Dirty::Clean).await.unwrap();
        expect(&volume, 7).await;
        assert!(volume.description().cache.is_none());
        let described = rig.description.cache.clone().unwrap();
        let (copies, refuse) = (rig.devices(&[0, 1]).copies, Occupied::Refuse);
        let pool = careful().pool;
        let device = volume.make_copies(copies, &described, refuse, pool).await.unwrap();
        let (identity, occupied) = (Uuid::from_u128(5), Occupied::Refuse);
        let new = volume.make_cache(device, described, identity, occupied).await.unwrap();
        volume.attach(new, &|_| Box::pin(ready(Ok(())))).await.unwrap();
        write(&volume, 8).await;
        rig.fail(0, Fault::Gone);
        write(&volume, 9).await;
        volume.stop().await.unwrap();
        rig.description = volume.description();
        drop(volume);
        rig.copies[0].1 = FaultControl::default();
        assert!(rig.try_open(&[0]).await.is_err(), "it missed writes");
        expect(&rig.open(&[1]).await, 9).await;
        let destroyed = Volume::destroy(&rig.description, &rig.devices(&[0, 1])).await;
        assert_eq!((destroyed.erased, destroyed.failed.len()), (5, 0));
        assert!(rig.try_open(&[0, 1]).await.is_err());
    });
}

#[test]
fn devices_that_cannot_be_copies_are_refused_and_nothing_is_changed() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let again =
            Description { name: "other".into(), uuid: Uuid::from_u128(9), ..mirrored(&["a", "b"]) };
        let fresh =
            Rig { members: ["n0", "n1", "n2"].map(|name| ram(name, 16 << 20)).into(), ..rig };
        let before = fresh.image(0);
        let refused = Volume::create(&again, &fresh.devices(&[0, 1]), &CREATE).await.unwrap_err();
        assert!(refused.is_refusal(), "{refused}");
        assert!(refused.to_string().contains("cache of stack"), "{refused}");
        assert!(fresh.image(0) == before);
        let memory = Rc::new(RamDevice::new("memory", COPY_BYTES));
        let copies = vec![Rc::clone(&memory) as Rc<dyn BlockDevice>, ram("c", COPY_BYTES)];
        let devices = Devices { copies, ..fresh.devices(&[]) };
        let options = CreateOptions { occupied: Occupied::Overwrite, ..CREATE };
        let refused = Volume::create(&again, &devices, &options).await.unwrap_err();
        assert!(matches!(refused, CreateError::CopyInMemory { .. }), "{refused}");
        assert!(memory.memory().to_vec().iter().all(|byte| *byte == 0));
    });
}
