//! Base permutations under which a rebuild loads all members evenly.
//!
//! Rotated through all members, a base makes two members share as many stripes as it has pairs of
//! columns of one stripe at their distance. So only distances count. Bases are selected one after
//! the other, each the candidate that makes the sum so far the most even; later ones compensate for
//! earlier ones.
//!
//! The result is recorded with the array: a better search does not change existing arrays.
//!
//! **Source**: the aim is that of the difference sets in Holland and Gibson 1992 and of PDDL; they
//! construct, this searches, since any shape is allowed.

use super::spread::{BASES_MAX, Spread, permutation};
use crate::level::Level;

/// The maximum of seeds tried for each base.
const CANDIDATES_MAX: usize = 256;
/// Pairs evaluated for each base, over all seeds: where a band has many, few seeds suffice.
const PAIRS_MAX: usize = 1 << 20;

/// Seeds of bases that are good for so many members; the spread was checked.
pub(super) fn seeds(level: Level, members: usize, spread: Spread) -> Vec<u32> {
    let pairs = pairs(level, members, spread);
    let count = (PAIRS_MAX / pairs.len()).clamp(16, CANDIDATES_MAX) as u32;
    let mut sum = vec![0; members];
    let seeds = (0..BASES_MAX as u32).map(|base| {
        let candidates = base * count..(base + 1) * count;
        let with = |seed| added(&sum, &permutation(seed, members), &pairs);
        let unevenness = |seed: &u32| with(*seed).iter().map(|work| work * work).sum::<u64>();
        let seed = candidates.min_by_key(unevenness).expect("there are candidates");
        sum = with(seed);
        seed
    });
    seeds.collect()
}

/// Pairs of columns of which the second is read when the first is lost, or written as the first
/// slot of spare space, in one band.
fn pairs(level: Level, members: usize, spread: Spread) -> Vec<(u8, u8)> {
    let (width, columns) = (usize::from(spread.width), members - usize::from(spread.spares));
    let data = width - usize::from(level.parity());
    let (rows, stripes) = spread.band(members as u64);
    let column = |stripe: usize, place: usize| ((stripe * width + place) % columns) as u8;
    let of_stripe = |stripe: usize| {
        let lost = (0..width).map(move |place| (place, if place < data { data + 1 } else { data }));
        lost.flat_map(move |(place, read)| {
            let others = (0..read).filter(move |other| *other != place);
            others.map(move |other| (column(stripe, place), column(stripe, other)))
        })
    };
    let written = (0..rows).flat_map(|_| (0..columns).map(|lost| (lost as u8, columns as u8)));
    let written = written.filter(|_| spread.spares > 0);
    (0..stripes as usize).flat_map(of_stripe).chain(written).collect()
}

/// Reads and writes at each distance from the member that is lost, when a base is added.
fn added(sum: &[u64], base: &[u8], pairs: &[(u8, u8)]) -> Vec<u64> {
    let mut sum = sum.to_vec();
    for (lost, read) in pairs {
        let (lost, read) = (base[usize::from(*lost)], base[usize::from(*read)]);
        let distance = usize::from(read) + sum.len() - usize::from(lost);
        let distance = if distance >= sum.len() { distance - sum.len() } else { distance };
        sum[distance] += 1;
    }
    sum
}
