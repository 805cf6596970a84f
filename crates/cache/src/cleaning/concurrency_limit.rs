//! The cleaner's concurrency limit under client reads: as many writes to the core as keep read
//! latency close to that without cleaning.
//!
//! A read miss waits in the drives' queues for the cleaner's writes, and a client waits for it; no
//! request waits for the cleaner while there is space. Read latency without cleaning is measured
//! whenever the cleaner pauses; where it does not, it is paused briefly from time to time.
//!
//! 1. Reads without concurrent cleaning give the base latency; 2. the others adjust the limit:
//!    times the target latency, divided by the measured one; 3. where too much is dirty, and
//!    without reads, there is no limit.
//!
//! **Source**: the limit by the ratio of two latencies is TCP Vegas's idea (Brakmo and Peterson,
//! 1995), the pause BBR's (Cardwell et al., 2016), which lowers its window every ten seconds to see
//! the round trip without its own queue.

use headpond_block::Instant;
use std::time::Duration;

/// What reads may take in the mean, by what they take without the cleaner. On forty modelled disks
/// the slowest of a hundred takes 1.6 to 2.3 times as long then, and a fifth to a third is cleaned
/// of what is cleaned without readers.
const AIM: f64 = 1.5;
/// Most that the limit changes by in one step, downwards and upwards.
const STEP: (f64, f64) = (0.5, 1.25);
/// Reads of a mean, and the time that it covers, at least: in less, those that are answered are the
/// quick ones.
const READS: u32 = 16;
const BESIDE_MIN: Duration = Duration::from_millis(250);
const QUIET_MIN: Duration = Duration::from_millis(100);
/// So long after a read began or ended the next one is expected.
const EXPECTED: Duration = Duration::from_secs(1);
/// What is known of reads alone is believed so long.
const BELIEVED: Duration = Duration::from_secs(20);
/// So long the cleaner rests at most to have it found out.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Until anything is known.
const WRITES_AT_FIRST: f64 = 16.0;
/// Per cent of what may be dirty from which on the limit rises, and where it has ended.
const URGENT_FROM: u64 = 80;
const URGENT_AT: u64 = 90;

/// Learns from each read of the core that a client waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConcurrencyLimit {
    writes: f64,
    /// What a read takes without the cleaner, and until when that is believed.
    alone: Option<Duration>,
    believed_until: Instant,
    /// Reads that met no write of the cleaner, since the last mean of them.
    quiet: Mean,
    /// Reads beside writes, since the limit was changed.
    beside: Mean,
    /// The cleaner rests until then at most, to see what a read takes.
    look_until: Option<Instant>,
    read_at: Option<Instant>,
}

/// A read that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientRead {
    pub begun: Instant,
    /// Writes of the cleaner that had begun before it, where all of them had ended and were
    /// flushed.
    pub after: Option<u64>,
}

/// What the cleaner has at the core when a read ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    /// Writes that have ever begun.
    pub begun: u64,
    /// Those that are under way.
    pub writes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u32,
    sum: Duration,
    /// When the first of them began.
    since: Option<Instant>,
}

impl Mean {
    /// A read that ended now.
    fn add(&mut self, begun: Instant, now: Instant) {
        self.count += 1;
        self.sum += now.since(begun);
        self.since.get_or_insert(begun);
    }

    /// Where there are enough for one, over time enough.
    fn take_whole(&mut self, now: Instant, covers: Duration) -> Option<Duration> {
        let is_whole =
            self.count >= READS && self.since.is_some_and(|since| now.since(since) >= covers);
        if is_whole { self.take() } else { None }
    }

    /// Of however many there are.
    fn take(&mut self) -> Option<Duration> {
        let Self { count, sum, .. } = std::mem::take(self);
        (count > 0).then(|| sum / count)
    }
}

impl Default for ConcurrencyLimit {
    fn default() -> Self {
        Self {
            writes: WRITES_AT_FIRST,
            alone: None,
            believed_until: Instant::START,
            quiet: Mean::default(),
            beside: Mean::default(),
            look_until: None,
            read_at: None,
        }
    }
}

impl ConcurrencyLimit {
    /// A client's read of the core begins.
    pub fn read_begins(&mut self, now: Instant) {
        self.read_at = Some(now);
    }

    /// It has been answered.
    pub fn read_ends(&mut self, read: ClientRead, now: Instant, beside: Beside) {
        self.read_at = Some(now);
        if read.after == Some(beside.begun) {
            self.quiet.add(read.begun, now);
            let mean = self.quiet.take_whole(now, QUIET_MIN);
            self.learn_alone(now, mean);
        } else {
            self.beside.add(read.begun, now);
            self.change(now, beside.writes);
        }
    }

    /// Writes that may be under way now of so many that the core could use, where so much is dirty
    /// of what may be; `None` without a limit.
    pub fn of(&mut self, now: Instant, depth: u32, dirty_data: (u64, u64)) -> Option<u32> {
        let is_read = self.read_at.is_some_and(|at| now.since(at) < EXPECTED);
        let percent = dirty_data.0 * 100 / dirty_data.1.max(1);
        if !is_read || percent >= URGENT_AT {
            self.look_until = None;
            return None;
        }
        if percent < URGENT_FROM && self.is_looking(now) {
            return Some(0);
        }
        let urgency = percent.saturating_sub(URGENT_FROM) as f64 / (URGENT_AT - URGENT_FROM) as f64;
        let limit = self.writes.min(f64::from(depth));
        Some((limit + (f64::from(depth) - limit) * urgency) as u32)
    }

    /// When to ask again though nothing has happened; not what is past, which the cleaner may be
    /// kept from for long.
    pub fn ask_again(&self, now: Instant) -> Option<Instant> {
        self.look_until.filter(|until| *until > now)
    }

    /// Whether the cleaner is to rest, so that reads are seen without it.
    fn is_looking(&mut self, now: Instant) -> bool {
        match self.look_until {
            None if now >= self.believed_until => self.look_until = Some(now + LOOK_MAX),
            Some(until) if now >= until => {
                self.look_until = None;
                // Few say more than what was long ago, and none no less.
                self.believed_until = now + BELIEVED;
                let mean = self.quiet.take();
                self.learn_alone(now, mean);
            }
            None | Some(_) => {}
        }
        self.look_until.is_some()
    }

    fn learn_alone(&mut self, now: Instant, mean: Option<Duration>) {
        if mean.is_some() {
            self.alone = mean;
            self.believed_until = now + BELIEVED;
            self.look_until = None;
            // What was seen before is not of the same company.
            self.beside = Mean::default();
        }
    }

    fn change(&mut self, now: Instant, writes: u32) {
        let Some(alone) = self.alone else { return };
        let Some(mean) = self.beside.take_whole(now, BESIDE_MIN) else { return };
        let aim = alone.as_secs_f64() * AIM;
        let step = (aim / mean.as_secs_f64().max(f64::EPSILON)).clamp(STEP.0, STEP.1);
        // Who has had fewer under way has learnt nothing of more.
        if step < 1.0 || f64::from(writes) >= self.writes * 0.75 {
            self.writes = (self.writes * step).clamp(1.0, f64::from(u16::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one after the other at an array that takes 12 ms for one, and as much again for each
    /// 20 writes beside it.
    struct Reader {
        concurrency_limit: ConcurrencyLimit,
        now: Instant,
        begun: u64,
    }

    impl Reader {
        fn new() -> Self {
            let now = Instant::START + Duration::from_secs(100);
            Self { concurrency_limit: ConcurrencyLimit::default(), now, begun: 0 }
        }

        /// How many writes there were beside it, of 500.
        fn read(&mut self, percent: u64) -> u32 {
            self.concurrency_limit.read_begins(self.now);
            let writes = self.concurrency_limit.of(self.now, 500, (percent, 100)).unwrap_or(500);
            let read = ClientRead { begun: self.now, after: (writes == 0).then_some(self.begun) };
            self.begun += u64::from(writes);
            self.now += Duration::from_micros(12_000 + 600 * u64::from(writes));
            let beside = Beside { begun: self.begun, writes };
            self.concurrency_limit.read_ends(read, self.now, beside);
            writes
        }
    }

    #[test]
    fn reads_take_as_long_as_is_aimed_at_and_are_looked_at_alone_now_and_then() {
        let mut reader = Reader::new();
        let writes: Vec<u32> = (0..4000).map(|_| reader.read(50)).collect();
        let alone = writes.iter().filter(|writes| **writes == 0).count();
        assert_eq!(writes[..16], [0; 16]);
        assert!(alone as u32 >= 3 * READS && alone < 200, "{alone} of 4000");
        let mut settled = writes[500..].iter().filter(|writes| **writes > 0);
        assert!(settled.all(|writes| (8..=12).contains(writes)), "{writes:?}");
    }

    #[test]
    fn more_is_taken_where_too_much_is_dirty_and_all_of_it_at_last() {
        let mut reader = Reader::new();
        (0..500).for_each(|_| _ = reader.read(50));
        let [some, more, all] = [80, 85, 90].map(|percent| reader.read(percent));
        assert!((8..=12).contains(&some), "{some}");
        assert!((200..=300).contains(&more), "{more}");
        assert_eq!(all, 500);
    }

    #[test]
    fn nobody_is_left_way_who_does_not_come() {
        let mut reader = Reader::new();
        assert_eq!(reader.concurrency_limit.of(reader.now, 500, (50, 100)), None);
        (0..100).for_each(|_| _ = reader.read(50));
        let at = |reader: &mut Reader, ms| {
            let now = reader.now + Duration::from_millis(ms);
            reader.concurrency_limit.of(now, 500, (50, 100))
        };
        assert!(at(&mut reader, 999).is_some_and(|writes| writes < 20));
        assert_eq!(at(&mut reader, 1000), None);
    }

    #[test]
    fn a_look_ends_though_no_read_is_answered() {
        let (mut concurrency_limit, now) =
            (ConcurrencyLimit::default(), Instant::START + Duration::from_secs(9));
        concurrency_limit.read_begins(now);
        assert_eq!(concurrency_limit.of(now, 500, (50, 100)), Some(0));
        let until = concurrency_limit.ask_again(now).unwrap();
        assert_eq!(concurrency_limit.ask_again(until), None, "nobody is woken over and over");
        concurrency_limit.read_begins(until);
        assert_eq!(concurrency_limit.of(until, 500, (50, 100)), Some(WRITES_AT_FIRST as u32));
        assert_eq!(concurrency_limit.ask_again(now), None);
    }
}
