//! A place on the turning disk, as a fraction of one turn.
//!
//! In 2^-64 of a turn, wrapping: skews add up over thousands of cylinders without an error that
//! could be seen in a nanosecond.

/// How far behind the index mark something lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Angle(u64);

impl Angle {
    /// `numerator / denominator` turns; whole turns do not count.
    pub(super) fn fraction(numerator: u64, denominator: u64) -> Self {
        assert!(denominator > 0, "a fraction of nothing");
        let rest = u128::from(numerator % denominator);
        Self(((rest << 64) / u128::from(denominator)) as u64)
    }

    /// `count` of `per_turn` equal parts, which need not be whole.
    pub(super) fn parts(count: f64, per_turn: u32) -> Self {
        let turns = (count / f64::from(per_turn)).rem_euclid(1.0);
        Self((turns * 2f64.powi(64)) as u64)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    pub(super) fn times(self, count: u64) -> Self {
        Self(self.0.wrapping_mul(count))
    }

    /// The time that the disk takes to turn as far.
    pub(super) fn nanos(self, turn_ns: u64) -> u64 {
        ((u128::from(self.0) * u128::from(turn_ns)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN_NS: u64 = 8_333_333;

    #[test]
    fn skews_add_up_to_whole_turns() {
        let skew = Angle::parts(86.0, 256);
        let once = skew.nanos(TURN_NS);
        assert_eq!(once, TURN_NS * 86 / 256);
        let around = skew.times(256_000).plus(Angle::parts(3.0, 256)).nanos(TURN_NS);
        assert!(around.abs_diff(TURN_NS * 3 / 256) <= 1, "{around}");
    }

    #[test]
    fn parts_and_fractions_agree() {
        for (count, per_turn) in [(0, 7), (5, 7), (390, 390), (391, 390)] {
            let a = Angle::fraction(count, per_turn.into()).nanos(TURN_NS);
            let b = Angle::parts(count as f64, per_turn).nanos(TURN_NS);
            assert!(a.abs_diff(b) <= 1, "{count} of {per_turn}: {a} and {b}");
        }
        assert!(Angle::parts(-1.0, 4).nanos(TURN_NS).abs_diff(TURN_NS * 3 / 4) <= 1);
    }
}
