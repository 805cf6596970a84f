//! Power cuts while a scrub signs, and when what it signed is written to: nothing is ever put right
//! that was not wrong.

use crate::support::integrity::*;
use crate::support::machine::attempt;
use crate::support::{Random, STRIP, write};
use headpond_block::{BlockDevice, Buffer, Request};
use headpond_raid::Intent;
use headpond_raid::Level;
use headpond_raid::layout::{Strip, Stripe};
use headpond_sim::Ended;
use proptest::prelude::*;

/// A cut anywhere while regions are signed: the next scrub finds everything as it was.
#[test]
fn a_cut_while_signing_leaves_no_wrong_checksum() {
    for shape in [RAID5, RAID10] {
        for cut in (0..).step_by(7) {
            let random = Random::new(cut + 11);
            let signed = shape.signed(&random);
            let mut bytes = signed.bytes.clone();
            let new = random.bytes(4 * 4096);
            signed.machine.power.cut_after(cut);
            let present = signed.all();
            let ended = signed.machine.live(cut, &present, async |devices, _| {
                let array = attempt(devices).await.ok()?.array;
                write(&array, 0, &new).await.ok()?;
                array.scrub(async || true).await.ok()?;
                array.stop().await.ok()
            });
            let now = signed.live(async |array, _| whole(array).await);
            for start in (0..new.len()).step_by(512) {
                let sector = start..start + 512;
                assert!(
                    now[sector.clone()] == new[sector.clone()]
                        || now[sector.clone()] == bytes[sector]
                );
            }
            bytes[..new.len()].copy_from_slice(&now[..new.len()]);
            assert!(now == bytes);
            let report = signed.scrub();
            assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0), "cut {cut}");
            assert!(signed.live(async |array, _| whole(array).await) == bytes);
            if matches!(ended, Ended::Finished(_)) {
                break;
            }
        }
    }
}

/// The first write after signing is cut anywhere, and something is corrupted then: what a scrub
/// puts in its place was there.
#[test]
fn a_cut_in_the_first_write_after_signing_puts_back_nothing_that_was_not_there() {
    for shape in [RAID5, RAID10, RAID6] {
        for cut in 0.. {
            let random = Random::new(cut + 1);
            let signed = shape.signed(&random);
            let new = random.bytes(BLOCK);
            signed.machine.power.cut_after(cut);
            let present = signed.all();
            let ended = signed.machine.live(cut, &present, async |devices, _| {
                let array = attempt(devices).await.ok()?.array;
                let data = Buffer::from_slice(&new);
                array.submit(Request::write(0, data)).await.ok()?;
                array.submit(Request::flush()).await.ok()
            });
            let cell = match signed.layout.level().is_mirrored() {
                true => signed.layout.cell_of_copy(Stripe(0), 0),
                false => signed.layout.cell(Stripe(0), Strip::Data(1)),
            };
            signed.corrupt(cell, 0, &[3; 9]);
            signed.scrub();
            let now = signed.live(async |array, _| whole(array).await);
            let corrupted = |bytes: &[u8]| {
                bytes.iter().enumerate().map(|(at, it)| if at < 9 { it ^ 3 } else { *it }).collect()
            };
            let first: Vec<Vec<u8>> = [&signed.bytes[..BLOCK], &new[..]]
                .into_iter()
                .flat_map(|it| [it.to_vec(), corrupted(it)])
                .collect();
            let sectors = (0..BLOCK).step_by(512).map(|at| at..at + 512);
            for sector in sectors {
                let is_it = |one: &Vec<u8>| one[sector.clone()] == now[sector.clone()];
                assert!(first.iter().any(is_it), "cut {cut}");
            }
            let second = &signed.bytes[BLOCK..2 * BLOCK];
            let is_there =
                now[BLOCK..2 * BLOCK] == *second || now[BLOCK..2 * BLOCK] == corrupted(second);
            assert!(is_there, "cut {cut}");
            assert!(now[2 * BLOCK..] == signed.bytes[2 * BLOCK..], "cut {cut}");
            if matches!(ended, Ended::Finished(Some(()))) {
                break;
            }
        }
    }
}

/// Without an intent bitmap nothing else tells the next start that something was written.
#[test]
fn a_region_is_unsigned_stably_before_it_is_written_to() {
    let shape = Shape { intent: Intent::None, ..plain(Level::Raid1, 2, 1) };
    let signed = shape.signed(&Random::new(11));
    let present = signed.all();
    signed.machine.live(1, &present, async |devices, _| {
        let array = attempt(devices).await.ok()?.array;
        write(&array, 0, &[9; BLOCK]).await.ok()?;
        array.submit(Request::flush()).await.ok()?;
        signed.machine.power.cut();
        array.submit(Request::flush()).await.ok()
    });
    signed.live(async |array, _| {
        let (now, all) = regions(array);
        assert_eq!(now, all - 1);
        let report = scrub(array).await;
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        assert!(whole(array).await[..BLOCK] == [9; BLOCK]);
    });
}

/// The bitmap page of a write takes with it what a scrub has cleared elsewhere.
#[test]
fn checksums_are_stable_before_they_count() {
    for seed in 0..8 {
        let signed = RAID5.signed(&Random::new(seed + 14));
        signed.live(async |array, _| {
            write(array, 0, &[8; BLOCK]).await.expect("written");
        });
        let present = signed.all();
        signed.machine.live(seed, &present, async |devices, _| {
            let array = attempt(devices).await.ok()?.array;
            let cut = async || {
                let other = array.layout().stripe_start(Stripe(2 * REGION));
                write(&array, other, &[7; BLOCK]).await.expect("written");
                signed.machine.power.cut();
                false
            };
            array.scrub(cut).await.ok()
        });
        let report = signed.scrub();
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0), "seed {seed}");
    }
}

/// What each block may hold, of an array that is written to, corrupted, scrubbed and cut.
struct Possible(Vec<Vec<Vec<u8>>>);

impl Possible {
    fn check(&self, now: &[u8]) {
        for (block, (candidates, found)) in self.0.iter().zip(now.chunks(BLOCK)).enumerate() {
            for at in (0..BLOCK).step_by(512) {
                let is_it = |one: &Vec<u8>| one[at..at + 512] == found[at..at + 512];
                assert!(candidates.iter().any(is_it), "block {block}, byte {at}");
            }
        }
    }

    /// One life, which may be cut.
    fn live(&mut self, signed: &Signed, random: &Random) {
        let seed = random.below(u64::MAX);
        if random.below(2) == 0 {
            signed.machine.power.cut_after(random.below(600));
        }
        let present = signed.all();
        let tried = std::cell::RefCell::new(Vec::new());
        let ended = signed.machine.live(seed, &present, async |devices, _| {
            let array = attempt(devices).await.ok()?.array;
            for _ in 0..random.below(8) {
                if random.below(3) == 0 {
                    array.scrub(async || true).await.ok()?;
                    continue;
                }
                let (block, new) = (random.below(self.0.len() as u64), random.bytes(BLOCK));
                tried.borrow_mut().push((block as usize, new.clone()));
                write(&array, block * BLOCK as u64, &new).await.ok()?;
            }
            array.stop().await.ok()
        });
        let is_over = matches!(ended, Ended::Finished(Some(())));
        for (block, new) in tried.into_inner() {
            if is_over {
                self.0[block].clear();
            }
            self.0[block].push(new);
        }
    }

    /// A block somewhere is changed, and reads so from then on unless it is verified.
    fn corrupt(&mut self, signed: &Signed, random: &Random) {
        let stripe = random.below(signed.layout.stripes());
        let cells = signed.cells(stripe);
        let place = random.below(cells.len() as u64) as usize;
        let mut error = random.bytes(100);
        error[0] |= 1;
        signed.corrupt(cells[place], random.below(3000), &error);
        let strip = if signed.layout.level().is_mirrored() { 0 } else { place };
        if strip < signed.layout.data_strips() {
            let start = DATA + signed.layout.row_start(cells[place].row);
            let medium = &signed.machine.members[cells[place].role.index()];
            let block = stripe as usize * signed.layout.data_strips() + strip;
            self.0[block].push(medium.peek(start, STRIP as usize));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn nothing_is_ever_read_that_was_never_there(seed: u64, is_mirrored: bool) {
        let random = Random::new(seed);
        let signed = if is_mirrored { RAID10 } else { RAID5 }.signed(&random);
        let blocks = signed.bytes.chunks(BLOCK).map(|block| vec![block.to_vec()]);
        let mut possible = Possible(blocks.collect());
        for _ in 0..6 {
            possible.live(&signed, &random);
            for _ in 0..random.below(3) {
                possible.corrupt(&signed, &random);
            }
            possible.check(&signed.live(async |array, _| whole(array).await));
        }
        // Whatever is there by now, what is signed is kept.
        let now = signed.live(async |array, _| {
            let bytes = whole(array).await;
            write(array, 0, &bytes).await.expect("written");
            bytes
        });
        let report = signed.scrub();
        prop_assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        for stripe in 0..signed.layout.stripes() {
            signed.corrupt_some(stripe, 1, &random);
        }
        prop_assert!(signed.scrub().located_by_checksum >= signed.layout.stripes());
        prop_assert!(signed.live(async |array, _| whole(array).await) == now);
    }
}

/// Damage where nothing was being written does not become valid by a power cut.
#[test]
fn signed_regions_are_not_resynced_after_a_cut() {
    let without = |level, members| Shape { intent: Intent::None, ..plain(level, members, 1) };
    for shape in [RAID5, RAID6, RAID10, SPREAD, without(Level::Raid5, 4)] {
        let signed = shape.signed(&Random::new(17));
        let present = signed.all();
        let data = signed.bytes[..BLOCK].to_vec();
        signed.machine.live(1, &present, async |devices, _| {
            let array = attempt(devices).await.ok()?.array;
            // The intent bitmap marks the region for a while, and it is signed again.
            write(&array, 0, &data).await.ok()?;
            scrub(&array).await;
            assert_eq!(regions(&array).0, regions(&array).1);
            signed.machine.power.cut();
            array.submit(Request::flush()).await.ok()
        });
        signed.corrupt(signed.cells(1)[0], 30, &[1, 2, 3]);
        let report = signed.live(async |array, _| {
            array.initialise(async || true).await.expect("made anew");
            scrub(array).await
        });
        assert_eq!((report.located_by_checksum, report.unexplained_sectors), (1, 0), "{report:?}");
        signed.check_contents();
    }
}
