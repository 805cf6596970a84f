//! Whether the thread polls its ring for a moment before it sleeps.
//!
//! A peer with one request in flight sends the next one a few microseconds after its reply. A
//! thread that sleeps meanwhile is woken for each request, and that takes longer than the request:
//! a processor has to be found, often woken itself, and the thread put on it. A thread that polls
//! the memory which it shares with the kernel continues at once.
//!
//! 1. *Sleeping*: each wait is timed. After enough short ones in a row, each below [`POLL_MAX`],
//!    the thread polls.
//! 2. *Polling*: waits begin with polling for [`POLL_MAX`] at most. Once in vain, and the thread
//!    sleeps again, until twice as many short waits as before followed each other: thread and peer
//!    may share a processor, others may need it, or the peer has paused.
//! 3. Each success lowers that number by one.
//!
//! **Invariants**: after polling in vain the thread sleeps; so an idle thread sleeps.
//!
//! **Source**: the adaptive polling of virtual processors before they halt (Linux,
//! Documentation/virt/kvm/halt-polling.rst), which grows and shrinks by the same evidence.

use std::cell::Cell;
use std::time::Duration;

/// A wake-up on another processor takes 5 to 50 us.
pub(super) const POLL_MAX: Duration = Duration::from_micros(50);
/// Short waits in a row before the thread polls.
const NEEDED_MIN: u32 = 16;
/// As many short waits as a busy peer causes in a tenth of a second.
const NEEDED_MAX: u32 = 4096;

#[derive(Default)]
pub(super) struct Polling(Cell<Judge>);

#[derive(Clone, Copy, Debug)]
struct Judge {
    /// Short waits in a row.
    short_waits: u32,
    /// With so many of them the thread polls.
    needed: u32,
}

impl Default for Judge {
    fn default() -> Self {
        Self { short_waits: 0, needed: NEEDED_MIN }
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
        self.short_waits >= self.needed
    }

    fn slept(&mut self, time: Duration) {
        self.short_waits = if time < POLL_MAX { self.short_waits + 1 } else { 0 };
    }

    fn polled(&mut self, is_in_vain: bool) {
        if is_in_vain {
            self.short_waits = 0;
            self.needed = (self.needed * 2).min(NEEDED_MAX);
        } else {
            self.needed = (self.needed - 1).max(NEEDED_MIN);
            self.short_waits = self.needed;
        }
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
        assert!(polls_among(&mut Judge::default(), 100_000, true) < 50);
    }

    #[test]
    fn long_waits_lead_to_no_polling() {
        let mut judge = Judge::default();
        for _ in 0..1000 {
            (1..NEEDED_MIN).for_each(|_| judge.slept(SHORT));
            assert!(!judge.is_worthwhile());
            judge.slept(POLL_MAX);
        }
        assert!(!judge.is_worthwhile());
    }

    #[test]
    fn pause_of_the_peer_is_polled_for_once() {
        let mut judge = Judge::default();
        polls_among(&mut judge, 1000, false);
        judge.polled(true);
        assert!(!judge.is_worthwhile());
        assert_eq!(polls_among(&mut judge, 100, false), 100 - 2 * NEEDED_MIN);
    }
}
