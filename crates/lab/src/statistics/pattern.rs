//! Throughput that is not one figure: a device that alternates between two, or settles from one to
//! another.

use super::median::median;
use serde::{Deserialize, Serialize};

/// What a row of windows does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case")]
pub enum Pattern {
    /// Goes to and fro.
    Alternates {
        high: f64,
        low: f64,
        /// Of all windows, those that are high.
        high_share: f64,
        /// From one rise to the next, in windows.
        period: f64,
    },
    /// Is another one from some window on.
    Settles { from: f64, to: f64, at: usize },
}

/// The two levels are at least so far apart: a smaller step is noise for whoever plans with it.
const STEP: f64 = 1.3;
/// Of the spread of all windows, what is left within the levels at most.
const LEFT_WITHIN: f64 = 0.2;
/// So often it must go up and down to count as a habit.
const TURNS: usize = 4;
const WINDOWS: usize = 12;
/// A level is one only where it holds for at least so many windows of each hundred.
const SHARE: f64 = 0.05;

/// What windows of equal length do, where it is more than noise.
///
/// The windows are parted into two levels so that the least spread is left within (Otsu's
/// threshold, 1979); it counts where little is left, and where the levels lie far apart.
pub fn pattern(windows: &[f64]) -> Option<Pattern> {
    if windows.len() < WINDOWS {
        return None;
    }
    let threshold = threshold(windows)?;
    let is_high: Vec<_> = windows.iter().map(|&window| window > threshold).collect();
    let level = |wanted: bool| {
        let of = windows.iter().zip(&is_high).filter(|(_, high)| **high == wanted);
        of.map(|(window, _)| *window).collect::<Vec<_>>()
    };
    let (highs, lows) = (level(true), level(false));
    let (high, low) = (median(&highs), median(&lows));
    let high_share = highs.len() as f64 / windows.len() as f64;
    if high < STEP * low || !(SHARE..=1.0 - SHARE).contains(&high_share) {
        return None;
    }
    let turns: Vec<_> = (1..windows.len()).filter(|&at| is_high[at] != is_high[at - 1]).collect();
    if turns.len() >= TURNS {
        let rises: Vec<_> = turns.iter().filter(|&&at| is_high[at]).collect();
        let period = match (rises.first(), rises.last()) {
            (Some(&&first), Some(&&last)) if last > first => {
                (last - first) as f64 / (rises.len() - 1) as f64
            }
            _ => windows.len() as f64 / turns.len() as f64 * 2.0,
        };
        return Some(Pattern::Alternates { high, low, high_share, period });
    }
    match turns[..] {
        [at] => {
            let (from, to) = if is_high[0] { (high, low) } else { (low, high) };
            Some(Pattern::Settles { from, to, at })
        }
        _ => None,
    }
}

/// What parts the windows best into two levels, where two levels explain them.
fn threshold(windows: &[f64]) -> Option<f64> {
    let mut sorted = windows.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let squares = |part: &[f64]| {
        let mean = mean(part);
        part.iter().map(|figure| (figure - mean) * (figure - mean)).sum::<f64>()
    };
    let all = squares(&sorted);
    let within = |cut: usize| squares(&sorted[..cut]) + squares(&sorted[cut..]);
    let cut = (1..sorted.len()).min_by(|a, b| within(*a).total_cmp(&within(*b)))?;
    let explains = all > 0.0 && within(cut) <= LEFT_WITHIN * all;
    explains.then(|| sorted[cut - 1].midpoint(sorted[cut]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_noise(levels: impl Iterator<Item = f64>) -> Vec<f64> {
        let noise = |at: usize| 1.0 + 0.03 * ((at * 7 % 11) as f64 / 5.0 - 1.0);
        levels.enumerate().map(|(at, level)| level * noise(at)).collect()
    }

    #[test]
    fn a_drive_that_alternates_is_named_with_both_levels_and_its_period() {
        let levels = (0..60).map(|at| if at % 6 < 2 { 2600.0 } else { 800.0 });
        let Some(Pattern::Alternates { high, low, high_share, period }) =
            pattern(&with_noise(levels))
        else {
            panic!("it alternates");
        };
        assert!((high - 2600.0).abs() < 80.0 && (low - 800.0).abs() < 30.0, "{high} {low}");
        assert!((high_share - 1.0 / 3.0).abs() < 0.01 && period == 6.0, "{high_share} {period}");
    }

    #[test]
    fn a_drive_whose_cache_fills_settles() {
        let levels = (0..60).map(|at| if at < 20 { 9000.0 } else { 3000.0 });
        let Some(Pattern::Settles { from, to, at }) = pattern(&with_noise(levels)) else {
            panic!("it settles");
        };
        assert!(from > 8500.0 && to < 3200.0 && at == 20, "{from} {to} {at}");
    }

    #[test]
    fn noise_a_slow_rise_and_one_dip_are_no_pattern() {
        assert_eq!(pattern(&with_noise((0..60).map(|_| 1000.0))), None);
        assert_eq!(pattern(&with_noise((0..60).map(|at| 1000.0 + 4.0 * f64::from(at)))), None);
        let dip = (0..60).map(|at| if at == 30 { 100.0 } else { 1000.0 });
        assert_eq!(pattern(&with_noise(dip)), None);
        assert_eq!(pattern(&[1.0, 2.0]), None);
    }
}
