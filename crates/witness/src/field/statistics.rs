//! How little a number of cuts without a loss proves.
//!
//! **Source**: C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits
//! illustrated in the case of the binomial", Biometrika 26 (1934): the exact limits of a share. For
//! no loss in n cuts the upper one is 1 - (1 - confidence)^(1/n), which the rule of three (3/n at
//! 95 %) approaches.

/// How sure the limits are, each for itself.
pub const CONFIDENCE: f64 = 0.95;

/// The largest loss rate that is not refuted by so many losses in so many cuts: 1 without any.
///
/// # Panics
/// Where there are more losses than cuts.
pub fn rate_max(losses: u64, cuts: u64) -> f64 {
    assert!(losses <= cuts, "{losses} losses of {cuts} cuts");
    if losses == cuts {
        return 1.0;
    }
    solve(|rate| at_most(losses, cuts, rate) > 1.0 - CONFIDENCE)
}

/// The smallest loss rate that is not refuted.
///
/// # Panics
/// As [`rate_max`].
pub fn rate_min(losses: u64, cuts: u64) -> f64 {
    assert!(losses <= cuts, "{losses} losses of {cuts} cuts");
    if losses == 0 {
        return 0.0;
    }
    solve(|rate| at_most(losses - 1, cuts, rate) > CONFIDENCE)
}

/// Cuts without a loss after which a rate above this one is refuted.
pub fn cuts_needed(rate: f64) -> u64 {
    ((1.0 - CONFIDENCE).ln() / (-rate).ln_1p()).ceil() as u64
}

/// Where a condition that holds for small rates ceases to hold.
fn solve(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if holds(middle) { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The probability of at most so many losses.
fn at_most(losses: u64, cuts: u64, rate: f64) -> f64 {
    if rate <= 0.0 {
        return 1.0;
    }
    let mut term = cuts as f64 * (-rate).ln_1p();
    let odds = rate.ln() - (-rate).ln_1p();
    let mut sum = term.exp();
    for count in 0..losses {
        term += ((cuts - count) as f64 / (count + 1) as f64).ln() + odds;
        sum += term.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the exact limits as tables print them.
    fn is_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 5e-4, "{found} instead of {expected}");
    }

    #[test]
    fn the_limits_are_those_of_the_tables() {
        is_near(rate_max(0, 40), 0.0722);
        is_near(rate_max(0, 10), 0.2589);
        is_near(rate_max(1, 20), 0.2161);
        is_near(rate_min(1, 20), 0.0026);
        is_near(rate_max(5, 10), 0.7776);
        is_near(rate_min(5, 10), 0.2224);
        assert_eq!((rate_min(0, 10), rate_max(10, 10), rate_max(0, 0)), (0.0, 1.0, 1.0));
    }

    #[test]
    fn the_rule_of_three_is_where_many_cuts_lead() {
        let cuts = 10_000;
        assert!((rate_max(0, cuts) * cuts as f64 - 3.0).abs() < 0.01);
    }

    #[test]
    fn as_many_cuts_as_needed_are_just_enough() {
        for rate in [0.5, 0.1, 0.01] {
            let cuts = cuts_needed(rate);
            assert!(rate_max(0, cuts) <= rate && rate_max(0, cuts - 1) > rate, "{rate}");
        }
    }
}
