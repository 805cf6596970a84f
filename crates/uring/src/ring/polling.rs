//! Whether the thread polls its ring for a moment before it sleeps.
//!
//! A peer with one request in flight sends the next one a few microseconds after its reply. A
//! thread that sleeps meanwhile is woken for each request, and that takes longer than the request:
//! a processor has to be found, often woken itself, and the thread put on it. A thread that polls
//! the memory which it shares with the kernel continues at once.
//!
//! 1. *Sleeping*: each wait is timed. After enough short ones, each below [`SHORT_MAX`], the thread
//!    polls; a long one, of [`PAUSE`] or more, begins the count anew.
//! 2. *Polling*: waits begin with polling for [`POLL_MAX`] at most. Once in vain, and the thread
//!    sleeps again, until enough short waits followed.
//! 3. A series of polls that ended too soon doubles that number: thread and peer may share a
//!    processor, or others may need it. One of at least [`SERIES_MIN`] resets it: one slow answer
//!    in twenty is a fact of each peer, and ended no more than this series.
//!
//! **Invariants**: after polling in vain the thread sleeps; so an idle thread sleeps.
//!
//! **Source**: the adaptive polling of virtual processors before they halt (Linux,
//! Documentation/virt/kvm/halt-polling.rst), which grows and shrinks by the same evidence.

use std::cell::Cell;
use std::time::Duration;

/// A wake-up on another processor takes 5 to 50 us.
pub(super) const POLL_MAX: Duration = Duration::from_micros(50);
/// With the wake-up of this thread, which polling saves.
const SHORT_MAX: Duration = Duration::from_micros(100);
/// The peer has nothing more to send for now.
const PAUSE: Duration = Duration::from_millis(1);
/// Short waits before the thread polls.
const NEEDED_MIN: u32 = 4;
/// A poll in vain costs less than a hundredth of what so many short waits take.
const NEEDED_MAX: u32 = 512;
/// A poll in vain takes [`POLL_MAX`] of the processor; so many before it have saved twice that.
const SERIES_MIN: u32 = 8;

#[derive(Default)]
pub(super) struct Polling(Cell<Judge>);

#[derive(Clone, Copy, Debug)]
struct Judge {
    /// Short waits that are still missing before the thread polls.
    missing: u32,
    /// How many there were to be.
    needed: u32,
    /// Polls in a row that were not in vain.
    series: u32,
}

impl Default for Judge {
    fn default() -> Self {
        Self { missing: NEEDED_MIN, needed: NEEDED_MIN, series: 0 }
    }
}

impl Polling {
    /// Whether the next wait begins with polling.
    pub fn is_worthwhile(&self) -> bool {
        self.0.get().is_worthwhile()
    }

    /// The thread slept for so long.
    pub fn slept(&self, time: Duration) {
        let mut judge = self.0.get();
        judge.slept(time);
        self.0.set(judge);
    }

    /// The thread polled.
    pub fn polled(&self, is_in_vain: bool) {
        let mut judge = self.0.get();
        judge.polled(is_in_vain);
        self.0.set(judge);
    }
}

impl Judge {
    fn is_worthwhile(self) -> bool {
        self.missing == 0
    }

    fn slept(&mut self, time: Duration) {
        if time < SHORT_MAX {
            self.missing = self.missing.saturating_sub(1);
        } else if time >= PAUSE {
            self.missing = self.needed;
        }
    }

    fn polled(&mut self, is_in_vain: bool) {
        if !is_in_vain {
            self.series = self.series.saturating_add(1);
            return;
        }
        let was_worthwhile = self.series >= SERIES_MIN;
        self.needed = if was_worthwhile { NEEDED_MIN } else { (self.needed * 2).min(NEEDED_MAX) };
        (self.missing, self.series) = (self.needed, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(10);

    /// How often the thread polls in so many waits that would all be short, in vain or not.
    fn polls_among(judge: &mut Judge, waits: u32, is_in_vain: bool) -> u32 {
        let mut polls = 0;
        for _ in 0..waits {
            let polled = judge.is_worthwhile();
            if polled {
                polls += 1;
                judge.polled(is_in_vain);
            }
            if !polled || is_in_vain {
                judge.slept(SHORT);
            }
        }
        polls
    }

    #[test]
    fn peer_that_answers_at_once_is_polled_for() {
        assert_eq!(polls_among(&mut Judge::default(), 1000, false), 1000 - NEEDED_MIN);
    }

    #[test]
    fn polling_in_vain_becomes_rare() {
        assert!(polls_among(&mut Judge::default(), 100_000, true) < 250);
    }

    #[test]
    fn long_waits_lead_to_no_polling() {
        let mut judge = Judge::default();
        for _ in 0..1000 {
            (1..NEEDED_MIN).for_each(|_| judge.slept(SHORT));
            assert!(!judge.is_worthwhile());
            judge.slept(PAUSE);
        }
        assert!(!judge.is_worthwhile());
    }

    #[test]
    fn pause_of_the_peer_is_polled_for_once() {
        let mut judge = Judge::default();
        polls_among(&mut judge, 1000, false);
        judge.polled(true);
        assert!(!judge.is_worthwhile());
        assert_eq!(polls_among(&mut judge, 100, false), 100 - NEEDED_MIN);
    }

    #[test]
    fn peer_with_one_slow_answer_in_twenty_is_polled_for() {
        let mut judge = Judge::default();
        polls_among(&mut judge, 10_000, true);
        let mut polls = 0;
        for _ in 0..1000 {
            polls += polls_among(&mut judge, 19, false);
            polls += polls_among(&mut judge, 1, true);
        }
        assert!(polls > 20_000 / 2, "{polls}");
    }
}
