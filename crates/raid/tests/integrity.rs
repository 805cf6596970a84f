//! What a scrub has signed, it can tell from what was changed underneath; what was written since,
//! it leaves alone.

mod support;

use std::rc::Rc;

use headpond_block::{BlockDevice, Buffer, ByteRange, Request};
use headpond_raid::integrity::{PAGE_BYTES, page_offset};
use headpond_raid::layout::{Layout, Role, Strip, StripCell, Stripe};
use headpond_raid::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES, decode};
use headpond_raid::{
    Array, CreateError, CreateOptions, Integrity, Intent, Level, ScrubReport, Scrubbed, Spread,
    create,
};
use headpond_sim::{Ended, Medium, Power};
use proptest::prelude::*;
use support::machine::{Devices, Machine, attempt};
use support::{Random, STRIP, options, read, write};
use uuid::Uuid;

const ROWS: u64 = 24;
/// Stripes to a region.
const REGION: u64 = 8;
/// Where the data of so small members begins.
const DATA: u64 = 2 << 20;
const BLOCK: usize = 4096;

#[derive(Clone, Copy)]
struct Shape {
    level: Level,
    members: usize,
    groups: usize,
    spread: Option<Spread>,
}

const fn plain(level: Level, members: usize, groups: usize) -> Shape {
    Shape { level, members, groups, spread: None }
}

const RAID5: Shape = plain(Level::Raid5, 4, 1);
const RAID6: Shape = plain(Level::Raid6, 6, 1);
const RAID10: Shape = plain(Level::Raid10, 4, 2);
const SPREAD: Shape = Shape {
    level: Level::Raid6,
    members: 8,
    groups: 1,
    spread: Some(Spread { width: 5, spares: 1 }),
};
const SHAPES: [Shape; 6] =
    [RAID5, RAID6, RAID10, plain(Level::Raid1, 2, 1), plain(Level::Raid50, 6, 2), SPREAD];

/// An array on disks whose power can be cut, and what was written to it.
struct Signed {
    machine: Machine,
    layout: Layout,
    bytes: Vec<u8>,
}

impl Shape {
    fn options(self) -> CreateOptions {
        CreateOptions {
            declustered: self.spread,
            intent: Intent::Bitmap,
            integrity: Integrity::Region,
            ..options(self.level, self.groups)
        }
    }

    /// Full of data that nobody has looked at yet, and a spare disk.
    fn written(self, random: &Random) -> Signed {
        self.written_in(random, REGION)
    }

    fn written_in(self, random: &Random, region: u64) -> Signed {
        let disk = |index| Medium::flushable(format!("m{index}").as_str(), DATA + ROWS * 4096);
        let members = (0..=self.members).map(disk).map(Rc::new).collect();
        let machine = Machine { members, power: Power::on() };
        let all: Vec<usize> = (0..self.members).collect();
        machine.live_to_the_end(&all, async |devices| {
            let record = create(&devices, &self.options()).await.expect("created");
            assert_eq!(record.data_offset, DATA);
        });
        machine.refine(region);
        let (layout, bytes) = machine.live_to_the_end(&all, async |devices| {
            let array = attempt(devices).await.expect("assembled").array;
            let bytes = random.bytes(array.layout().array_bytes() as usize);
            write(&array, 0, &bytes).await.expect("written");
            array.stop().await.expect("stopped");
            (array.layout().clone(), bytes)
        });
        Signed { machine, layout, bytes }
    }

    fn signed(self, random: &Random) -> Signed {
        let signed = self.written(random);
        let report = signed.scrub();
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        signed
    }
}

impl Signed {
    fn all(&self) -> Vec<usize> {
        (0..self.layout.members()).collect()
    }

    fn live<T>(&self, life: impl AsyncFnOnce(&Array, Devices) -> T) -> T {
        self.machine.live_to_the_end(&self.all(), async |devices| {
            let others = Devices::new(devices.to_vec(), &devices.runtime);
            let array = attempt(devices).await.expect("assembled").array;
            let outcome = life(&array, others).await;
            array.stop().await.expect("stopped");
            outcome
        })
    }

    fn scrub(&self) -> ScrubReport {
        self.live(async |array, _| scrub(array).await)
    }

    fn check_contents(&self) {
        let bytes = self.live(async |array, _| whole(array).await);
        assert!(bytes == self.bytes, "all is as it was written");
    }

    /// Changes bytes that nobody is told of.
    fn corrupt(&self, cell: StripCell, at: u64, error: &[u8]) {
        let start = DATA + self.layout.row_start(cell.row) + at;
        let medium = &self.machine.members[cell.role.index()];
        let old = medium.peek(start, error.len());
        let new: Vec<u8> = old.iter().zip(error).map(|(old, error)| old ^ error).collect();
        medium.poke(start, &new);
    }

    /// Where the strips of a stripe lie, or its copies.
    fn cells(&self, stripe: u64) -> Vec<StripCell> {
        let stripe = Stripe(stripe);
        match self.layout.level().is_mirrored() {
            true => (0..self.layout.copies())
                .map(|copy| self.layout.cell_of_copy(stripe, copy))
                .collect(),
            false => self.layout.strips().map(|it| self.layout.cell(stripe, it)).collect(),
        }
    }

    /// Corrupts so many strips of a stripe in the same sector, chosen at random.
    fn corrupt_some(&self, stripe: u64, count: usize, random: &Random) {
        let cells = self.cells(stripe);
        let first = random.below(cells.len() as u64) as usize;
        for turn in 0..count {
            let mut error = random.bytes(100);
            error[0] |= 1;
            self.corrupt(cells[(first + turn) % cells.len()], 700, &error);
        }
    }

    fn images(&self) -> Vec<Vec<u8>> {
        let image = |member: &Rc<Medium>| member.peek(DATA, (ROWS * 4096) as usize);
        self.machine.members.iter().map(image).collect()
    }
}

async fn scrub(array: &Array) -> ScrubReport {
    assert_eq!(array.scrub(async || true).await, Ok(Scrubbed::Whole));
    array.status().scrub
}

async fn whole(array: &Array) -> Vec<u8> {
    read(array, 0, array.layout().array_bytes() as usize).await.expect("read")
}

fn regions(array: &Array) -> (u64, u64) {
    let integrity = array.status().integrity.expect("there is an integrity region");
    (integrity.regions_signed, integrity.regions)
}

#[test]
fn what_was_signed_and_changed_underneath_is_located_and_put_right() {
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
fn what_was_written_since_is_reported_and_not_guessed() {
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
        // Everything else in that region is signed.
        signed.corrupt(signed.cells(2)[0], 0, &[1]);
        let report = signed.scrub();
        assert_eq!((report.located_by_checksum, report.unexplained_sectors), (1, 1));
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
        // They were made anew.
        signed.corrupt_some(4, 1, &random);
        assert!(signed.scrub().located_by_checksum > 0);
        signed.check_contents();
    }
}

#[test]
fn whoever_comes_back_or_takes_a_place_vouches_for_nothing_that_it_held() {
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
            let behind = async || {
                write(array, 0, &[1; 512]).await.expect("written");
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
fn growing_is_refused() {
    let signed = RAID5.signed(&Random::new(9));
    let all = signed.machine.all();
    signed.machine.live_to_the_end(&all, async |mut devices| {
        let device = devices.pop().expect("a spare disk");
        let array = attempt(devices).await.expect("assembled").array;
        let addition = headpond_raid::Addition { device, uuid: Uuid::from_u128(9) };
        let refused = array.consider_growth(&[addition]);
        assert!(matches!(refused, Err(headpond_raid::GrowError::Integrity { .. })));
    });
}

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

    /// A block somewhere is changed, and reads so from then on unless somebody knows better.
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
