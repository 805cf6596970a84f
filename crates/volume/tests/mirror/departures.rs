//! A copy leaves while the volume is served: who counts afterwards.

use crate::rig::{Rig, active, byte_at, cache, expect, simulate, write};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, Buffer, ByteRange, RequestKind};
use headpond_cache::format::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_volume::CACHE_COPIES;

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
