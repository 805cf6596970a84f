//! Eviction: which lines are *resident*, that is, copied forward when their segment is reclaimed.
//!
//! A policy decides within a capacity in lines, each of which counts in full, also if partly valid.
//! Evicting costs no I/O: an evicted line is no longer marked in the map, and reclaim drops it with
//! its segments. Until then it is mapped and served, and a hit inserts it again.
//!
//! 1. [`Policy::insert`] inserts a line that was not resident, and marks and unmarks through
//!    [`Residents`]; 2. a hit raises the mark's frequency, which is all that `fifo` and `s3-fifo`
//!    need, or is reported to the policy ([`Hits::Ordered`]); 3. an invalidated mapping loses its
//!    mark, which is reported to policies with an order of their own.
//!
//! **Invariants**
//! - No more lines are resident than the capacity.
//! - The marks are authoritative; a policy's queues may contain other lines, which it skips.
//!
//! **Not here**: when space is freed and what that costs (`reclaim`), promotion (`admission`).

mod arc;
mod directory;
mod fifo;
mod ghost;
mod lanes;
mod lru;
mod miniature;
mod s3_fifo;
mod shadow;
mod shares;
#[cfg(test)]
mod shares_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twins;

pub use miniature::{MINIATURE_BLOCKS, Miniature};
pub use shadow::{ShadowStats, Shadows};
pub use shares::{ClassKey, KEYS, Shares};

use crate::types::CoreLine;
use lanes::Lanes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which lines leave the cache first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionPolicy {
    /// A short queue in front of a long one: what is asked for once does not displace the rest.
    #[default]
    S3Fifo,
    /// What was asked for longest ago.
    Lru,
    /// Recency and frequency, balanced by what was missed.
    Arc,
    /// What entered longest ago.
    Fifo,
    /// Whichever of these misses least in a sample of the requests.
    Adaptive,
}

impl EvictionPolicy {
    /// Those that are policies themselves.
    pub const PLAIN: [Self; 4] = [Self::S3Fifo, Self::Lru, Self::Arc, Self::Fifo];

    pub fn word(self) -> &'static str {
        match self {
            Self::S3Fifo => "s3-fifo",
            Self::Lru => "lru",
            Self::Arc => "arc",
            Self::Fifo => "fifo",
            Self::Adaptive => "adaptive",
        }
    }

    /// The policy, empty, for so many residents in so many groups, of a core of `core_lines`.
    ///
    /// # Panics
    /// For `Adaptive`, which is none by itself.
    pub(crate) fn make(self, capacity: u64, core_lines: u64, groups: usize) -> Box<dyn Policy> {
        match self {
            Self::S3Fifo => Box::new(s3_fifo::S3Fifo::new(capacity, core_lines, groups)),
            Self::Lru => Box::new(lru::Lru::new(capacity, groups)),
            Self::Arc => Box::new(arc::Arc::new(capacity, groups)),
            Self::Fifo => Box::new(fifo::Fifo::new(capacity, core_lines, groups)),
            Self::Adaptive => panic!("adaptive chooses among policies"),
        }
    }
}

/// Who stays in the cache, by which policy, and why that one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvictionStats {
    pub setting: EvictionPolicy,
    /// In use.
    pub policy: EvictionPolicy,
    /// A line that is resident counts whole.
    pub resident_bytes: u64,
    pub resident_bytes_max: u64,
    /// How often `adaptive` has chosen another one.
    pub changes: u64,
    /// How each would have done on a sample of the requests, where `adaptive` compares them.
    pub sampled: Vec<ShadowStats>,
}

/// Lines among which a policy chooses whom to evict: those of classes that stand alike. Without
/// classes there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Group(pub u8);

impl Group {
    pub const FIRST: Self = Self(0);

    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What the map keeps of a line for the policies: four bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Heat(u8);

impl Heat {
    /// Not resident.
    pub const NONE: Self = Self(0);
    pub const SMALL: Self = Self(Self::IS_RESIDENT);
    pub const MAIN: Self = Self(Self::IS_RESIDENT | Self::IS_MAIN);

    const FREQUENCY: u8 = 3;
    const IS_RESIDENT: u8 = 4;
    const IS_MAIN: u8 = 8;

    #[inline]
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 15)
    }

    #[inline]
    pub fn bits(self) -> u8 {
        self.0
    }

    #[inline]
    pub fn is_resident(self) -> bool {
        self.0 & Self::IS_RESIDENT != 0
    }

    #[inline]
    pub fn is_in_main(self) -> bool {
        self.0 & Self::MAIN.0 == Self::MAIN.0
    }

    /// Hits since it was taken in, or came to the front; at most 3.
    #[inline]
    pub fn frequency(self) -> u8 {
        self.0 & Self::FREQUENCY
    }

    #[inline]
    pub fn is_hottest(self) -> bool {
        self.frequency() == Self::FREQUENCY
    }

    /// One hit later.
    #[inline]
    pub fn warmer(self) -> Self {
        Self(self.0 + u8::from(!self.is_hottest()))
    }

    pub fn cooler(self) -> Self {
        Self(self.0 - u8::from(self.frequency() > 0))
    }
}

/// How many lines are resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Held {
    pub all: u64,
    /// Those of them in the main queue.
    pub main: u64,
}

impl Held {
    pub fn small(self) -> u64 {
        self.all - self.main
    }

    #[inline]
    pub fn add(&mut self, heat: Heat) {
        self.all += u64::from(heat.is_resident());
        self.main += u64::from(heat.is_in_main());
    }

    #[inline]
    pub fn subtract(&mut self, heat: Heat) {
        self.all -= u64::from(heat.is_resident());
        self.main -= u64::from(heat.is_in_main());
    }
}

/// The marks of the lines that are mapped.
pub trait Residents {
    /// Of a line that is not mapped, not resident, or of another group: none.
    fn heat(&self, line: CoreLine, group: Group) -> Heat;

    /// Marks a line by what its mark was, which is answered; nothing where it is not resident in
    /// that group.
    fn change(&mut self, line: CoreLine, group: Group, change: fn(Heat) -> Heat) -> Heat;

    fn held(&self, group: Group) -> Held;

    /// A line will be asked about soon: what has to be looked at for it may be brought near, a
    /// step each time that this is called.
    fn prefetch(&self, _line: CoreLine, _step: u32) {}
}

/// What a policy wants to know of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// The frequency in the mark, at most.
    Counted,
    /// Each one.
    Ordered,
}

/// Bytes that a policy has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PolicyMemory {
    pub queues: u64,
    /// For lines that are not resident.
    pub ghosts: u64,
}

/// Decides who is resident. No I/O, no clock.
pub trait Policy {
    fn hits(&self) -> Hits;

    /// Takes in a mapped line that is not resident; others of its group leave where that holds the
    /// whole capacity. Answers how the caller is to mark it.
    #[must_use]
    fn insert(&mut self, line: CoreLine, group: Group, residents: &mut dyn Residents) -> Heat;

    /// The same of a line that may have had a mark, in another life or for another policy. It keeps
    /// that where this policy does not ask for it: the next one may.
    #[must_use]
    fn insert_again(
        &mut self,
        line: CoreLine,
        group: Group,
        was: Heat,
        residents: &mut dyn Residents,
    ) -> Heat {
        let heat = self.insert(line, group, residents);
        if was.is_resident() { was } else { heat }
    }

    /// The next one of a group that has residents leaves, or an entry that names none.
    fn evict(&mut self, group: Group, residents: &mut dyn Residents);

    /// A resident line was asked for; only where hits are `Ordered`.
    fn hit(&mut self, _line: CoreLine) {}

    /// A line will be taken in soon: what has to be looked at for it may be brought near.
    fn prefetch(&self, _line: CoreLine) {}

    /// The mapping of a line has ended, and its mark with it.
    fn remove(&mut self, _line: CoreLine) {}

    fn memory(&self) -> PolicyMemory;

    /// Checks that each resident has its place in a queue, so that it can leave; for tests and
    /// simulation.
    ///
    /// # Panics
    /// Where one has none.
    fn self_check(&self, residents: &dyn Residents);
}

/// How many lines that a queue names are resident in it, by their marks.
fn residents_in(
    named: impl IntoIterator<Item = CoreLine>,
    group: Group,
    residents: &dyn Residents,
    is_in_it: impl Fn(Heat) -> bool,
) -> u64 {
    let named: std::collections::BTreeSet<CoreLine> = named.into_iter().collect();
    named.into_iter().filter(|line| is_in_it(residents.heat(*line, group))).count() as u64
}

/// Not resident any more.
fn cold(_: Heat) -> Heat {
    Heat::NONE
}

/// A policy whose queues do not lose the entries of mappings that end, nor of lines that change
/// their group.
trait Queued: Policy {
    fn lanes(&self) -> &Lanes;

    /// Most residents.
    fn capacity(&self) -> u64;

    /// Passes over an entry whose mapping ended, or puts one back that is in use.
    fn tidy(&mut self, residents: &dyn Residents);

    /// Takes an entry out of the queue that has the most to pass over, whoever leaves with it.
    fn shorten(&mut self, residents: &mut dyn Residents);

    /// For one resident more of a group, and its entry.
    fn make_room(&mut self, group: Group, residents: &mut dyn Residents) {
        while residents.held(group).all >= self.capacity() {
            self.evict(group, residents);
        }
        let mut turns = self.lanes().len();
        while self.lanes().is_full() {
            match turns {
                // Entries of one line that came and ended again and again, and is here now.
                0 => self.shorten(residents),
                _ => self.tidy(residents),
            }
            turns = turns.saturating_sub(1);
        }
    }
}

/// Entries of queues that do not lose them when mappings end: an eighth more than there can be
/// residents. Where even that is full, they are tidied up, an entry in eight at least.
fn entries_max(capacity: u64) -> u64 {
    capacity + capacity / 8 + 1
}
