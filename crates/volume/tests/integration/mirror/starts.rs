//! With which copies a volume starts, and what it makes of the others.

use crate::mirror::rig::{
    Rig, active, byte_at, expect, returning, simulate, until_whole, warns, write,
};
use crate::support::careful;
use headpond_block::decorators::{Fault, FaultControl};
use headpond_block::{BlockDevice, Buffer};
use headpond_raid::Inspection;
use headpond_raid::superblock::{DATA_OFFSET_MIN, RecordedState};
use headpond_volume::{CACHE_COPIES, OpenOptions, Tolerance, Volume};
use std::time::Duration;

/// One copy was lost unnoticed by the arrays; the other, which they knew of, was started alone.
#[test]
fn of_copies_that_have_each_been_without_the_other_the_one_counts_that_the_arrays_know() {
    simulate(async |runtime| {
        for lost in [0, 1] {
            let kept = 1 - lost;
            let mut rig = Rig::new(&runtime).await;
            let volume = rig.open(&[0, 1]).await;
            write(&volume, 7).await;
            let before: Vec<_> = rig.members.iter().map(|it| it.memory().to_vec()).collect();
            rig.fail(lost, Fault::Gone);
            expect(&volume, 7).await;
            byte_at(&volume, 0).await.unwrap();
            expect(&volume, 7).await;
            assert_eq!(active(&volume), 1, "a read has told");
            drop(volume);
            // The power went before the arrays were told as well, which goes on without the volume.
            runtime.sleep(Duration::from_secs(1)).await;
            let pairs = rig.members.iter().zip(&before);
            pairs.for_each(|(member, image)| member.memory().copy_from(image));
            rig.copies[lost].1 = FaultControl::default();
            let volume = rig.open(&[lost]).await;
            write(&volume, 8).await;
            volume.stop().await.unwrap();
            drop(volume);
            let before = rig.image(kept);
            let volume = rig.open(&[0, 1]).await;
            expect(&volume, 8).await;
            let name = ["a", "b"][kept];
            let advice = format!("headpond array re-add stack {name} --cache");
            assert!(warns(&volume, &advice), "{:?}", volume.status().warnings);
            assert!(rig.image(kept) == before, "left alone");
            volume.re_add_member(Some(CACHE_COPIES), returning(&rig, kept)).await.unwrap();
            until_whole(&rig, &volume).await;
            volume.stop().await.unwrap();
            drop(volume);
            expect(&rig.open(&[kept]).await, 8).await;
        }
    });
}

/// Without an intent bitmap what is recorded as in use would have all of its parity doubted, though
/// nothing was written.
#[test]
fn a_start_that_is_refused_for_a_changed_array_leaves_it_and_the_copies_as_stopped_in_order() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        volume.clean_all().await.unwrap();
        let only_there = Buffer::from_slice(&[8; 4096]);
        (&volume as &dyn BlockDevice).write(1 << 20, only_there).await.unwrap();
        volume.stop().await.unwrap();
        drop(volume);
        for member in &rig.members {
            let mut image = member.memory().to_vec();
            image[DATA_OFFSET_MIN as usize..].iter_mut().for_each(|byte| *byte ^= 0x55);
            member.memory().copy_from(&image);
        }
        let error = rig.try_open(&[0, 1]).await.err().expect("refused");
        assert!(
            error.is_refusal() && error.to_string().contains("compared with the core 40 differ"),
            "{error}"
        );
        let copies = rig.copies.iter().map(|copy| &copy.0);
        for device in rig.members.iter().chain(copies) {
            let Ok(Inspection::Member(found)) = headpond_raid::inspect(&**device).await else {
                panic!("it is a member")
            };
            assert_eq!(found.array.state, RecordedState::Clean, "{}", device.name());
        }
    });
}

/// The copy was told that the other had left, and a cut kept that from the arrays. Then its cache
/// is given up, whether the description still names it or not.
#[test]
fn a_cache_that_was_given_up_does_not_come_back_though_a_copy_was_one_ahead() {
    simulate(async |runtime| {
        for is_named in [true, false] {
            let rig = Rig::new(&runtime).await;
            let volume = rig.open(&[0, 1]).await;
            write(&volume, 7).await;
            let before: Vec<_> = rig.members.iter().map(|it| it.memory().to_vec()).collect();
            rig.fail(0, Fault::Gone);
            write(&volume, 8).await;
            drop(volume);
            let pairs = rig.members.iter().zip(&before);
            pairs.for_each(|(member, image)| member.memory().copy_from(image));
            let mut described = rig.description.clone();
            described.cache = described.cache.filter(|_| is_named);
            let forced = OpenOptions { tolerance: Tolerance::Forced, ..careful() };
            let devices = rig.devices(&[]);
            let volume = Volume::open(&runtime, &described, devices, forced).await.unwrap();
            write(&volume, 9).await;
            volume.stop().await.unwrap();
            drop(volume);
            let volume = rig.open(&[1]).await;
            assert!(volume.status().cache.is_none() && warns(&volume, "not attached"));
            expect(&volume, 9).await;
        }
    });
}

#[test]
fn a_copy_that_was_away_while_the_other_started_alone_is_left_out_beside_it() {
    simulate(async |runtime| {
        for away in [0, 1] {
            let rig = Rig::new(&runtime).await;
            let volume = rig.open(&[0, 1]).await;
            write(&volume, 7).await;
            volume.stop().await.unwrap();
            drop(volume);
            let volume = rig.open(&[1 - away]).await;
            write(&volume, 8).await;
            drop(volume);
            let before = rig.image(away);
            let volume = rig.open(&[0, 1]).await;
            expect(&volume, 8).await;
            assert_eq!(active(&volume), 1);
            let name = ["a", "b"][away];
            assert!(warns(&volume, &format!("headpond array re-add stack {name} --cache")));
            assert!(rig.image(away) == before);
            drop(volume);
            let error = rig.try_open(&[away]).await.err().expect("it missed writes");
            assert!(error.to_string().contains("generation"), "{error}");
        }
    });
}
