//! How long a revolution takes, from times at which the same sector had been read.
//!
//! Every such time is a whole number of revolutions after the first, whatever seeks lay between.
//! The period is the longest one on which all times fall together.

const HZ_MIN: f64 = 55.0;
const HZ_MAX: f64 = 270.0;

/// How far the phases must agree. Of 40 chance times, over all periods tried, the best agree to
/// about a half; jitter of a millisecond leaves three quarters at 7200 rpm.
const AGREEMENT_MIN: f64 = 0.65;

/// Seconds of a revolution; nothing where there is no such period.
pub(super) fn revolution(times_s: &[f64]) -> Option<f64> {
    let first = *times_s.first()?;
    let span = times_s.last()? - first;
    let agreement = |hz: f64| {
        let (mut cosines, mut sines) = (0.0, 0.0);
        for time in times_s {
            let turn = ((time - first) * hz).fract() * std::f64::consts::TAU;
            cosines += turn.cos();
            sines += turn.sin();
        }
        f64::hypot(cosines, sines) / times_s.len() as f64
    };
    let step = 0.1 / span.max(0.1);
    let steps = ((HZ_MAX - HZ_MIN) / step) as usize;
    let best = |low: f64, step: f64, steps: usize| {
        let all = (0..=steps).map(|index| low + index as f64 * step);
        all.map(|hz| (agreement(hz), hz)).max_by(|one, other| one.0.total_cmp(&other.0))
    };
    let (most, _) = best(HZ_MIN, step, steps)?;
    if most < AGREEMENT_MIN {
        return None;
    }
    // Half a period fits as well as a whole one: the first to fit is the whole.
    let fits = |hz: &f64| agreement(*hz) > 0.98 * most;
    let first_fit = (0..=steps).map(|index| HZ_MIN + index as f64 * step).find(fits)?;
    let (_, hz) = best(first_fit - step, step / 100.0, 400)?;
    Some(1.0 / hz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_sim::Random;

    #[test]
    fn a_period_is_found_under_jitter_and_none_where_there_is_none() {
        let mut random = Random::new(4);
        let mut times = |period: Option<f64>| -> Vec<f64> {
            let mut time = 0.0;
            (0..40)
                .map(|_| {
                    time += 0.5 + random.below(1_000_000) as f64 / 1e6;
                    let at = period.map_or(time, |period| (time / period).ceil() * period);
                    at + random.below(1000) as f64 / 1e6
                })
                .collect()
        };
        for rpm in [5400.0, 7200.0, 10_000.0, 15_000.0] {
            let found = 60.0 / revolution(&times(Some(60.0 / rpm))).unwrap();
            assert!((found / rpm - 1.0).abs() < 1e-4, "{found}");
        }
        assert_eq!(revolution(&times(None)), None);
    }
}
