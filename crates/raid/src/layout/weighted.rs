//! Striping by weights: members that differ in size or speed have shares of the strips.
//!
//! A *round* is the shortest run of strips in which member i has as many as its weight. The strips
//! of a round are distributed so that after any number of them no member is a whole strip ahead of
//! or behind its share, so that neighbouring strips keep all members busy in proportion. Every
//! round is the same, and takes `weight` rows of each member.
//!
//! **Invariants**: a round has no common divisor; strips of an array address ascend on each member.
//! **Not here**: the speed of members (an input).
//! **Source**: R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980): of
//! those that are behind, the one whose next strip is due first.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Layout, LayoutError, Role, StripCell, Stripe};

/// The most members that can have weights: as many as the superblock has room for.
pub const WEIGHTED_MAX: usize = 36;
/// A weight by size is raised no further once so little of what could be used is lost.
const WASTE_SHARE: f64 = 0.005;
/// The largest weight that a speed is rounded to: what is measured is not known better than that.
const SPEED_WEIGHT_MAX: f64 = 16.0;

/// How an array without redundancy is distributed over its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Striping {
    /// As much on each member as on the smallest.
    #[default]
    Plain,
    /// On each member as much as it has space for.
    Capacity,
    /// By these weights, in the order of the members.
    #[serde(untagged)]
    Weighted(Weights),
}

/// The strips of each member in a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Weights(Vec<u8>);

/// The rounds, so that both ways can be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dealing {
    weights: Weights,
    /// The member of each strip of a round.
    member_of: Vec<u8>,
    /// Which of its member's strips that is.
    turn_of: Vec<u8>,
    /// The strips of a round that each member has, one member behind the other.
    strips: Vec<u16>,
    /// Where those of each begin.
    first: Vec<u16>,
}

impl Layout {
    /// Rows of strips on one member.
    pub fn rows_of_role(&self, role: Role) -> u64 {
        self.rows * self.weight(role)
    }

    /// The weight of a member; 1 where all have the same.
    pub fn weight(&self, role: Role) -> u64 {
        self.dealing.as_ref().map_or(1, |dealing| dealing.weights().of(role))
    }

    /// The largest weight of a member.
    pub fn weight_max(&self) -> u64 {
        self.weights().map_or(1, |weights| u64::from(weights.largest()))
    }

    /// Where members have weights.
    pub fn weights(&self) -> Option<&Weights> {
        Some(self.dealing.as_ref()?.weights())
    }

    /// Bytes of a stripe; where members have weights, whose stripes are strips, of a strip on each,
    /// since that keeps all of them busy.
    pub fn across_bytes(&self) -> u64 {
        match self.weights() {
            Some(_) => u64::from(self.strip_bytes) * self.members() as u64,
            None => self.stripe_bytes(),
        }
    }
}

impl Striping {
    /// The weights of members that have room for so many rows of strips; `None` where all get the
    /// same.
    ///
    /// # Errors
    /// Where the weights are not one for each.
    pub fn weights(&self, rows: &[u64]) -> Result<Option<Weights>, LayoutError> {
        let weights = match self {
            Striping::Plain => return Ok(None),
            Striping::Capacity if rows.len() > WEIGHTED_MAX => {
                return Err(LayoutError::Weights { weights: rows.len(), members: rows.len() });
            }
            Striping::Capacity => Weights::by_capacity(rows),
            Striping::Weighted(weights) => weights.reduced(),
        };
        if weights.0.len() != rows.len() {
            let (weights, members) = (weights.0.len(), rows.len());
            return Err(LayoutError::Weights { weights, members });
        }
        Ok(Some(weights).filter(|weights| weights.0.iter().any(|weight| *weight > 1)))
    }
}

impl Weights {
    /// Weights in the order of the members.
    ///
    /// # Errors
    /// Where there are none or too many, or one is zero.
    pub fn new(weights: Vec<u8>) -> Result<Weights, LayoutError> {
        if weights.is_empty() || weights.len() > WEIGHTED_MAX || weights.contains(&0) {
            let count = weights.len();
            return Err(LayoutError::Weights { weights: count, members: count });
        }
        Ok(Weights(weights))
    }

    /// By what members do in the same time, in any unit.
    ///
    /// # Errors
    /// Where there are too many.
    pub fn by_speed(speeds: &[f64]) -> Result<Weights, LayoutError> {
        let fastest = speeds.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let error = |top: f64| {
            let off = |speed: &f64| {
                let share = (speed / fastest * top).round().max(1.0) / top;
                (share / (speed / fastest).max(1.0 / SPEED_WEIGHT_MAX) - 1.0).abs()
            };
            speeds.iter().map(off).fold(0.0, f64::max)
        };
        let tops = (1..=SPEED_WEIGHT_MAX as u32).map(f64::from);
        let best = tops.clone().map(error).fold(f64::INFINITY, f64::min);
        // The shortest round that is nearly as true as the longest.
        let top = tops.clone().find(|top| error(*top) <= best + 0.05).unwrap_or(SPEED_WEIGHT_MAX);
        let weight = |speed: &f64| (speed / fastest * top).round().max(1.0) as u8;
        Ok(Weights::new(speeds.iter().map(weight).collect())?.reduced())
    }

    /// By the rows that members have room for: the shortest round that leaves next to nothing
    /// unused.
    fn by_capacity(rows: &[u64]) -> Weights {
        let largest = rows.iter().copied().max().unwrap_or(1).max(1);
        let scaled = |top: u64| {
            let weight = |rows: &u64| {
                let share = u128::from(*rows) * u128::from(top) / u128::from(largest);
                share.max(1) as u8
            };
            Weights(rows.iter().map(weight).collect())
        };
        let tops = 1..=u64::from(u8::MAX);
        let used = |top: u64| scaled(top).strips_used(rows);
        let best = tops.clone().map(used).max().unwrap_or(0) as f64;
        let is_enough = |top: &u64| used(*top) as f64 >= best * (1.0 - WASTE_SHARE);
        scaled(tops.clone().find(is_enough).unwrap_or(1)).reduced()
    }

    /// Rounds that fit on members with so many rows.
    pub fn rounds(&self, rows: &[u64]) -> u64 {
        let fit = |(rows, weight): (&u64, &u8)| rows / u64::from(*weight);
        rows.iter().zip(&self.0).map(fit).min().unwrap_or(0)
    }

    /// Strips of all members together that the array uses of so many rows.
    fn strips_used(&self, rows: &[u64]) -> u64 {
        self.rounds(rows) * self.total()
    }

    /// Strips of a round.
    pub fn total(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }

    /// The largest of them.
    pub fn largest(&self) -> u8 {
        self.0.iter().copied().max().expect("there is a member")
    }

    /// That of each member.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn of(&self, role: Role) -> u64 {
        u64::from(self.0[role.index()])
    }

    /// Without a common divisor.
    fn reduced(&self) -> Weights {
        let common = self.0.iter().fold(0, |a, b| divisor(a, *b));
        Weights(self.0.iter().map(|weight| weight / common.max(1)).collect())
    }
}

impl Dealing {
    pub(super) fn new(weights: Weights) -> Dealing {
        let count = weights.0.len();
        let member_of = deal(&weights);
        let mut dealt: Vec<Vec<u16>> = vec![Vec::new(); count];
        let mut turn_of = Vec::with_capacity(member_of.len());
        for (strip, member) in member_of.iter().enumerate() {
            let own = &mut dealt[usize::from(*member)];
            turn_of.push(own.len() as u8);
            own.push(strip as u16);
        }
        let mut first = Vec::with_capacity(count);
        let mut strips = Vec::with_capacity(member_of.len());
        for (own, weight) in dealt.iter().zip(&weights.0) {
            assert_eq!(own.len(), usize::from(*weight), "a round gives each its weight");
            first.push(strips.len() as u16);
            strips.extend(own);
        }
        Dealing { weights, member_of, turn_of, strips, first }
    }

    pub(super) fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Where the one strip of a stripe lies.
    pub(super) fn cell(&self, stripe: Stripe) -> StripCell {
        let strips = self.member_of.len() as u64;
        let (round, strip) = (stripe.0 / strips, (stripe.0 % strips) as usize);
        let role = Role(u16::from(self.member_of[strip]));
        StripCell { role, row: round * self.weights.of(role) + u64::from(self.turn_of[strip]) }
    }

    /// The stripe whose strip is in a cell.
    pub(super) fn stripe_in(&self, cell: StripCell) -> Stripe {
        let weight = self.weights.of(cell.role);
        let (round, turn) = (cell.row / weight, cell.row % weight);
        let strip = self.strips[usize::from(self.first[cell.role.index()]) + turn as usize];
        Stripe(round * self.member_of.len() as u64 + u64::from(strip))
    }
}

/// The member of each strip of a round.
fn deal(weights: &Weights) -> Vec<u8> {
    let (count, total) = (weights.0.len() as i64, weights.total() as i64);
    let scale = (2 * count - 2).max(1);
    let mut dealt = vec![0_i64; weights.0.len()];
    let mut round = Vec::with_capacity(total as usize);
    for strip in 1..=total {
        // By how much each is behind its share, in units of a strip over `scale * total`.
        let behind =
            |member: usize| scale * (i64::from(weights.0[member]) * strip - dealt[member] * total);
        let can_have = |member: &usize| {
            let is_left = dealt[*member] < i64::from(weights.0[*member]);
            is_left && (count == 1 || behind(*member) >= total)
        };
        // When it would be a strip behind: the sooner the smaller, by its weight.
        let due =
            |member: usize| (total * (scale - 1) - behind(member), i64::from(weights.0[member]));
        let first = |a: &usize, b: &usize| {
            let ((a, of_a), (b, of_b)) = (due(*a), due(*b));
            (a * of_b).cmp(&(b * of_a))
        };
        let member = (0..weights.0.len()).filter(can_have).min_by(first);
        let member = member.expect("those who are behind make up for those who are ahead");
        dealt[member] += 1;
        round.push(member as u8);
    }
    round
}

/// The greatest common divisor.
fn divisor(a: u8, b: u8) -> u8 {
    if b == 0 { a } else { divisor(b, a % b) }
}

impl TryFrom<Vec<u8>> for Weights {
    type Error = LayoutError;

    fn try_from(weights: Vec<u8>) -> Result<Self, LayoutError> {
        Self::new(weights)
    }
}

impl From<Weights> for Vec<u8> {
    fn from(Weights(weights): Weights) -> Self {
        weights
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&words.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, Strip};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn weights(weights: &[u8]) -> Weights {
        Weights::new(weights.to_vec()).unwrap()
    }

    fn some_weights() -> impl Strategy<Value = Weights> {
        let weight = prop_oneof![1_u8..6, 1_u8..=255];
        prop::collection::vec(weight, 1..12).prop_map(|it| Weights(it).reduced())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn every_cell_has_one_strip_and_every_strip_one_cell(
            weights in some_weights(), rounds in 1_u64..4,
        ) {
            let layout = Layout::weighted(weights.clone(), 4096, rounds << 12).unwrap();
            prop_assert_eq!(layout.stripes(), rounds * weights.total());
            let mut cells = BTreeSet::new();
            for stripe in (0..layout.stripes()).map(Stripe) {
                let cell = layout.cell(stripe, Strip::Data(0));
                prop_assert_eq!(layout.strip_in(cell), Some((stripe, Strip::Data(0))));
                prop_assert!(cell.row < layout.rows_of_role(cell.role));
                prop_assert!(cells.insert(cell));
            }
            let all: u64 = layout.group_roles(0).map(|role| layout.rows_of_role(role)).sum();
            prop_assert_eq!(cells.len() as u64, all);
        }

        #[test]
        fn no_member_is_a_whole_strip_ahead_of_or_behind_its_share(weights in some_weights()) {
            let (total, round) = (weights.total() as i64, deal(&weights));
            let mut dealt = vec![0_i64; weights.0.len()];
            for (strip, member) in (1..).zip(&round) {
                dealt[usize::from(*member)] += 1;
                for (dealt, weight) in dealt.iter().zip(&weights.0) {
                    let off = dealt * total - i64::from(*weight) * strip;
                    prop_assert!(off.abs() < total, "{}: {:?}", weights, round);
                }
            }
        }

        #[test]
        fn the_strips_of_a_member_ascend_with_the_address(weights in some_weights()) {
            let dealing = Dealing::new(weights.clone());
            let mut next = vec![0; weights.0.len()];
            for stripe in (0..3 * weights.total()).map(Stripe) {
                let StripCell { role, row } = dealing.cell(stripe);
                prop_assert_eq!(row, next[role.index()]);
                next[role.index()] += 1;
            }
        }

        #[test]
        fn by_size_next_to_nothing_is_left_unused(
            rows in prop::collection::vec(100_000_u64..1_000_000, 1..6),
        ) {
            let weights = Striping::Capacity.weights(&rows).unwrap();
            let used = match &weights {
                Some(weights) => weights.strips_used(&rows),
                None => rows.iter().min().unwrap() * rows.len() as u64,
            };
            let all: u64 = rows.iter().sum();
            prop_assert!(used * 100 >= all * 95, "{used} of {all} by {weights:?}");
        }
    }

    /// The layout is the format: whatever else changes, weights give this order.
    #[test]
    fn weights_give_the_same_order_for_ever() {
        assert_eq!(deal(&weights(&[3, 1])), [0, 0, 1, 0]);
        assert_eq!(deal(&weights(&[1, 2, 4])), [2, 1, 2, 2, 0, 1, 2]);
        assert_eq!(deal(&weights(&[5, 3])), [0, 1, 0, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn weights_by_size_are_the_smallest_that_do() {
        let by_size = |rows: &[u64]| {
            let weights = Striping::Capacity.weights(rows).unwrap();
            weights.map(|weights| weights.to_string())
        };
        assert_eq!(by_size(&[1000, 1000, 1000]), None, "all alike are striped plainly");
        assert_eq!(by_size(&[3000, 1000]).as_deref(), Some("3:1"));
        assert_eq!(by_size(&[2_000_000, 1_500_000, 500_000]).as_deref(), Some("4:3:1"));
        assert_eq!(by_size(&[1_000_000, 1]).as_deref(), Some("254:1"));
    }

    #[test]
    fn weights_by_speed_are_the_shortest_round_that_is_nearly_true() {
        let by_speed = |speeds: &[f64]| Weights::by_speed(speeds).unwrap().to_string();
        assert_eq!(by_speed(&[3000.0, 1010.0]), "3:1");
        assert_eq!(by_speed(&[7000.0, 3400.0, 7100.0]), "2:1:2");
        assert_eq!(by_speed(&[500.0, 500.0]), "1:1");
        assert_eq!(by_speed(&[10_000.0, 10.0]), "16:1");
        assert_eq!(by_speed(&[3000.0, 2000.0]), "3:2");
    }

    #[test]
    fn weights_that_cannot_be_are_refused_with_what_would_do() {
        let error = |weights: &[u8], rows: &[u64]| {
            let weights = Weights::new(weights.to_vec());
            let made = weights.and_then(|it| Striping::Weighted(it).weights(rows));
            made.unwrap_err().to_string()
        };
        for (weights, rows) in [(&[][..], &[][..]), (&[3, 0], &[9, 9]), (&[3, 1], &[9, 9, 9])] {
            let error = error(weights, rows);
            assert!(error.contains("one for each member, from 1 to 255"), "{error}");
        }
        let alike = Striping::Weighted(weights(&[4, 4])).weights(&[9, 9]).unwrap();
        assert_eq!(alike, None, "equal weights are plain striping");
        let small = Layout::weighted(weights(&[3, 1]), 4096, 4095);
        assert!(matches!(small, Err(LayoutError::MemberTooSmall { .. })));
    }
}
