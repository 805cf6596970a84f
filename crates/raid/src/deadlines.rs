//! How long members are waited for.
//!
//! Each operation on a member has three time limits. After its *patience* a read is *slow*: its
//! data is reconstructed from the peers, and the member is not read until it has completed the
//! read. After the read timeout, the longest patience, it is *late*, and members with too many
//! timeouts are failed. After the *deadline* the member counts as hung and is failed, whatever the
//! operation. Each of the three can be set, and switched off.
//!
//! The patience adapts: it is the usual time of the array's reads plus many times their deviation,
//! so that a member is compared with its peers, and an array that is busy as a whole is not called
//! slow.
//!
//! Time is counted in *ticks* of the array's thread. After a suspend of the machine, or a stop of
//! the thread, one tick has passed and not a second, and no member is failed for it.
//!
//! **Not here**: operations in flight (`array::watch`), which members can be failed (`array`).
//! **Source**: V. Jacobson, "Congestion avoidance and control" (1988), for the estimate; its gains
//! are an eighth and a quarter, ours are slower, since one slow member must not become the usual
//! case. Thirty seconds are the time-out of Linux for SCSI disks and NVMe; drives made for arrays
//! give up a sector after seven, and one that starts its spindle needs up to twenty. Two seconds
//! are far beyond the queue of any drive. ZFS (`deadman`) only reports after minutes, md waits for
//! the kernel below it; DRBD's `disk-timeout` detaches and warns that answers may arrive late in
//! memory that is used otherwise: for that see `array::operation`.

use std::collections::VecDeque;
use std::time::Duration;

use headpond_block::{Cause, DeviceError, DeviceName, Instant, Runtime};

use crate::balance::Motion;

/// How long an array waits for its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// The longest that a read is waited for before its data comes from the peers; `None`: they
    /// are asked only for what a member cannot read. At least [`READ_MIN`], and no longer than the
    /// deadline.
    pub read: Option<Duration>,
    /// After this time without an answer a member is hung. Flushes have twice as long. `None`: no
    /// member ever is. At least [`READ_MIN`].
    pub deadline: Option<Duration>,
    /// Spells of lateness within [`WINDOW`] that evict a member; `None`: none ever do.
    pub timeouts_max: Option<u32>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            read: Some(Duration::from_secs(2)),
            deadline: Some(Duration::from_secs(30)),
            timeouts_max: Some(8),
        }
    }
}

/// Ticks in the longest patience.
pub const TICKS_OF_READ: u64 = 64;
/// A tick is a millisecond at least.
pub const READ_MIN: Duration = Duration::from_millis(TICKS_OF_READ);
/// Below this a read counts as in time: a tick more or less is not significant.
const DEADLINE_TICKS_MIN: u64 = 4;
/// A drive that rotates serves what is near before what has waited, for half a second or so: of two
/// seconds, three quarters of one. With an eighth of a second, mirrors of the modelled drive lost a
/// tenth of what streams reach.
const ROTATING_TICKS_MIN: u64 = 24;
/// How long it counts that a member was slow or late.
pub const WINDOW: Duration = Duration::from_secs(600);

/// A number of ticks.
pub type Ticks = u64;

impl Deadlines {
    /// The time between two checks of the operations in flight.
    pub fn tick(&self) -> Duration {
        let longest = self.read.or(self.deadline).unwrap_or(WINDOW);
        (longest / TICKS_OF_READ as u32).max(Duration::from_millis(1))
    }

    /// When a read is slow at the latest.
    pub fn read_ticks(&self) -> Ticks {
        self.read.map_or(Ticks::MAX, |_| TICKS_OF_READ)
    }

    /// When a member is hung.
    pub fn deadline_ticks(&self) -> Ticks {
        let Some(deadline) = self.deadline else { return Ticks::MAX };
        let ticks = deadline.as_nanos().div_ceil(self.tick().as_nanos());
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
    pub fn deadlines(&self, motion: Motion, longest: Ticks) -> Ticks {
        let least = match motion {
            Motion::Rotating => ROTATING_TICKS_MIN,
            Motion::None => DEADLINE_TICKS_MIN,
        };
        let usual = (4 * self.mean + 8 * self.spread).div_ceil(Self::ONE);
        match self.samples < Self::SAMPLES_MIN || longest == Ticks::MAX {
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

/// When one member was slow, or late. All that was so together is one spell: a drive that tries a
/// bad sector again and again keeps its whole queue waiting, and has been slow once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventWindow {
    /// Oldest first, no more than [`Self::KEPT_MAX`].
    begun: VecDeque<Instant>,
}

impl EventWindow {
    /// The maximum that are distinguished.
    pub const KEPT_MAX: usize = 100;

    /// It was so at `now`; within `apart` of the newest spell it is the same. How many there have
    /// been within [`WINDOW`].
    pub fn note(&mut self, now: Instant, apart: Duration) -> u32 {
        if self.begun.back().is_none_or(|newest| now.since(*newest) >= apart) {
            self.begun.push_back(now);
        }
        let is_old = |begun: &Instant| now.since(*begun) > WINDOW;
        while self.begun.front().is_some_and(is_old) || self.begun.len() > Self::KEPT_MAX {
            self.begun.pop_front();
        }
        self.count(now)
    }

    /// # Panics
    /// Where they are not kept in their order, or too many are.
    pub fn self_check(&self) {
        assert!(self.begun.iter().is_sorted(), "one spell after the other");
        assert!(self.begun.len() <= Self::KEPT_MAX, "so many are told apart and no more");
    }

    /// How many there have been within [`WINDOW`].
    pub fn count(&self, now: Instant) -> u32 {
        self.begun.iter().filter(|begun| now.since(**begun) <= WINDOW).count() as u32
    }
}

/// What half of the newest reads of a member took no longer than, of those that were noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typical {
    newest: VecDeque<Duration>,
}

impl Typical {
    /// The number of sampled reads: few, so that a member that is hardly read any more, since it is
    /// slow, is soon judged by its current speed.
    const READS: usize = 16;

    /// A read took so long.
    pub fn note(&mut self, took: Duration) {
        if self.newest.len() == Self::READS {
            self.newest.pop_front();
        }
        self.newest.push_back(took);
    }

    /// Nothing before the first read.
    pub fn time(&self) -> Option<Duration> {
        let mut newest: Vec<Duration> = self.newest.iter().copied().collect();
        newest.sort_unstable();
        newest.get(newest.len() / 2).copied()
    }
}

/// Waits until the deadline, where there is one, for what is done to a device that is not used as a
/// member yet, or never will be.
///
/// # Errors
/// Its own, or that it is not complete by then: it continues in the background.
pub async fn in_time<T: 'static>(
    runtime: &Runtime,
    device: &DeviceName,
    deadline: Option<Duration>,
    act: impl Future<Output = Result<T, DeviceError>> + 'static,
) -> Result<T, DeviceError> {
    let Some(after) = deadline else { return act.await };
    let acted = runtime.deadline(runtime.now() + after, act).await;
    acted.unwrap_or_else(|_| Err(DeviceError::new(device, Cause::Timeout { after })))
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
        assert_eq!(after([0; 63]).deadlines(Motion::None, 64), 64);
        assert_eq!(after([0; 64]).deadlines(Motion::None, 64), DEADLINE_TICKS_MIN);
    }

    #[test]
    fn patience_follows_what_is_usual_up_to_the_longest() {
        let busy = after((0..1000).map(|n| 5 + n % 4));
        assert!(
            (24..50).contains(&busy.deadlines(Motion::None, 64)),
            "{}",
            busy.deadlines(Motion::None, 64)
        );
        assert_eq!(after([100; 500]).deadlines(Motion::None, 64), 64);
    }

    #[test]
    fn one_slow_member_of_ten_does_not_teach_that_this_is_usual() {
        let one_in_ten = (0..1000).map(|n| if n % 10 == 0 { 64 } else { 0 });
        assert!(after([0; 1000]).deadlines(Motion::None, 640) == DEADLINE_TICKS_MIN);
        assert!(after(one_in_ten).lateness(64) == 64);
    }

    #[test]
    fn no_member_is_late_where_all_are_slow() {
        assert!(after([200; 1000]).lateness(64) > 600);
    }

    const EVENT_GAP: Duration = Duration::from_secs(2);

    #[test]
    fn spells_count_within_a_window_that_goes_on_with_time() {
        let mut events = EventWindow::default();
        let at = |n: u32| Instant::START + n * EVENT_GAP;
        assert!((1..=8).all(|n| events.note(at(n), EVENT_GAP) == n));
        assert_eq!(events.count(at(3) + WINDOW), 6, "the first two are long ago");
        assert_eq!(events.note(at(9) + WINDOW, EVENT_GAP), 1);
        assert_eq!(events.count(at(9) + 3 * WINDOW), 0);
    }

    #[test]
    fn a_queue_that_waits_for_one_sector_is_one_spell() {
        let mut events = EventWindow::default();
        let at = |n: u64| Instant::from_nanos(n * 1_000_000);
        assert!((0..1000).all(|n| events.note(at(n), EVENT_GAP) == 1));
    }

    #[test]
    fn a_member_that_is_always_slow_takes_no_more_memory() {
        let mut events = EventWindow::default();
        let at = |n: u64| Instant::from_nanos(n * 100_000_000);
        (0..1000).for_each(|n| _ = events.note(at(n), EVENT_GAP / 20));
        assert_eq!(events.begun.len(), EventWindow::KEPT_MAX);
    }

    #[test]
    fn the_typical_time_ignores_a_few_and_follows_lasting_changes() {
        let mut typical = Typical::default();
        assert_eq!(typical.time(), None);
        let mut note = |millis| {
            typical.note(Duration::from_millis(millis));
            typical.time().unwrap().as_millis()
        };
        (0..100).for_each(|_| assert_eq!(note(5), 5));
        (0..7).for_each(|_| assert_eq!(note(3000), 5));
        assert_eq!((0..2).map(|_| note(3000)).last(), Some(3000));
    }

    #[test]
    fn a_deadline_is_never_shorter_than_the_longest_patience() {
        let odd = Deadlines {
            read: Some(Duration::from_secs(9)),
            deadline: Some(Duration::from_secs(1)),
            ..Deadlines::default()
        };
        assert!(odd.deadline_ticks() >= odd.read_ticks());
        assert!((960..=961).contains(&Deadlines::default().deadline_ticks()));
    }

    #[test]
    fn a_limit_that_is_not_set_never_expires() {
        let none = Deadlines { read: None, deadline: None, timeouts_max: None };
        assert_eq!((none.read_ticks(), none.deadline_ticks()), (Ticks::MAX, Ticks::MAX));
        assert_eq!(after([0; 500]).deadlines(Motion::None, none.read_ticks()), Ticks::MAX);
        let deadline = Deadlines { read: None, ..Deadlines::default() };
        assert_eq!(deadline.deadline_ticks(), TICKS_OF_READ);
    }
}
