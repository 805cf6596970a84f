//! What the operator is told of copies.

use crate::mirror::rig::{
    BLOCKS, Rig, active, byte_at, cache, expect, returning, simulate, until_whole, write,
};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, Buffer, RequestKind};
use headpond_volume::{Alert, AlertKind, CACHE_COPIES, RepairedDevice, Volume};
use std::time::Duration;

fn alert(volume: &Volume, kind: AlertKind) -> Alert {
    let alerts = volume.status().alerts;
    let alert = alerts.iter().find(|alert| alert.kind == kind);
    alert.unwrap_or_else(|| panic!("no {kind:?} in {alerts:?}")).clone()
}

#[test]
fn a_copy_that_rots_is_to_be_replaced_and_not_the_cache() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        rig.rot(1, 7);
        expect(&volume, 7).await;
        let told = alert(&volume, AlertKind::CacheCorruption);
        let replace = "headpond array replace stack b --with DEVICE --cache";
        assert!(told.action.contains(replace), "{told}");
        assert!(told.at_risk.what.contains("another copy"), "{told}");
        assert!(told.cause.contains("; b was wrong"), "{told}");
        assert!(!told.action.contains("cache replace"), "{told}");
        expect(&volume, 7).await;
        byte_at(&volume, 0).await.unwrap();
        expect(&volume, 7).await;
        let expected = RepairedDevice { device: "b".into(), times: BLOCKS };
        assert_eq!(cache(&volume).mirror.unwrap().repaired, [expected]);
        let copy = &cache(&volume).mirror.unwrap().array.members[1];
        assert_eq!(copy.errors.checksum, BLOCKS);
        volume.clear_errors(None).await.unwrap();
        assert!(cache(&volume).mirror.unwrap().repaired.is_empty());
        assert_eq!(volume.status().errors, []);
    });
}

#[test]
fn what_is_dirty_in_a_cache_that_failed_is_at_risk_whatever_copies_there_are() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        for (_, control) in &rig.copies {
            control.add(FaultRule::on(RequestKind::Write, Fault::NoSpace));
        }
        let device: &dyn BlockDevice = &volume;
        device.write(0, Buffer::from_slice(&[8; 4096])).await.unwrap();
        assert!(cache(&volume).failed);
        let dirty_bytes = cache(&volume).dirty_bytes;
        assert_ne!(dirty_bytes, 0);
        for kind in [AlertKind::CacheFailed, AlertKind::CacheWriteErrors] {
            assert_eq!(alert(&volume, kind).at_risk.bytes, dirty_bytes);
        }
    });
}

#[test]
fn a_copy_that_holds_reads_up_is_told_of_as_one_of_the_cache() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        let slow = FaultRule::on(RequestKind::Read, Fault::Delay(Duration::from_secs(6)));
        rig.copies[0].1.add(FaultRule { times: Some(3), ..slow });
        for _ in 0..3 {
            expect(&volume, 7).await;
        }
        let told = alert(&volume, AlertKind::SlowMember);
        assert!(told.cause.contains("(a) of array cache of stack"), "{told}");
        assert!(told.action.contains("array replace stack a --with DEVICE --cache"), "{told}");
        assert!(!told.action.contains("--core"), "{told}");
    });
}

#[test]
fn how_long_members_are_waited_for_goes_for_copies_too() {
    simulate(async |runtime| {
        let mut rig = Rig::new(&runtime).await;
        let deadlines = |volume: &Volume| {
            let copies = cache(volume).mirror.unwrap().array;
            [volume.status().array, copies].map(|array| array.deadlines.unwrap().timeout_ms)
        };
        let volume = rig.open(&[0, 1]).await;
        volume.set(&["member-timeout-ms=7000".parse().unwrap()]).await.unwrap();
        assert_eq!(deadlines(&volume), [Some(7000); 2]);
        volume.stop().await.unwrap();
        rig.description = volume.description();
        drop(volume);
        assert_eq!(deadlines(&rig.open(&[0, 1]).await), [Some(7000); 2]);
    });
}

#[test]
fn a_copy_whose_filling_is_paused_is_not_said_to_be_on_its_way() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        volume.fail_member(Some(CACHE_COPIES), "a").await.unwrap();
        volume.pause_background(Some(CACHE_COPIES), true).unwrap();
        volume.re_add_member(Some(CACHE_COPIES), returning(&rig, 0)).await.unwrap();
        runtime.sleep(Duration::from_secs(9)).await;
        let told = volume.status().warnings;
        assert_eq!(active(&volume), 1);
        assert!(told.iter().any(|it| it.contains("of the cache is paused")), "{told:?}");
        volume.pause_background(Some(CACHE_COPIES), false).unwrap();
        until_whole(&rig, &volume).await;
    });
}
