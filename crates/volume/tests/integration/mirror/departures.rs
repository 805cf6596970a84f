//! A copy leaves while the volume is served: who counts afterwards.

use crate::mirror::rig::{
    BLOCKS, Rig, active, byte_at, cache, expect, returning, simulate, until_whole, write,
};
use headpond_block::decorators::{Fault, FaultControl, FaultRule};
use headpond_block::{BlockDevice, Buffer, ByteRange, RequestKind};
use headpond_cache::format::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_volume::{CACHE_COPIES, Volume};
use std::ops::Range;

/// Neither copy has room left for a while, so the cache fails, and writes go past it. Then one of
/// the copies leaves.
#[test]
fn a_cache_that_was_disowned_stays_so_when_a_copy_leaves_later() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        for (_, control) in &rig.copies {
            control.add(FaultRule::on(RequestKind::Write, Fault::NoSpace));
        }
        let device: &dyn BlockDevice = &volume;
        device.write(0, Buffer::from_slice(&[8; 4096])).await.unwrap();
        device.flush().await.unwrap();
        assert!(cache(&volume).failed);
        rig.copies.iter().for_each(|(_, control)| control.clear());
        volume.fail_member(Some(CACHE_COPIES), "a").await.unwrap();
        device.flush().await.unwrap();
        assert_eq!(byte_at(&volume, 0).await.ok(), Some(8));
        drop(volume);
        for copies in [vec![1], vec![0, 1]] {
            let error = rig.try_open(&copies).await.err().expect("its blocks are older");
            assert!(error.is_refusal() && error.to_string().contains("generation"), "{error}");
        }
    });
}

#[test]
fn a_copy_without_room_leaves_and_the_cache_goes_on() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        rig.copies[0].1.add(FaultRule::on(RequestKind::Write, Fault::NoSpace));
        write(&volume, 8).await;
        assert!(!cache(&volume).failed);
        assert_eq!(active(&volume), 1);
        drop(volume);
        assert!(rig.try_open(&[0]).await.is_err(), "it missed writes");
        expect(&rig.open(&[1]).await, 8).await;
    });
}

/// Either place of the superblock has rotted on the copy that is left, before or after.
#[test]
fn the_last_copy_serves_and_starts_with_one_superblock_of_the_cache_that_is_right() {
    simulate(async |runtime| {
        for place in [0, 1] {
            let rig = Rig::new(&runtime).await;
            let volume = rig.open(&[0, 1]).await;
            write(&volume, 7).await;
            let start = DATA_OFFSET_MIN + COPY_OFFSETS[place];
            let range = Some(ByteRange::at(start, SUPERBLOCK_BYTES as u64));
            let unreadable = FaultRule::on(RequestKind::Read, Fault::Media);
            rig.copies[1].1.add(FaultRule { range, ..unreadable });
            rig.fail(0, Fault::Gone);
            write(&volume, 8).await;
            assert!(!cache(&volume).failed);
            drop(volume);
            expect(&rig.open(&[1]).await, 8).await;
            rig.copies[1].1.clear();
            let mut image = rig.image(1);
            image[start as usize + 77] ^= 1;
            rig.put_back(1, &image);
            expect(&rig.open(&[1]).await, 8).await;
        }
    });
}

#[test]
fn of_three_copies_the_last_that_is_left_has_everything_and_the_others_are_behind() {
    simulate(async |runtime| {
        let mut rig = Rig::of(&runtime, &["a", "b", "c"], 1).await;
        let volume = rig.open(&[0, 1, 2]).await;
        write(&volume, 7).await;
        for (lost, byte) in [(0, 8), (1, 9)] {
            rig.fail(lost, Fault::Gone);
            write(&volume, byte).await;
            expect(&volume, byte).await;
            let at_risk_bytes = if lost == 1 { BLOCKS * 4096 } else { 0 };
            assert_eq!(cache(&volume).mirror.unwrap().at_risk_bytes, at_risk_bytes);
        }
        drop(volume);
        rig.copies.iter_mut().for_each(|(_, control)| *control = FaultControl::default());
        for behind in [vec![0], vec![1], vec![0, 1]] {
            let error = rig.try_open(&behind).await.err().expect("they missed writes");
            assert!(error.is_refusal(), "{error}");
        }
        let volume = rig.open(&[0, 1, 2]).await;
        expect(&volume, 9).await;
        for behind in [0, 1] {
            volume.re_add_member(Some(CACHE_COPIES), returning(&rig, behind)).await.unwrap();
        }
        until_whole(&rig, &volume).await;
        volume.stop().await.unwrap();
        drop(volume);
        expect(&rig.open(&[0]).await, 9).await;
    });
}

#[test]
fn a_copy_that_fails_a_flush_leaves_before_that_is_answered() {
    simulate(async |runtime| {
        for failing in [0, 1] {
            let rig = Rig::new(&runtime).await;
            let volume = rig.open(&[0, 1]).await;
            write(&volume, 7).await;
            let flush = FaultRule::on(RequestKind::Flush, Fault::Media);
            rig.copies[failing].1.add(FaultRule { times: Some(1), ..flush });
            write(&volume, 8).await;
            assert_eq!((active(&volume), cache(&volume).failed), (1, false));
            drop(volume);
            assert!(rig.try_open(&[failing]).await.is_err(), "it may lack what was promised");
            expect(&rig.open(&[0, 1]).await, 8).await;
        }
    });
}

const FAR_BLOCKS: Range<u64> = 0..20;

/// One block in each MiB, promised.
async fn write_far(volume: &Volume, byte: u8) {
    let device: &dyn BlockDevice = volume;
    for mib in FAR_BLOCKS {
        device.write(mib << 20, Buffer::from_slice(&[byte; 4096])).await.unwrap();
    }
    device.flush().await.unwrap();
}

async fn expect_far(volume: &Volume, byte: u8) {
    for mib in FAR_BLOCKS {
        assert_eq!(byte_at(volume, mib * 256).await.ok(), Some(byte), "MiB {mib}");
    }
}

#[test]
fn copies_of_several_slices_leave_for_all_of_them() {
    simulate(async |runtime| {
        let mut rig = Rig::of(&runtime, &["a", "b"], 2).await;
        let volume = rig.open(&[0, 1]).await;
        write_far(&volume, 7).await;
        assert!(volume.stats().slices.iter().all(|slice| slice.dirty_bytes > 0));
        rig.rot(0, 7);
        expect_far(&volume, 7).await;
        expect_far(&volume, 7).await;
        rig.fail(0, Fault::Gone);
        write_far(&volume, 8).await;
        drop(volume);
        rig.copies[0].1 = FaultControl::default();
        assert!(rig.try_open(&[0]).await.is_err());
        let volume = rig.open(&[0, 1]).await;
        expect_far(&volume, 8).await;
        volume.re_add_member(Some(CACHE_COPIES), returning(&rig, 0)).await.unwrap();
        until_whole(&rig, &volume).await;
        drop(volume);
        expect_far(&rig.open(&[0]).await, 8).await;
    });
}
