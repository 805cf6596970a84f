//! The witness of the field on disks that lose their power in virtual time: what is honest passes,
//! and each way of not being so is found and named.

use crate::common::{BLOCK, LOAD, REGION, Rig, SIZE_BYTES};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, Geometry, RequestKind, Stability};
use headpond_sim::{Flushes, Medium, run};
use headpond_witness::field::ruling::{Offence, Ruling, Verdict};
use headpond_witness::field::server::Limits;
use headpond_witness::field::wire::{Pattern, Sync, WireLoad};
use std::rc::Rc;
use std::time::Duration;

/// A disk with a cache that dies with the power.
fn flushable(flushes: Flushes) -> impl FnOnce() -> Medium {
    move || Medium::flushable("disk", SIZE_BYTES).with_flushes(flushes)
}

/// A disk whose cache outlives the power.
fn protected() -> Medium {
    let stability = Stability::StableOnCompletion;
    Medium::new("disk", Geometry { stability, ..Geometry::of_size(SIZE_BYTES) })
}

/// Several cuts of one disk, each with a load of its own; the rulings.
fn cuts(seed: u64, disk: impl FnOnce() -> Medium + 'static) -> Vec<Ruling> {
    let folder = headpond_testkit::tempdir();
    let path = folder.path().to_owned();
    run(seed, |runtime, sim| async move {
        let rig = Rig::new(runtime, sim, &path);
        let medium = Rc::new(disk());
        let mut rulings = Vec::new();
        for (pattern, sync, write_blocks) in [
            (Pattern::Random, Sync::Flush, 1),
            (Pattern::Hot, Sync::Fua, 4),
            (Pattern::Sequential, Sync::Flush, 16),
            (Pattern::Hot, Sync::Flush, 1),
            (Pattern::Random, Sync::None, 2),
        ] {
            let load = WireLoad { pattern, sync, write_blocks, ..LOAD };
            rig.write_until_cut(&medium, load, rig.some_ms(30)).await;
            if rig.some_ms(2).as_millis() == 2 {
                rig.start_witness(&path, Limits::default());
            }
            rulings.push(rig.verify(rig.powered(&medium)).await.unwrap());
        }
        rulings
    })
    .unwrap()
}

#[test]
fn a_disk_that_honours_flushes_keeps_what_it_promised() {
    let (mut gone, mut torn) = (0, 0);
    for seed in 0..10 {
        for (cut, ruling) in cuts(seed, flushable(Flushes::Honoured)).into_iter().enumerate() {
            assert_eq!(ruling.verdict, Verdict::Kept, "seed {seed}, cut {cut}: {ruling:#?}");
            assert_eq!(ruling.cut, Some(cut as u64 + 1));
            assert!(ruling.writes_acknowledged > 20 && ruling.blocks_promised > 0, "{ruling:?}");
            gone += ruling.unpromised_gone;
            torn += ruling.torn_allowed;
        }
    }
    assert!(gone > 50 && torn > 0, "the cuts took something: {gone} gone, {torn} torn");
}

/// Such a disk has promised everything that it has acknowledged, and loses none of it.
#[test]
fn a_disk_whose_cache_is_protected_loses_nothing_with_or_without_flushes() {
    for seed in 0..10 {
        let rulings = cuts(seed, protected);
        for (cut, ruling) in rulings.into_iter().enumerate() {
            assert_eq!(ruling.verdict, Verdict::Kept, "seed {seed}, cut {cut}: {ruling:#?}");
            // Nothing but what a write under way has torn.
            assert!(ruling.unpromised_gone <= ruling.torn_allowed, "seed {seed}: {ruling:#?}");
            assert!(ruling.writes_acknowledged > 20, "{ruling:?}");
        }
    }
}

#[test]
fn a_disk_that_ignores_flushes_is_caught() {
    for seed in 0..6 {
        let rulings = cuts(seed, flushable(Flushes::Ignored));
        let broken = rulings.iter().find(|ruling| ruling.verdict == Verdict::Broken);
        let broken = broken.unwrap_or_else(|| panic!("seed {seed}: it lied five times"));
        let first = broken.first.as_ref().expect("a first block");
        assert!(first.story.iter().any(|line| line.contains("acknowledged")), "{first:#?}");
        assert!(broken.counts.lost + broken.counts.stale > 0, "{broken:#?}");
    }
}

/// Writes in order, lets `damage` change the disk behind its back, and has it judged.
fn damaged(damage: impl Fn(&Medium)) -> Ruling {
    let folder = headpond_testkit::tempdir();
    let path = folder.path().to_owned();
    run(3, |runtime, sim| async move {
        let rig = Rig::new(runtime, sim, &path);
        let medium = Rc::new(Medium::flushable("disk", SIZE_BYTES));
        let load = WireLoad { pattern: Pattern::Sequential, ..LOAD };
        rig.write(rig.powered(&medium), load, Duration::from_millis(500)).await.unwrap();
        damage(&medium);
        rig.verify(rig.powered(&medium)).await.unwrap()
    })
    .unwrap()
}

fn offence(ruling: &Ruling) -> (Offence, u64) {
    assert_eq!(ruling.verdict, Verdict::Broken, "{ruling:#?}");
    let first = ruling.first.as_ref().expect("a first block");
    (first.offence, first.block)
}

#[test]
fn what_is_whole_passes_and_a_cut_is_not_claimed() {
    let ruling = damaged(|_| {});
    assert_eq!((ruling.verdict, ruling.cut), (Verdict::Kept, None));
    assert_eq!(ruling.blocks_promised, REGION.blocks);
}

#[test]
fn a_lost_block_is_found() {
    let ruling = damaged(|medium| medium.poke(5 * BLOCK, &[0; BLOCK as usize]));
    assert_eq!(offence(&ruling), (Offence::Lost, 5));
    assert_eq!(ruling.counts.total(), 1);
}

#[test]
fn a_misdirected_write_is_found_where_it_went() {
    let ruling = damaged(|medium| medium.poke(6 * BLOCK, &medium.peek(9 * BLOCK, 4096)));
    assert_eq!(offence(&ruling), (Offence::Misdirected, 6));
    let found = ruling.first.expect("a block").found;
    assert!(found.contains(&format!("of byte {}", 9 * BLOCK)), "{found}");
}

#[test]
fn a_changed_bit_is_a_third_value() {
    let ruling = damaged(|medium| {
        let mut bytes = medium.peek(7 * BLOCK, 4096);
        bytes[1000] ^= 8;
        medium.poke(7 * BLOCK, &bytes);
    });
    assert_eq!(offence(&ruling), (Offence::ThirdValue, 7));
}

#[test]
fn a_block_that_cannot_be_read_is_no_pass() {
    let ruling = faulty(RequestKind::Read, Fault::Media, 1);
    assert_eq!(offence(&ruling).0, Offence::Unreadable);
}

/// Twice over the region, with one fault on the way of a late write or of all reads.
fn faulty(kind: RequestKind, fault: Fault, times: u64) -> Ruling {
    let folder = headpond_testkit::tempdir();
    let path = folder.path().to_owned();
    run(4, |runtime, sim| async move {
        let rig = Rig::new(runtime.clone(), sim, &path);
        let medium = Rc::new(Medium::flushable("disk", SIZE_BYTES));
        let faults = FaultControl::default();
        let device: Rc<dyn BlockDevice> =
            Rc::new(FaultDevice::new(rig.powered(&medium), faults.clone(), runtime.clone()));
        let load = WireLoad { pattern: Pattern::Sequential, ..LOAD };
        // So late that nothing is written there again.
        let late = runtime.clone().spawn(async move {
            runtime.sleep(Duration::from_millis(285)).await;
            let times = (kind != RequestKind::Read).then_some(times);
            faults.add(FaultRule { times, ..FaultRule::on(kind, fault) });
        });
        rig.write(Rc::clone(&device), load, Duration::from_millis(300)).await.unwrap();
        late.await;
        rig.verify(device).await.unwrap()
    })
    .unwrap()
}

#[test]
fn a_write_that_was_acknowledged_and_dropped_leaves_a_stale_block() {
    let ruling = faulty(RequestKind::Write, Fault::Lose, 1);
    assert_eq!(offence(&ruling).0, Offence::Stale);
    assert_eq!((ruling.counts.total(), ruling.counts.reordered), (1, 1), "{ruling:#?}");
    let story = ruling.first.expect("a block").story;
    assert!(story.iter().any(|line| line.contains("is acknowledged")), "{story:?}");
}

#[test]
fn a_write_that_was_changed_on_its_way_is_a_third_value() {
    let ruling = faulty(RequestKind::Write, Fault::Corrupt, 1);
    assert_eq!(ruling.counts.total(), 1);
    assert!(matches!(offence(&ruling).0, Offence::ThirdValue | Offence::Torn), "{ruling:#?}");
}

#[test]
fn a_write_that_fails_may_be_there_or_not() {
    for fault in [Fault::Media, Fault::NoSpace] {
        assert_eq!(faulty(RequestKind::Write, fault, 3).verdict, Verdict::Kept);
    }
}

#[test]
fn nobody_writes_over_the_evidence_of_a_cut() {
    let folder = headpond_testkit::tempdir();
    let path = folder.path().to_owned();
    run(5, |runtime, sim| async move {
        let rig = Rig::new(runtime, sim, &path);
        let medium = Rc::new(Medium::flushable("disk", SIZE_BYTES));
        let none = rig.verify(rig.powered(&medium)).await.unwrap_err();
        assert!(none.to_string().contains("nothing has been written"), "{none}");
        rig.write_until_cut(&medium, LOAD, rig.some_ms(100)).await;
        for _ in 0..2 {
            let refused = rig.writer(rig.powered(&medium), LOAD).await.map(drop).unwrap_err();
            assert!(refused.to_string().contains("--anew"), "{refused}");
            rig.start_witness(&path, Limits::default());
        }
        assert_eq!(rig.verify(rig.powered(&medium)).await.unwrap().verdict, Verdict::Kept);
        rig.write(rig.powered(&medium), LOAD, Duration::from_millis(50)).await.unwrap();
    })
    .unwrap();
}
