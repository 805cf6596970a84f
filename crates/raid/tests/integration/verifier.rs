//! Where data and redundancy do not match, a layer above the array that knows what some blocks
//! ought to hold is asked, and what he says decides who is wrong.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::support::Random;
use crate::support::integrity::*;
use headpond_block::ByteRange;
use headpond_raid::{Answer, ContentVerifier, ScrubReport};
use proptest::prelude::*;

/// Knows some blocks of what was written.
#[derive(Default)]
struct Told {
    sums: RefCell<Vec<Option<u32>>>,
    asked: Cell<u64>,
}

impl ContentVerifier for Told {
    fn checksums(&self, range: ByteRange) -> Answer<'_> {
        self.asked.set(self.asked.get() + 1);
        let blocks = (range.start() / 4096) as usize..(range.end() / 4096) as usize;
        Box::pin(async move { self.sums.borrow()[blocks].to_vec() })
    }
}

impl Told {
    fn of(signed: &Signed, is_known: impl Fn(u64) -> bool) -> Rc<Self> {
        let sum = |block: &[u8]| {
            let kind = crc_fast::CrcAlgorithm::Crc32Iscsi;
            crc_fast::checksum(kind, block) as u32
        };
        let blocks = (0..).zip(signed.bytes.chunks_exact(BLOCK));
        let sums = blocks.map(|(block, bytes)| is_known(block).then(|| sum(bytes)));
        Rc::new(Self { sums: RefCell::new(sums.collect()), asked: Cell::default() })
    }
}

fn scrub_told(signed: &Signed, told: &Rc<Told>) -> ScrubReport {
    signed.live(async |array, _| {
        array.trust(Some(Rc::<Told>::clone(told)));
        scrub(array).await
    })
}

/// Strips here are of one block, so a stripe's data strips are its blocks in their order.
fn block_of(signed: &Signed, stripe: u64, strip: u64) -> u64 {
    stripe * (signed.layout.stripe_bytes() / BLOCK as u64) + strip
}

#[test]
fn wrong_blocks_that_are_known_are_made_from_the_others() {
    for shape in SHAPES {
        let random = Random::new(1);
        let signed = shape.written(&random);
        signed.corrupt(signed.cells(5)[0], 100, &random.bytes(50));
        let told = Told::of(&signed, |block| block == block_of(&signed, 5, 0));
        let report = scrub_told(&signed, &told);
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (1, 0), "{report:?}");
        assert_eq!((report.located_by_checksum, told.asked.get()), (1, 1));
        signed.check_contents();
        assert_eq!(signed.scrub().corrected_sectors, 0);
    }
}

#[test]
fn parity_is_wrong_where_all_data_is_known_to_be_right() {
    let random = Random::new(2);
    let signed = RAID5.written(&random);
    let before = signed.images();
    let parity = signed.cells(7).len() - 1;
    signed.corrupt(signed.cells(7)[parity], 0, &random.bytes(4096));
    let report = scrub_told(&signed, &Told::of(&signed, |_| true));
    assert_eq!((report.located_by_checksum, report.unexplained_sectors), (8, 0));
    assert!(signed.images() == before);
}

#[test]
fn one_known_block_of_two_wrong_strips_is_enough_for_raid_6() {
    let random = Random::new(3);
    let strips = RAID6.written(&random).cells(0).len();
    for other in 1..strips {
        let signed = RAID6.written(&random);
        let before = signed.images();
        let cells = signed.cells(3);
        for cell in [cells[0], cells[other]] {
            let mut error = random.bytes(30);
            error[0] |= 1;
            signed.corrupt(cell, 1000, &error);
        }
        let told = Told::of(&signed, |block| block == block_of(&signed, 3, 0));
        let report = scrub_told(&signed, &told);
        assert_eq!(report.unexplained_sectors, 0, "with strip {other}: {report:?}");
        assert!(signed.images() == before, "with strip {other}");
    }
}

#[test]
fn the_verifier_is_not_asked_where_all_matches() {
    for shape in SHAPES {
        let signed = shape.written(&Random::new(4));
        let told = Told::of(&signed, |_| true);
        let report = scrub_told(&signed, &told);
        assert_eq!((told.asked.get(), report.corrected_sectors), (0, 0));
    }
}

#[test]
fn a_wrong_verifier_causes_a_finding_and_no_damage() {
    for shape in SHAPES {
        let random = Random::new(5);
        let signed = shape.written(&random);
        // As where the cache was faster than the array.
        let told = Told::of(&signed, |_| true);
        told.sums.borrow_mut()[block_of(&signed, 2, 0) as usize] = Some(77);
        let last = signed.cells(2).len() - 1;
        signed.corrupt(signed.cells(2)[last], 0, &[1]);
        let before = signed.images();
        let report = scrub_told(&signed, &told);
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 1), "{report:?}");
        assert!(signed.images() == before);
    }
}

fn corrupted(signed: &Signed, stripes: &[(u64, usize, usize)], random: &Random) {
    for (stripe, first, count) in stripes {
        let cells = signed.cells(stripe % signed.layout.stripes());
        for turn in 0..*count {
            let mut error = random.bytes(100);
            error[0] |= 1;
            signed.corrupt(cells[(first + turn) % cells.len()], 700, &error);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every block is, after a scrub, what it was before or what was written; and whoever is known
    /// to be wrong alone in its stripe is put right.
    #[test]
    fn blocks_are_put_right_or_left_alone(
        shape in 0..SHAPES.len(),
        stripes in proptest::collection::vec((any::<u64>(), 0usize..8, 1usize..3), 1..6),
        known in proptest::collection::vec(any::<bool>(), 64),
        seed in any::<u64>(),
    ) {
        let random = Random::new(seed);
        let signed = SHAPES[shape].written(&random);
        let right = signed.images();
        corrupted(&signed, &stripes, &random);
        let wrong = signed.images();
        let told = Told::of(&signed, |block| known[block as usize % known.len()]);
        scrub_told(&signed, &told);
        let after = signed.images();
        let mut left = BTreeSet::new();
        for (member, image) in after.iter().enumerate() {
            for (row, block) in image.chunks_exact(BLOCK).enumerate() {
                let place = row * BLOCK..(row + 1) * BLOCK;
                let is_right = block == &right[member][place.clone()];
                prop_assert!(is_right || block == &wrong[member][place], "made up");
                if !is_right {
                    left.insert((member, row as u64));
                }
            }
        }
        for stripe in 0..signed.layout.stripes() {
            let cells = signed.cells(stripe);
            let is_left = |cell: &headpond_raid::layout::StripCell| {
                left.contains(&(cell.role.index(), cell.row))
            };
            let wrong: Vec<usize> = (0..cells.len()).filter(|it| is_left(&cells[*it])).collect();
            if let [only] = wrong[..] {
                let is_mirror = signed.layout.level().is_mirrored();
                let data = signed.layout.data_strips();
                let strip = if is_mirror { 0 } else { only };
                let is_known = strip < data && {
                    let block = block_of(&signed, stripe, strip as u64);
                    known[block as usize % known.len()]
                };
                prop_assert!(!is_known, "stripe {stripe} could have been put right");
            }
        }
    }
}
