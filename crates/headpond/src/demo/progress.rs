//! Progress of the demo.

use crate::interrupt;
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Steps with a running clock: a spinner on a terminal, plain lines elsewhere.
pub struct Progress {
    begun: Instant,
    step: u32,
    steps: u32,
}

impl Progress {
    pub fn new(steps: u32) -> Self {
        Self { begun: Instant::now(), step: 0, steps }
    }

    /// Runs one step and shows its progress.
    ///
    /// # Errors
    /// The step's; and a signal, which ends the demo between two steps.
    pub fn step<T>(&mut self, what: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = self.shown(what, act);
        if interrupt::is_interrupted() { bail!("interrupted: {what}") } else { done }
    }

    fn shown<T>(&mut self, what: &str, act: impl FnOnce() -> T) -> T {
        self.step += 1;
        let seconds = self.begun.elapsed().as_secs();
        let label = format!(
            "[{:>2}/{}] {}:{:02}  {what}",
            self.step,
            self.steps,
            seconds / 60,
            seconds % 60
        );
        let spinner = ProgressBar::new_spinner().with_message(label.clone());
        if spinner.is_hidden() {
            eprintln!("{label}");
            return act();
        }
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        spinner.set_style(style.expect("the template is ours"));
        spinner.enable_steady_tick(Duration::from_millis(120));
        let outcome = act();
        spinner.finish_and_clear();
        eprintln!("{label} ({:.1} s)", spinner.elapsed().as_secs_f64());
        outcome
    }
}
