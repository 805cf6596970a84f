//! The volume record on the members of an array.

use std::cell::Cell;

use crate::support::machine::*;
use crate::support::*;
use headpond_raid::layout::Role;
use headpond_raid::superblock::RoleState;
use headpond_raid::volume_record::TEXT_BYTES_MAX;
use headpond_raid::{Addition, Array, CreateOptions, Grown, Intent, Level, volume_record_of};
use headpond_sim::Ended;
use uuid::Uuid;

const SPARE: Uuid = Uuid::from_u128(77);

/// The number that the record of an array is; 0 without one.
fn number(array: &Array) -> u64 {
    let record = array.volume_record();
    record.map_or(0, |text| String::from_utf8_lossy(&text).trim_end().parse().unwrap())
}

/// As long as they come, so that a cut tears one.
fn text_of(number: u64) -> Vec<u8> {
    let mut text = number.to_string().into_bytes();
    text.resize(TEXT_BYTES_MAX - number as usize, b' ');
    text
}

#[test]
fn wherever_the_power_is_cut_a_record_is_the_old_one_or_the_new_one() {
    for (level, count) in [(Level::Raid0, 2), (Level::Raid1, 2), (Level::Raid5, 3)] {
        let mut cut_at = 0;
        loop {
            let machine = Machine::with_array(count, level);
            let [begun, written] = [Cell::new(0), Cell::new(0)];
            machine.power.cut_after(cut_at);
            let ended = machine.live(cut_at + 1, &machine.all(), async |devices, _| {
                for life in 0..3 {
                    let list = Devices::new(devices.to_vec(), &devices.runtime);
                    let array = attempt(list).await.unwrap().array;
                    for write in 1..=3 {
                        begun.set(life * 3 + write);
                        array.write_volume_record(&text_of(begun.get())).await.unwrap();
                        written.set(begun.get());
                    }
                    array.stop().await.unwrap();
                }
            });
            let context = format!("{level}, cut at {cut_at}");
            machine.live_to_the_end(&machine.all(), async |devices| {
                let array = attempt(devices).await.unwrap().array;
                let found = number(&array);
                assert!((written.get()..=begun.get()).contains(&found), "{context}: {found}");
                array.write_volume_record(&text_of(10)).await.unwrap();
                array.stop().await.unwrap();
            });
            machine.live_to_the_end(&machine.all(), async |devices| {
                assert_eq!(number(&attempt(devices).await.unwrap().array), 10, "{context}");
            });
            if matches!(ended, Ended::Finished(())) {
                break;
            }
            cut_at += 1;
        }
        assert!(cut_at > 20, "{level}: {cut_at}");
    }
}

#[test]
fn a_member_that_was_left_out_has_no_say_and_one_that_joins_is_given_the_next() {
    run(1, |runtime| async move {
        let members = devices(4, 8, &runtime);
        let array = new_array(&members[..3], &options(Level::Raid5, 1)).await;
        array.write_volume_record(b"1").await.unwrap();
        array.fail(Role(2)).await.unwrap();
        array.write_volume_record(b"2").await.unwrap();
        array.add_spare(members[3].clone(), SPARE).await.unwrap();
        assert_eq!(volume_record_of(&*members[3], array.uuid()).await, None);
        array.write_volume_record(b"3").await.unwrap();
        array.stop().await.unwrap();
        let of = async |member: usize| {
            let record = volume_record_of(&*members[member], array.uuid()).await.unwrap();
            String::from_utf8(record.text).unwrap()
        };
        assert_eq!([of(0).await, of(1).await, of(2).await, of(3).await], ["3", "3", "1", "3"]);
        assert_eq!(number(&start(&members).await.array), 3);
    });
}

#[test]
fn a_member_that_cannot_take_the_record_is_failed_and_the_others_have_it() {
    run(1, |runtime| async move {
        let members = devices(3, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid5, 1)).await;
        members[1].writes_left.set(0);
        array.write_volume_record(b"7").await.unwrap();
        assert_eq!(array.status().members[1].state, RoleState::Failed);
        members[2].writes_left.set(0);
        assert!(array.write_volume_record(b"8").await.is_err(), "too many are lost");
        assert_eq!(number(&array), 7);
    });
}

#[test]
fn a_reshape_keeps_the_record_in_every_state_of_it() {
    run(1, |runtime| async move {
        let members = devices(4, 40, &runtime);
        let options = CreateOptions { intent: Intent::Bitmap, ..options(Level::Raid5, 1) };
        let array = new_array(&members[..3], &options).await;
        array.write_volume_record(b"1").await.unwrap();
        let addition = Addition { device: members[3].clone(), uuid: SPARE };
        array.begin_reshape(&[addition]).await.unwrap();
        array.stop().await.unwrap();
        let array = start(&members).await.array;
        assert_eq!(number(&array), 1, "as it was before");
        array.write_volume_record(b"2").await.unwrap();
        array.stop().await.unwrap();
        let array = start(&members).await.array;
        assert_eq!(number(&array), 2, "while both shapes are there");
        assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
        array.write_volume_record(b"3").await.unwrap();
        array.stop().await.unwrap();
        for member in &members {
            let record = volume_record_of(&**member, array.uuid()).await.unwrap();
            assert_eq!(record.text, b"3");
        }
        assert_eq!(number(&start(&members).await.array), 3);
    });
}
