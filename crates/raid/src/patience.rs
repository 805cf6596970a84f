//! How long members are waited for.
//!
//! Three times count for each operation on a member. After its *patience* a read is *slow*: its
//! data comes from the peers instead, and the member is read no more until it has answered. After
//! the longest patience it is *late*, and members that are late too often are evicted. After the
//! *deadline* the member counts as hung and is evicted, whatever the operation.
//!
//! The patience adapts: it is what the reads of the array usually take, and many times their
//! spread, so that a member is compared with its peers, and an array that is busy all over is not
//! called slow.
//!
//! Time is counted in *ticks* that the thread of the array has lived through. A machine that was
//! suspended, or a thread that was stopped, finds one tick gone and not a second, and blames
//! nobody.
//!
//! **Not here**: what is under way (`array::watch`), who can be done without (`array`).
//! **Source**: V. Jacobson, "Congestion avoidance and control" (1988), for the estimate; its gains
//! are an eighth and a quarter, ours are slower, since one slow member must not teach the array
//! that this is usual. Thirty seconds are the time-out of Linux for SCSI disks and NVMe; drives
//! made for arrays give up a sector after seven, and one that starts its spindle needs up to
//! twenty. Two seconds are far beyond any queue that a drive keeps. ZFS (`deadman`) only reports
//! after minutes, md waits for the kernel below it; DRBD's `disk-timeout` detaches and warns that
//! answers may arrive late in memory that is used otherwise: for that see `array::operation`.

use std::time::Duration;

use crate::balance::Motion;

/// How long an array waits for its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest that a read is waited for before its data comes from the peers.
    pub read: Duration,
    /// After this time without an answer a member is hung. Flushes have twice as long.
    pub deadline: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { read: Duration::from_secs(2), deadline: Duration::from_secs(30) }
    }
}

/// Ticks in the longest patience.
pub const TICKS_OF_READ: u64 = 64;
/// Less than this is not told from an answer in time: a tick more or less says nothing.
const PATIENCE_TICKS_MIN: u64 = 4;
/// A drive that rotates serves what is near before what has waited, for half a second or so: of two
/// seconds, three quarters of one. With an eighth of a second, mirrors of the modelled drive lost a
/// tenth of what streams reach.
const ROTATING_TICKS_MIN: u64 = 24;
/// Spells of lateness that evict a member, within [`WINDOW_TICKS`].
pub const LATE_MAX: u32 = 8;
/// Ten minutes with two seconds of longest patience.
const WINDOW_TICKS: u64 = 300 * TICKS_OF_READ;

/// A number of ticks.
pub type Ticks = u64;

impl Patience {
    /// The time between two looks at what is under way.
    pub fn tick(&self) -> Duration {
        (self.read / TICKS_OF_READ as u32).max(Duration::from_millis(1))
    }

    /// The longest patience with a read.
    pub fn read_ticks(&self) -> Ticks {
        TICKS_OF_READ
    }

    /// When a member is hung.
    pub fn deadline_ticks(&self) -> Ticks {
        let ticks = self.deadline.as_nanos().div_ceil(self.tick().as_nanos());
        (ticks as Ticks).max(TICKS_OF_READ)
    }
}

/// What reads usually take, learned from those that were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    /// In ticks, times [`Self::ONE`].
    mean: u64,
    /// Mean distance from the mean, likewise.
    spread: u64,
    samples: u32,
}

impl Usual {
    const ONE: u64 = 1 << 10;
    /// Before so many answers nothing is known.
    const SAMPLES_MIN: u32 = 64;

    /// A read was answered after `ticks`.
    pub fn note(&mut self, ticks: Ticks) {
        let sample = ticks.min(1 << 20) * Self::ONE;
        let distance = sample.abs_diff(self.mean);
        self.mean = self.mean + sample / 32 - self.mean / 32;
        self.spread = self.spread + distance / 16 - self.spread / 16;
        self.samples = self.samples.saturating_add(1);
    }

    /// After how many ticks a read is slow.
    pub fn patience(&self, motion: Motion, longest: Ticks) -> Ticks {
        let least = match motion {
            Motion::Rotating => ROTATING_TICKS_MIN,
            Motion::None => PATIENCE_TICKS_MIN,
        };
        let usual = (4 * self.mean + 8 * self.spread).div_ceil(Self::ONE);
        match self.samples < Self::SAMPLES_MIN {
            true => longest,
            false => usual.clamp(least, longest),
        }
    }

    /// After how many ticks a read is late: the longest patience, or more where the whole array is
    /// that slow.
    pub fn lateness(&self, longest: Ticks) -> Ticks {
        longest.max((4 * self.mean).div_ceil(Self::ONE))
    }
}

/// The late answers of one member. All that were late together are one spell: a drive that tries a
/// bad sector again and again keeps its whole queue waiting, and has been slow once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    since: Ticks,
    count: u32,
    newest: Option<Ticks>,
}

impl Lateness {
    /// An answer is late at `now`. Whether that is once too often.
    pub fn note(&mut self, now: Ticks) -> bool {
        if now.saturating_sub(self.since) > WINDOW_TICKS {
            *self = Lateness { since: now, count: 0, newest: None };
        }
        if self.newest.is_none_or(|newest| now.saturating_sub(newest) >= TICKS_OF_READ) {
            self.newest = Some(now);
            self.count += 1;
        }
        self.count >= LATE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples: impl IntoIterator<Item = Ticks>) -> Usual {
        let mut usual = Usual::default();
        samples.into_iter().for_each(|ticks| usual.note(ticks));
        usual
    }

    #[test]
    fn patience_is_long_until_something_is_known() {
        assert_eq!(after([0; 63]).patience(Motion::None, 64), 64);
        assert_eq!(after([0; 64]).patience(Motion::None, 64), PATIENCE_TICKS_MIN);
    }

    #[test]
    fn patience_follows_what_is_usual_up_to_the_longest() {
        let busy = after((0..1000).map(|n| 5 + n % 4));
        assert!(
            (24..50).contains(&busy.patience(Motion::None, 64)),
            "{}",
            busy.patience(Motion::None, 64)
        );
        assert_eq!(after([100; 500]).patience(Motion::None, 64), 64);
    }

    #[test]
    fn one_slow_member_of_ten_does_not_teach_that_this_is_usual() {
        let one_in_ten = (0..1000).map(|n| if n % 10 == 0 { 64 } else { 0 });
        assert!(after([0; 1000]).patience(Motion::None, 640) == PATIENCE_TICKS_MIN);
        assert!(after(one_in_ten).lateness(64) == 64);
    }

    #[test]
    fn nobody_is_late_where_all_are_slow() {
        assert!(after([200; 1000]).lateness(64) > 600);
    }

    #[test]
    fn late_answers_count_within_a_window() {
        let mut lateness = Lateness::default();
        let spell = |n: u32| WINDOW_TICKS + Ticks::from(n) * TICKS_OF_READ;
        assert!((1..LATE_MAX).all(|n| !lateness.note(spell(n))));
        assert!(lateness.note(spell(LATE_MAX)));
        assert!(!lateness.note(4 * WINDOW_TICKS), "long ago");
    }

    #[test]
    fn a_queue_that_waits_for_one_sector_is_one_spell() {
        let mut lateness = Lateness::default();
        assert!((0..1000).all(|n| !lateness.note(n % TICKS_OF_READ)));
    }

    #[test]
    fn a_deadline_is_never_shorter_than_the_longest_patience() {
        let odd = Patience { read: Duration::from_secs(9), deadline: Duration::from_secs(1) };
        assert!(odd.deadline_ticks() >= odd.read_ticks());
        assert!((960..=961).contains(&Patience::default().deadline_ticks()));
    }
}
