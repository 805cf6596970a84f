//! What happened when: the time of an experiment, cut into windows of equal length.
//!
//! **Invariants**: an experiment has at most `WINDOWS_MAX` windows, however long it is: when there
//! would be more, neighbours become one.

use crate::measured::Answered;
use crate::progress::Gauge;
use headpond_block::{Instant, Runtime};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Its end.
    pub at_s: f64,
    pub read_iops: f64,
    pub write_iops: f64,
    /// At its end, of what may be dirty.
    pub dirty_ratio: f64,
}

/// Windows of an experiment whose length is known.
const WINDOWS: u32 = 60;
const WINDOWS_MAX: usize = 2 * WINDOWS as usize;
const WINDOW_OF_UNKNOWN: Duration = Duration::from_secs(1);
const WINDOW_OF_LITTLE: Duration = Duration::from_millis(10);
const SHORTEST: Duration = Duration::from_millis(1);

/// The windows so far.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    list: Vec<Window>,
    length: Duration,
}

impl Windows {
    /// For an experiment of this length.
    pub fn over(total: Option<Duration>) -> Self {
        let length = total.map_or(WINDOW_OF_UNKNOWN, |total| total / WINDOWS).max(SHORTEST);
        Self { list: Vec::with_capacity(WINDOWS_MAX), length }
    }

    /// For one that may be over in the blink of an eye.
    pub fn of_little() -> Self {
        Self { list: Vec::with_capacity(WINDOWS_MAX), length: WINDOW_OF_LITTLE }
    }

    /// Of the next window.
    pub fn length(&self) -> Duration {
        self.length
    }

    pub fn push(&mut self, window: Window) {
        if self.list.len() == WINDOWS_MAX {
            self.list = self.list.chunks(2).map(joined).collect();
            self.length *= 2;
        }
        self.list.push(window);
        assert!(self.list.len() <= WINDOWS_MAX);
    }

    pub fn into_list(self) -> Vec<Window> {
        self.list
    }
}

/// Two windows of one length as one.
fn joined(pair: &[Window]) -> Window {
    let mean = |pick: fn(&Window) -> f64| pair.iter().map(pick).sum::<f64>() / pair.len() as f64;
    let last = pair[pair.len() - 1];
    Window {
        read_iops: mean(|window| window.read_iops),
        write_iops: mean(|window| window.write_iops),
        ..last
    }
}

/// Looks at a machine from time to time.
pub(crate) struct Watcher {
    pub dirty_ratio: Box<dyn Fn() -> f64>,
    pub runtime: Runtime,
    pub begun: Instant,
    /// Where the gauge is to follow the time.
    pub total: Option<Duration>,
    pub answered: Rc<Cell<Answered>>,
    pub windows: Rc<RefCell<Windows>>,
    pub is_over: Rc<Cell<bool>>,
    pub gauge: Arc<Gauge>,
}

impl Watcher {
    pub async fn watch(self) {
        let (mut before, mut since) = (Answered::default(), self.begun);
        while !self.is_over.get() {
            let length = self.windows.borrow().length();
            self.runtime.sleep(length).await;
            let now = self.runtime.now();
            let seconds = now.since(since).as_secs_f64();
            let answered = self.answered.get();
            self.windows.borrow_mut().push(Window {
                at_s: now.since(self.begun).as_secs_f64(),
                read_iops: (answered.reads - before.reads) as f64 / seconds,
                write_iops: (answered.writes - before.writes) as f64 / seconds,
                dirty_ratio: (self.dirty_ratio)(),
            });
            (before, since) = (answered, now);
            self.show(now.since(self.begun));
        }
    }

    fn show(&self, passed: Duration) {
        self.gauge.set_virtual_time(passed);
        if let Some(total) = self.total {
            self.gauge.set_share(passed.as_secs_f64() / total.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_experiment_has_few_windows_that_still_say_everything() {
        let mut windows = Windows::over(None);
        let mut at_s = 0.0;
        while at_s < 100_000.0 {
            let length = windows.length().as_secs_f64();
            at_s += length;
            let (read_iops, write_iops) = (10.0, if at_s <= 50_000.0 { 0.0 } else { 4.0 });
            windows.push(Window { at_s, read_iops, write_iops, dirty_ratio: at_s });
        }
        let (length, list) = (windows.length().as_secs_f64(), windows.into_list());
        assert!(list.len() > 60 && list.len() <= WINDOWS_MAX, "{}", list.len());
        assert!(list.iter().all(|window| window.read_iops == 10.0));
        assert!(list.iter().all(|window| window.dirty_ratio == window.at_s));
        let written: f64 = list.iter().map(|window| window.write_iops * length).sum();
        assert!((written / 200_000.0 - 1.0).abs() < 0.03, "{written}");
    }
}
