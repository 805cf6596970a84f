//! A PI controller that holds the dirty ratio at its target.
//!
//! **Source**: bcache's write-back rate controller (Kp 1/40, Ki 1/10000: the integral part weighs
//! as much as the proportional one after 250 s). That one controls the rate of writes; this one
//! controls how many are in flight, and the array determines how fast they complete: its speed need
//! not be known. The proportional part is scaled so that the share is 1 at `high`.

use headpond_block::Instant;
use std::time::Duration;

/// So long a constant error has to last until the integral part weighs as much as the other.
const INTEGRAL_TIME: Duration = Duration::from_secs(250);
/// Longest step of the integral: after a pause nothing is made up for.
const STEP_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Controller {
    integral: f64,
    at: Option<Instant>,
}

impl Controller {
    /// The share of full speed, 0 to 1, for a dirty ratio. `target` and `high` are ratios too.
    pub fn share(&mut self, now: Instant, ratio: f64, target: f64, high: f64) -> f64 {
        let error = (ratio - target) / (high - target).max(0.01);
        let step = self.at.map_or(Duration::ZERO, |at| now.since(at)).min(STEP_MAX);
        self.at = Some(now);
        let before = error + self.integral;
        // Where the output is at its end, the integral does not go on beyond it.
        let is_stuck = before >= 1.0 && error > 0.0 || before <= 0.0 && error < 0.0;
        if !is_stuck {
            self.integral += error * step.as_secs_f64() / INTEGRAL_TIME.as_secs_f64();
        }
        self.integral = self.integral.clamp(-1.0, 1.0);
        (error + self.integral).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the controller clean a cache that is written to steadily by an array whose speed rises
    /// with what is in flight; answers the ratios, second by second.
    fn ratios(written_per_s: f64, array_per_s: f64, seconds: u64) -> Vec<f64> {
        let (mut controller, mut dirty, blocks) = (Controller::default(), 0.0_f64, 100_000.0);
        let step = |second: u64| {
            let now = Instant::START + Duration::from_secs(second);
            let share = controller.share(now, dirty / blocks, 0.4, 0.75);
            dirty = (dirty + written_per_s - share.sqrt() * array_per_s).clamp(0.0, blocks);
            dirty / blocks
        };
        (0..seconds).map(step).collect()
    }

    #[test]
    fn ratio_comes_to_the_target_and_stays() {
        for written_per_s in [200.0, 500.0, 900.0] {
            let ratios = ratios(written_per_s, 1000.0, 6000);
            let late = &ratios[5000..];
            let is_near = |ratio: &&f64| (**ratio - 0.4).abs() < 0.04;
            assert_eq!(late.iter().filter(is_near).count(), late.len(), "{written_per_s}");
            let swing =
                late.iter().copied().fold(0.0, f64::max) - late.iter().copied().fold(1.0, f64::min);
            assert!(swing < 0.02, "{written_per_s}: {swing}");
        }
    }

    #[test]
    fn more_than_the_array_takes_is_cleaned_at_full_speed() {
        let mut controller = Controller::default();
        let at = |second| Instant::START + Duration::from_secs(second);
        assert_eq!(controller.share(at(0), 0.75, 0.4, 0.75), 1.0);
        for second in 1..1000 {
            assert_eq!(controller.share(at(second), 1.0, 0.4, 0.75), 1.0);
        }
        // Nothing was wound up meanwhile: below the target it is quiet within a moment.
        assert!(controller.share(at(1000), 0.39, 0.4, 0.75) < 0.05);
    }
}
