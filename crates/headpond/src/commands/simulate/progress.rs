//! How far the experiments are: virtual time done, share done, time left.

use headpond_whatif::{Experiment, Gauge, Outcome, SimulateError, simulate_all};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

const STEPS: u64 = 10_000;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs experiments side by side with a bar on standard error, one outcome for each.
pub fn simulate_shown(experiments: &[Experiment]) -> Vec<Result<Outcome, SimulateError>> {
    while_shown(experiments.len(), |gauges| simulate_all(experiments, gauges))
}

/// Does `work` on so many experiments beside their bar.
fn while_shown<T>(experiments: usize, work: impl FnOnce(&[Arc<Gauge>]) -> T) -> T {
    let gauges = Gauge::for_each(experiments);
    let bar = ProgressBar::new(STEPS);
    let style = ProgressStyle::with_template("simulating {wide_bar} {msg} (left: {eta})");
    bar.set_style(style.expect("the template is ours"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let shown = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                show(&bar, &gauges);
                std::thread::park_timeout(LOOK_EVERY);
            }
            bar.finish_and_clear();
        });
        let _end = End { is_over: &is_over, shown: shown.thread() };
        work(&gauges)
    })
}

/// Ends the showing, whether the work came to its end or panicked.
struct End<'a> {
    is_over: &'a AtomicBool,
    shown: &'a Thread,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.shown.unpark();
    }
}

fn show(bar: &ProgressBar, gauges: &[Arc<Gauge>]) {
    let share = gauges.iter().map(|gauge| gauge.share()).sum::<f64>() / gauges.len().max(1) as f64;
    bar.set_position((share * STEPS as f64) as u64);
    bar.set_message(words(gauges));
}

/// `2 of 3 over, 1:05 min simulated`.
fn words(gauges: &[Arc<Gauge>]) -> String {
    let over = gauges.iter().filter(|gauge| gauge.is_over()).count();
    let furthest = gauges.iter().filter(|gauge| !gauge.is_over()).map(|gauge| gauge.virtual_time());
    let seconds = furthest.max().unwrap_or_default().as_secs();
    format!("{over} of {} over, {}:{:02} min simulated", gauges.len(), seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_beside_its_bar_and_answers() {
        let answer = while_shown(2, |gauges| {
            assert_eq!(words(gauges), "0 of 2 over, 0:00 min simulated");
            gauges.len()
        });
        assert_eq!(answer, 2);
    }
}
