//! What a scrub has signed, it can tell from what was changed underneath; what was written since,
//! it leaves alone.

use std::rc::Rc;

use crate::support;
use crate::support::integrity::*;
use crate::support::machine::{Devices, attempt};
use crate::support::{Random, options, read, write};
use headpond_block::{BlockDevice, ByteRange, Request};
use headpond_raid::integrity::{PAGE_BYTES, page_offset};
use headpond_raid::layout::{Role, StripCell};
use headpond_raid::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES, decode};
use headpond_raid::{CreateError, CreateOptions, Grown, Integrity, Level, Scrubbed, create};
use headpond_sim::Medium;
use uuid::Uuid;

#[test]
fn a_signed_block_changed_underneath_is_located_and_repaired() {
    for (index, shape) in SHAPES.into_iter().enumerate() {
        let random = Random::new(index as u64 + 1);
        let signed = shape.signed(&random);
        let redundancy = signed.layout.redundancy();
        for stripe in (0..signed.layout.stripes()).step_by(3) {
            signed.corrupt_some(stripe, redundancy, &random);
        }
        let report = signed.scrub();
        let strips = signed.layout.stripes().div_ceil(3) * redundancy as u64;
        assert!((strips..=2 * strips).contains(&report.located_by_checksum), "{report:?}");
        assert_eq!(report.corrected_sectors, report.located_by_checksum);
        assert_eq!((report.unexplained_sectors, report.unreadable_stripes), (0, 0));
        signed.check_contents();
        let again = signed.scrub();
        assert_eq!((again.corrected_sectors, again.unexplained_sectors), (0, 0));
    }
}

#[test]
fn a_scrub_signs_everything_and_a_write_unsigns_its_region_alone() {
    for shape in SHAPES {
        let signed = shape.written(&Random::new(1));
        signed.live(async |array, _| {
            let regions_all = array.layout().stripes().div_ceil(REGION);
            assert_eq!(regions(array), (0, regions_all));
            scrub(array).await;
            assert_eq!(regions(array), (regions_all, regions_all));
            write(array, 0, &[7; 512]).await.expect("written");
            assert_eq!(regions(array), (regions_all - 1, regions_all));
            write(array, 512, &[7; 512]).await.expect("written");
            assert_eq!(regions(array), (regions_all - 1, regions_all));
        });
        signed.live(async |array, _| {
            let (now, all) = regions(array);
            assert_eq!(now, all - 1, "a start knows it");
            let zeroes = ByteRange::at(0, array.layout().array_bytes());
            array.submit(Request::write_zeroes(zeroes)).await.expect("zeroed");
            assert_eq!(regions(array).0, 0);
        });
    }
}

#[test]
fn a_mismatch_in_an_unsigned_region_is_reported_and_not_guessed() {
    for shape in [RAID5, RAID10] {
        let signed = shape.signed(&Random::new(2));
        signed.live(async |array, _| {
            let data = read(array, 0, 4096).await.expect("read");
            write(array, 0, &data).await.expect("written");
        });
        signed.corrupt(signed.cells(1)[1], 0, &[1]);
        let before = signed.images();
        let report = signed.scrub();
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 1), "{report:?}");
        assert!(signed.images() == before);
        // Its region is signed when it fits again, and as a whole.
        signed.live(async |array, _| {
            assert_eq!(regions(array).0 + 1, regions(array).1);
            write(array, 0, &signed.bytes).await.expect("written");
            scrub(array).await;
            assert_eq!(regions(array).0, regions(array).1);
        });
        signed.corrupt(signed.cells(2)[0], 0, &[1]);
        let report = signed.scrub();
        assert_eq!((report.located_by_checksum, report.unexplained_sectors), (1, 0));
    }
}

#[test]
fn more_wrong_strips_than_the_redundancy_replaces_are_reported_and_left() {
    for shape in [RAID5, RAID6, RAID10] {
        let random = Random::new(3);
        let signed = shape.signed(&random);
        let count = signed.layout.redundancy() + 1;
        signed.corrupt_some(5, count, &random);
        let before = signed.images();
        let report = signed.scrub();
        assert_eq!(report.corrected_sectors, 0);
        assert!(report.unexplained_sectors > 0);
        assert!(signed.images() == before);
        // What was signed is known still: with one of them put back the others are made.
        let report = signed.scrub();
        assert!(report.unexplained_sectors > 0, "it is found again");
    }
}

#[test]
fn corruption_that_fits_the_parity_is_found_all_the_same() {
    let signed = RAID5.signed(&Random::new(4));
    let cells = signed.cells(9);
    signed.corrupt(cells[0], 64, &[5, 6]);
    signed.corrupt(cells[3], 64, &[5, 6]);
    let report = signed.scrub();
    assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 1));
}

#[test]
fn damaged_checksums_put_nothing_wrong() {
    let random = Random::new(5);
    for shape in [RAID5, RAID10, RAID6] {
        let signed = shape.signed(&random);
        for member in signed.all() {
            let medium = &signed.machine.members[member];
            let mut page = medium.peek(page_offset(0), PAGE_BYTES);
            page[70 + random.below(100) as usize] ^= 9;
            medium.poke(page_offset(0), &page);
        }
        let before = signed.images();
        let report = signed.scrub();
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        assert!(signed.images() == before);
        // They were recomputed.
        signed.corrupt_some(4, 1, &random);
        assert!(signed.scrub().located_by_checksum > 0);
        signed.check_contents();
    }
}

#[test]
fn a_re_added_or_new_member_has_no_valid_checksums() {
    for shape in SHAPES {
        let random = Random::new(6);
        let mut signed = shape.signed(&random);
        let spare = signed.layout.members();
        let new = random.bytes(3 * 4096);
        let whole_machine = signed.machine.all();
        signed.machine.live_to_the_end(&whole_machine[..spare], async |devices| {
            let returning = Rc::clone(&devices[1]);
            let array = attempt(devices).await.expect("assembled").array;
            array.fail(Role(1)).await.expect("failed");
            write(&array, 0, &new).await.expect("written");
            scrub(&array).await;
            array.re_add(returning, Uuid::from_u128(77)).await.expect("it comes back");
            scrub(&array).await;
            array.fill(Role(1), async || true).await.expect("filled");
            array.stop().await.expect("stopped");
        });
        signed.bytes[..new.len()].copy_from_slice(&new);
        signed.check_contents();
        let report = signed.scrub();
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        signed.corrupt_some(20, 1, &random);
        signed.corrupt_some(1, 1, &random);
        let report = signed.scrub();
        assert!(report.located_by_checksum > 1, "{report:?}");
        signed.check_contents();
    }
}

#[test]
fn a_device_vouches_for_nothing_that_it_held_in_another_place() {
    let signed = RAID5.signed(&Random::new(12));
    let all = signed.machine.all();
    let bytes = signed.machine.live_to_the_end(&all, async |mut devices| {
        let spare = devices.pop().expect("a spare disk");
        let first = Rc::clone(&devices[1]);
        let array = attempt(devices).await.expect("assembled").array;
        for (role, device) in [(Role(1), spare), (Role(2), first)] {
            array.fail(role).await.expect("failed");
            let uuid = Uuid::from_u128(100 + u128::from(role.0));
            array.add_spare(device, uuid).await.expect("it joins");
            array.assign_spare(role, Some(uuid)).await.expect("assigned");
            array.fill(role, async || true).await.expect("filled");
        }
        assert_eq!(regions(&array), (3, 3));
        let report = scrub(&array).await;
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        whole(&array).await
    });
    assert!(bytes == signed.bytes);
}

#[test]
fn a_block_reconstructed_from_a_wrong_unverified_strip_is_not_written() {
    let signed = RAID5.signed(&Random::new(13));
    let all = signed.machine.all();
    signed.machine.live_to_the_end(&all, async |mut devices| {
        let spare = devices.pop().expect("a spare disk");
        let array = attempt(devices).await.expect("assembled").array;
        array.fail(Role(1)).await.expect("failed");
        array.add_spare(spare, Uuid::from_u128(100)).await.expect("it joins");
        array.assign_spare(Role(1), None).await.expect("assigned");
        array.fill(Role(1), async || true).await.expect("filled");
        let new = StripCell { role: Role(4), row: 17 };
        signed.corrupt(new, 0, &[1]);
        signed.corrupt(StripCell { role: Role(3), row: 17 }, 0, &[2]);
        let before = signed.images();
        let report = scrub(&array).await;
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 1));
        assert!(signed.images() == before);
    });
}

#[test]
fn distributed_spare_space_has_no_checksums_and_signs_nothing() {
    let random = Random::new(7);
    let signed = SPREAD.written(&random);
    signed.live(async |array, _| {
        array.fail(Role(2)).await.expect("failed");
        let role = array.lend_slot().await.expect("lent").expect("one is free");
        array.fill_slot(role, async || true).await.expect("filled");
        let report = scrub(array).await;
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        assert_eq!(regions(array).0, 0);
        assert!(whole(array).await == signed.bytes);
    });
}

#[test]
fn a_write_behind_the_scrub_leaves_its_region_unsigned() {
    for shape in [RAID5, plain(Level::Raid1, 2, 1)] {
        let signed = shape.written_in(&Random::new(8), ROWS);
        signed.live(async |array, _| {
            let mut turns = 0;
            let behind = async || {
                turns += 1;
                if turns == 1 {
                    write(array, 0, &[1; 512]).await.expect("written");
                }
                true
            };
            assert_eq!(array.scrub(behind).await, Ok(Scrubbed::Whole));
            assert_eq!(regions(array), (0, 1));
            scrub(array).await;
            assert_eq!(regions(array), (1, 1));
        });
    }
}

#[test]
fn a_scrub_that_was_left_in_a_region_signs_it_and_begins_it_anew_after_a_start() {
    let signed = RAID5.written_in(&Random::new(9), ROWS);
    signed.live(async |array, _| {
        assert_eq!(array.scrub(async || false).await, Ok(Scrubbed::Paused));
        assert_eq!(scrub(array).await.stripes, ROWS);
        assert_eq!(regions(array), (1, 1));
        write(array, 0, &[1; 512]).await.expect("written");
        assert_eq!(array.scrub(async || false).await, Ok(Scrubbed::Paused));
    });
    signed.live(async |array, _| {
        assert_eq!(scrub(array).await.stripes, ROWS);
        assert_eq!(regions(array), (1, 1));
    });
}

#[test]
fn level_0_is_refused_and_small_members_are_told() {
    support::run(1, |runtime| async move {
        let members = support::as_devices(&support::devices(3, ROWS, &runtime));
        let with = |level| CreateOptions { integrity: Integrity::Region, ..options(level, 1) };
        let refused = create(&members, &with(Level::Raid0)).await;
        assert_eq!(refused, Err(CreateError::IntegrityWithoutRedundancy));
        let refused = create(&members, &with(Level::Raid5)).await;
        assert!(matches!(refused, Err(CreateError::TooSmall { data_offset: DATA, .. })));
    });
}

#[test]
fn a_reshape_invalidates_checksums_and_the_next_scrub_signs_again() {
    for shape in [RAID5, RAID6] {
        let random = Random::new(9);
        let signed = shape.signed(&random);
        let machine = &signed.machine;
        machine.live_to_the_end(&machine.all(), async |devices| {
            begin_to_grow(devices).await;
        });
        machine.live_to_the_end(&machine.all(), async |devices| {
            let array = attempt(devices).await.expect("assembled").array;
            assert_eq!(regions(&array), (0, 1), "both shapes have one bitmap");
            write(&array, 512, &signed.bytes[512..9216]).await.expect("written");
            assert_eq!(array.grow(async || true).await, Ok(Grown::Whole));
            assert_eq!(regions(&array), (0, 1));
            array.stop().await.expect("stopped");
        });
        let layout = machine.live_to_the_end(&machine.all(), async |devices| {
            let array = attempt(devices).await.expect("assembled").array;
            assert_eq!(regions(&array), (0, 1), "a start knows it");
            let report = scrub(&array).await;
            assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
            assert_eq!(regions(&array), (1, 1));
            array.stop().await.expect("stopped");
            array.layout().clone()
        });
        let signed = Signed { layout, ..signed };
        let redundancy = signed.layout.redundancy();
        signed.corrupt_some(signed.layout.stripes() / 2, redundancy, &random);
        let report = signed.scrub();
        assert!(report.located_by_checksum >= redundancy as u64, "{report:?}");
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (redundancy as u64, 0));
        let bytes = signed.live(async |array, _| whole(array).await);
        assert!(bytes[..signed.bytes.len()] == signed.bytes, "all is as it was written");
    }
}

/// Has the array grow by the last disk, as far as the superblocks that say so.
async fn begin_to_grow(mut devices: Devices) {
    let device = devices.pop().expect("a spare disk");
    let array = attempt(devices).await.expect("assembled").array;
    let addition = headpond_raid::Addition { device, uuid: Uuid::from_u128(9) };
    array.begin_reshape(&[addition]).await.expect("nothing speaks against it");
    array.stop().await.expect("stopped");
}

#[test]
fn the_superblocks_say_that_there_is_a_region() {
    let signed = RAID5.signed(&Random::new(10));
    let newest = |medium: &Medium| {
        let copies = COPY_OFFSETS.map(|offset| decode(&medium.peek(offset, SUPERBLOCK_BYTES)).ok());
        copies.into_iter().flatten().max_by_key(|copy| copy.sequence).expect("a superblock")
    };
    let record = newest(&signed.machine.members[0]).array;
    assert_eq!(record.integrity_region_stripes, Some(REGION));
}
