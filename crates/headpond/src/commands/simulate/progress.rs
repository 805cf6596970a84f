//! Progress of experiments: virtual time, share done, time left. If standard error is not a
//! terminal, a line periodically.

use headpond_daemon::progress_bar;
use headpond_whatif::{Experiment, Gauge, Outcome, SimulateError, simulate_all};
use indicatif::ProgressBar;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

const STEPS: u64 = 10_000;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Runs experiments side by side with a bar on standard error, one outcome for each.
pub fn simulate_shown(experiments: &[Experiment]) -> Vec<Result<Outcome, SimulateError>> {
    while_shown(experiments.len(), |gauges| simulate_all(experiments, gauges))
}

/// Does `work` on so many experiments beside their bar.
pub fn while_shown<T>(experiments: usize, work: impl FnOnce(&[Arc<Gauge>]) -> T) -> T {
    let gauges = Gauge::for_each(experiments);
    let bar = ProgressBar::new(STEPS);
    bar.set_style(progress_bar::style("simulating {wide_bar} {msg} (left: {left})"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let shown = scope.spawn(|| {
            let has_lines = !std::io::stderr().is_terminal();
            let mut last_line = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                show(&bar, &gauges);
                if has_lines && last_line.elapsed() >= LINE_EVERY {
                    eprintln!("{}", line(&gauges, bar.eta()));
                    last_line = Instant::now();
                }
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
    bar.set_position((share(gauges) * STEPS as f64) as u64);
    bar.set_message(words(gauges));
}

/// `simulating: 41 %, 2 of 3 over, 1:05 min simulated (left: 20s)`.
fn line(gauges: &[Arc<Gauge>], left: Duration) -> String {
    let percent = share(gauges) * 100.0;
    format!("simulating: {percent:.0} %, {} (left: {})", words(gauges), progress_bar::left(left))
}

fn share(gauges: &[Arc<Gauge>]) -> f64 {
    gauges.iter().map(|gauge| gauge.share()).sum::<f64>() / gauges.len().max(1) as f64
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
            assert_eq!(
                line(gauges, Duration::from_secs(20)),
                "simulating: 0 %, 0 of 2 over, 0:00 min simulated (left: 20s)"
            );
            gauges.len()
        });
        assert_eq!(answer, 2);
    }
}
