//! Members fail, are slow or full: rows 29 to 32, 35, 39, 41 to 43.

use super::rig::{Rig, cached_raid5, once, places_on};
use crate::topology::Topology;
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{ByteRange, Cause, DeviceError, RequestKind};
use headpond_cache::{BlockRun, CoreBlock, Mode};
use headpond_raid::{ArrayState, Level, Occupied};
use headpond_volume::{AlertKind, NewMember, Tolerance};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// The member, and the place on it, that holds a block of `byte` as data.
fn member_with(rig: &Rig, byte: u8) -> (usize, ByteRange) {
    let members = rig.machine.members.iter().enumerate();
    let places = members.flat_map(|(index, member)| {
        places_on(member, byte).into_iter().map(move |place| (index, place))
    });
    let (member, place) = places.into_iter().next().expect("some member has it");
    (member, ByteRange::at(place, 4096))
}

fn unreadable(range: ByteRange) -> FaultRule {
    FaultRule { range: Some(range), ..FaultRule::on(RequestKind::Read, Fault::Latent) }
}

pub(super) fn block_that_a_member_cannot_read_is_reconstructed_and_written_again() {
    let rig = Rig::uncached(Level::Raid5, 3);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        // A strip beside it, so that the parity is not the same bytes.
        scene.promise(5, 2).await;
        let (member, range) = member_with(&rig, 1);
        scene.controls.members[member].add(unreadable(range));
        scene.expect(3, 1).await;
        let status = scene.volume.status().array;
        assert_eq!((status.state, status.counts.rewritten_strips), (ArrayState::Optimal, 1));
        let struck = scene.controls.members[member].struck();
        scene.expect(3, 1).await;
        assert_eq!(scene.controls.members[member].struck(), struck, "it was written again");
    });
}

pub(super) fn block_that_the_only_copy_cannot_give_is_an_error() {
    let rig = Rig::uncached(Level::Raid0, 2);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.promise(5, 2).await;
        let (member, range) = member_with(&rig, 1);
        scene.controls.members[member].add(unreadable(range));
        assert!(scene.read(3).await.is_err());
        scene.expect(5, 2).await;
    });
}

/// The member is out, and durably so, before the flush is answered.
pub(super) fn member_that_cannot_flush_is_out_and_the_flush_holds_without_it() {
    for seed in 0..8 {
        let rig = Rig::uncached(Level::Raid5, 3);
        rig.live(async |scene| {
            scene.write(3, 1).await.expect("takes the write");
            let (member, _) = member_with(&rig, 1);
            scene.controls.members[member].add(once(RequestKind::Flush, Fault::Media));
            scene.flush().await.expect("the others have it");
            assert_eq!(scene.volume.status().array.state, ArrayState::Degraded);
            scene.volume.stop().await.expect("stops");
        });
        rig.cut(seed);
        rig.live(async |scene| {
            scene.expect(3, 1).await;
            assert!(scene.warns("is stale and left out"));
        });
    }
}

pub(super) fn flush_that_the_cache_refuses_is_an_error_and_the_next_one_covers_it() {
    for seed in 0..8 {
        let rig = Rig::in_mode(Mode::WriteBack);
        rig.live(async |scene| {
            scene.write(3, 1).await.expect("takes the write");
            scene.controls.cache.add(once(RequestKind::Flush, Fault::Media));
            assert!(scene.flush().await.is_err());
            scene.flush().await.expect("flushes");
        });
        rig.cut(seed);
        rig.live(async |scene| scene.expect(3, 1).await);
    }
}

/// What was cleaned before is dirty again: nobody knows what the members kept.
pub(super) fn flush_that_the_core_refuses_makes_nothing_clean() {
    for seed in 0..8 {
        let rig = Rig::new(Topology { level: Level::Raid0, members: 2, ..cached_raid5() });
        rig.live(async |scene| {
            scene.promise(3, 1).await;
            for member in &scene.controls.members {
                member.add(once(RequestKind::Flush, Fault::Media));
            }
            assert!(scene.volume.clean_all().await.is_err());
            assert_eq!(scene.cache().dirty_bytes, 4096);
            let alert = scene.alert(AlertKind::ArrayWriteErrors);
            assert_eq!(alert.at_risk.bytes, 4096, "{alert}");
            assert!(alert.action.contains("headpond flush"), "{alert}");
            scene.expect(3, 1).await;
        });
        rig.cut(seed);
        rig.live(async |scene| scene.expect(3, 1).await);
    }
}

pub(super) fn members_lost_within_the_redundancy_cost_nothing_and_beyond_it_writes_stop() {
    let topology = Topology { level: Level::Raid6, members: 5, cache: None, ..cached_raid5() };
    let rig = Rig::new(topology);
    rig.live(async |scene| {
        for (lost, byte) in [(None, 1), (Some(0), 2), (Some(1), 3)] {
            lost.into_iter().for_each(|member| scene.lose_member(member));
            for block in 0..24 {
                scene.write(block, byte).await.expect("takes the write");
            }
            scene.flush().await.expect("flushes");
            for block in 0..24 {
                scene.expect(block, byte).await;
            }
        }
        assert_eq!(scene.volume.status().array.state, ArrayState::Degraded);
        scene.lose_member(2);
        assert!(scene.write(0, 4).await.is_err());
        assert_eq!(scene.volume.status().array.state, ArrayState::Failed);
        assert!(scene.write(1, 4).await.is_err() && scene.flush().await.is_err());
        let reads = async |block| scene.read(block).await;
        for block in 0..24 {
            let found = reads(block).await;
            assert!(found.is_err() || found == Ok(3) || block < 2, "{found:?}");
        }
    });
}

pub(super) fn array_beyond_its_redundancy_leaves_dirty_data_in_the_cache() {
    let mut rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.lose_member(0);
        scene.lose_member(1);
        assert!(scene.volume.clean_all().await.is_err());
        assert_eq!(scene.cache().dirty_bytes, 4096);
        scene.expect(3, 1).await;
        assert!(scene.warns("more members are missing than its redundancy covers"));
    });
    rig.cut(1);
    // The members are back, and one of them was called out.
    rig.tolerance = Tolerance::Forced;
    rig.live(async |scene| {
        scene.expect(3, 1).await;
        scene.volume.clean_all().await.expect("cleans");
    });
    rig.halt();
    rig.set_mode(Mode::PassThrough);
    rig.live(async |scene| scene.expect(3, 1).await);
}

pub(super) fn copy_that_missed_writes_is_not_read_when_it_returns() {
    let mut rig = Rig::uncached(Level::Raid1, 2);
    for absent in [0, 1] {
        rig = Rig::uncached(Level::Raid1, 2);
        let write = async |scene: &super::rig::Scene, byte| {
            scene.promise(3, byte).await;
            scene.volume.stop().await.expect("stops");
        };
        rig.live(async |scene| write(scene, 1).await);
        rig.halt();
        rig.absent.members.insert(absent);
        rig.live(async |scene| write(scene, 2).await);
        rig.halt();
        rig.absent.members.clear();
        rig.live(async |scene| {
            for _ in 0..6 {
                scene.expect(3, 2).await;
            }
            assert!(scene.warns("is stale and left out"));
        });
    }
    drop(rig);
}

pub(super) fn slow_member_holds_up_nothing_that_the_cache_can_answer_and_stays_a_member() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        let slow = FaultRule::on(RequestKind::Read, Fault::Delay(Duration::from_secs(5)));
        scene.controls.members[0].add(FaultRule { kind: None, ..slow });
        let volume = scene.volume.clone();
        let cleaning = scene.runtime.spawn(async move { volume.clean_all().await });
        let before = scene.runtime.now();
        for round in 0..20 {
            scene.expect(3, 1).await;
            scene.write(4, round).await.expect("takes the write");
            scene.flush().await.expect("flushes");
        }
        assert!(scene.runtime.now().since(before) < Duration::from_secs(1));
        cleaning.await.expect("late, and done");
        assert_eq!(scene.volume.status().array.state, ArrayState::Optimal);
    });
}

pub(super) fn hung_member_is_read_around_at_once_and_evicted_by_a_write() {
    let rig = Rig::in_mode(Mode::PassThrough);
    rig.live(async |scene| {
        for block in 0..24 {
            scene.promise(block, 1).await;
        }
        let hang = FaultRule::on(RequestKind::Read, Fault::Hang);
        scene.controls.members[0].add(FaultRule { kind: None, ..hang });
        let before = scene.runtime.now();
        for block in 0..24 {
            scene.expect(block, 1).await;
        }
        assert!(scene.runtime.now().since(before) < Duration::from_secs(5));
        assert_eq!(scene.volume.status().array.state, ArrayState::Optimal);
        for block in 0..24 {
            scene.promise(block, 2).await;
        }
        assert!(scene.runtime.now().since(before) < Duration::from_secs(60), "one wait for all");
        assert_eq!(scene.volume.status().array.state, ArrayState::Degraded);
        for block in 0..24 {
            scene.expect(block, 2).await;
        }
    });
}

/// A member is lost, and what another cannot read while a spare takes the role is lost as well: the
/// alert says how much, to the byte.
pub(super) fn what_a_rebuild_could_not_read_is_told_to_the_byte() {
    const BLOCKS: u64 = 24;
    let rig = Rig::uncached(Level::Raid5, 3);
    rig.live(async |scene| {
        for block in 0..BLOCKS {
            scene.promise(block, 1 + block as u8).await;
        }
        let (member, range) = member_with(&rig, 4);
        let lost = (member + 1) % 3;
        scene.lose_member(lost);
        scene.promise(BLOCKS, 200).await;
        scene.controls.members[member].add(unreadable(range));
        let device =
            Rc::new(RamDevice::with_geometry("m3", rig.machine.members[0].geometry().clone()));
        let new = NewMember {
            word: "m3".into(),
            device,
            uuid: Uuid::from_u128(3),
            occupied: Occupied::Overwrite,
        };
        scene.volume.add_spare(None, new).await.expect("takes the spare");
        while scene.volume.status().array.state != ArrayState::Optimal {
            scene.runtime.sleep(super::rig::A_WHILE).await;
        }
        let told = scene.alert(AlertKind::LostBlocks);
        let mut unreadable = 0;
        for block in 0..BLOCKS {
            match scene.read(block).await {
                Ok(found) => assert_eq!(u64::from(found), 1 + block),
                Err(_) => unreadable += 1,
            }
        }
        assert_eq!(told.at_risk.bytes, unreadable * 4096, "{told}");
        assert!(unreadable > 0 && told.at_risk.what.contains(&told.at_risk.bytes.to_string()));
    });
}

/// Beside the dirty blocks of the cache a member is lost: only those blocks are gone.
pub(super) fn cache_and_member_lost_together_cost_only_what_was_dirty() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        for block in 0..24 {
            scene.write(block, 1).await.expect("takes the write");
        }
        scene.volume.clean_all().await.expect("cleans");
        scene.promise(3, 2).await;
        scene.lose_cache();
        scene.lose_member(0);
        for block in 0..24 {
            let found = scene.read(block).await;
            assert!(if block == 3 { found.is_err() } else { found == Ok(1) }, "{block}: {found:?}");
        }
        assert_eq!(scene.alert(AlertKind::DirtyUnreadable).at_risk.blocks, 1);
        let lost = scene.volume.scrub_cache().await.expect("reads what it can").lost;
        assert_eq!(lost, [BlockRun { first: CoreBlock(3), count: 1 }], "the list is exported");
    });
}

pub(super) fn full_member_fails_writes_and_nothing_else() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        // The superblocks have their place already, as in a sparse file.
        let data = ByteRange::at(1 << 20, rig.machine.topology.member_bytes() - (1 << 20));
        let full = FaultRule::on(RequestKind::Write, Fault::NoSpace);
        let full = FaultRule { range: Some(data), ..full };
        scene.controls.members.iter().for_each(|member| member.add(full.clone()));
        assert!(scene.volume.clean_all().await.is_err());
        assert_eq!(scene.cache().dirty_bytes, 4096);
        let told = scene.alert(AlertKind::ArrayWriteErrors);
        assert!(told.at_risk.blocks == 1 && told.action.contains("headpond flush"), "{told}");
        scene.expect(3, 1).await;
        scene.expect(100, 0).await;
        let past = headpond_volume::SettingChange::new("mode", Mode::PassThrough);
        scene.volume.set(&[past]).await.expect("a mode that is allowed");
        let refused = scene.write(100, 1).await;
        assert!(
            matches!(refused.as_ref().map_err(DeviceError::cause), Err(Cause::NoSpace)),
            "{refused:?}"
        );
        assert_eq!(scene.volume.status().array.state, ArrayState::Optimal);
        scene.controls.members.iter().for_each(|member| member.clear());
        scene.runtime.sleep(super::rig::A_WHILE).await;
        scene.volume.clean_all().await.expect("cleans");
        scene.write(100, 1).await.expect("takes the write");
        scene.expect(3, 1).await;
    });
}
