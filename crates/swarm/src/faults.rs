//! The faults that a life may meet, and what a volume may do about each.

mod cache_ills;

pub(crate) use cache_ills::CacheIll;

use crate::topology::Topology;
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BLOCK_BYTES, ByteRange, RequestKind};
use headpond_sim::Random;
use std::fmt;
use std::time::Duration;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    /// A block of a member cannot be read until it is written again.
    MemberLatent {
        member: usize,
        block: ByteRange,
    },
    MemberSlow {
        member: usize,
        delay: Duration,
        times: u64,
    },
    /// A write of a member fails.
    MemberWrite {
        member: usize,
    },
    MemberFlush {
        member: usize,
    },
    MemberGone {
        member: usize,
    },
    /// Of the cache device; or of one of them, where the cache lies on several.
    Cache {
        copy: Option<usize>,
        ill: CacheIll,
    },
    /// A write of the stripe journal fails.
    JournalWrite,
    JournalGone,
    /// A member stops to answer, for as long as the life lasts.
    Hang {
        member: usize,
    },
}

/// How a stable block of the cache device changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    Flip,
    /// It holds what it held before its last write, which was lost.
    Revert,
    /// It holds what was meant for another block.
    Misplace,
}

/// Which faults a case draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// Nothing that explains an error.
    Array,
    /// The cache device, too, is unreliable.
    Cache,
}

impl Ill {
    /// One that a volume survives, as often as it comes.
    pub fn draw_mild(theme: Theme, topology: &Topology, random: &mut Random) -> Self {
        let member = random.below(topology.members as u64) as usize;
        let has_cache = topology.cache.is_some();
        let times = 1 + random.below(4);
        let delay = Duration::from_millis(5 << random.below(6));
        let slow_times = times * 20;
        if theme == Theme::Cache && has_cache && !random.one_in(3) {
            return Self::of_cache(match random.below(9) {
                0 => CacheIll::Reads { times },
                1 => CacheIll::ReadsWrong { times },
                2 => CacheIll::Flush,
                3 | 4 => CacheIll::Damage(Damage::Flip),
                5 | 6 => CacheIll::Damage(Damage::Revert),
                _ => CacheIll::Damage(Damage::Misplace),
            });
        }
        match random.below(5) {
            0 if has_cache => Self::of_cache(CacheIll::Slow { delay, times: slow_times }),
            0 | 1 => Self::MemberSlow { member, delay, times: slow_times },
            _ => {
                let blocks = topology.window_on_member().split_at_multiples(BLOCK_BYTES);
                let blocks: Vec<ByteRange> = blocks.collect();
                Self::MemberLatent { member, block: *random.pick(&blocks) }
            }
        }
    }

    /// One that costs a device, or the life.
    pub fn draw_severe(theme: Theme, topology: &Topology, random: &mut Random) -> Self {
        let member = random.below(topology.members as u64) as usize;
        let has_cache = topology.cache.is_some();
        if theme == Theme::Cache && has_cache && !random.one_in(4) {
            return Self::of_cache(match random.below(3) {
                0 => CacheIll::Writes { times: 1 + random.below(3) },
                _ => CacheIll::Gone,
            });
        }
        match random.below(8) {
            0 | 1 => Self::MemberWrite { member },
            2 => Self::MemberFlush { member },
            3 if has_cache => Self::of_cache(CacheIll::Hang),
            3 | 4 => Self::Hang { member },
            _ => Self::MemberGone { member },
        }
    }

    fn of_cache(ill: CacheIll) -> Self {
        Self::Cache { copy: None, ill }
    }

    /// The damage of a block of the cache that it is, and on which of several devices.
    pub fn damage(self) -> Option<(Option<usize>, Damage)> {
        match self {
            Self::Cache { copy, ill: CacheIll::Damage(damage) } => Some((copy, damage)),
            _ => None,
        }
    }

    /// The member whose loss it may mean.
    pub fn costs_member(self) -> Option<usize> {
        match self {
            Self::MemberWrite { member }
            | Self::MemberFlush { member }
            | Self::MemberGone { member }
            | Self::Hang { member } => Some(member),
            _ => None,
        }
    }

    /// Whether what it takes is to come from the others.
    pub fn asks_redundancy(self) -> bool {
        matches!(self, Self::MemberLatent { .. }) || self.costs_member().is_some()
    }

    /// Whether it costs the stripe journal.
    pub fn costs_journal(self) -> bool {
        matches!(self, Self::JournalWrite | Self::JournalGone)
    }

    /// The member that it happens to; `None` for the cache device and the journal's.
    pub fn member(self) -> Option<usize> {
        match self {
            Self::MemberLatent { member, .. } | Self::MemberSlow { member, .. } => Some(member),
            _ => self.costs_member(),
        }
    }

    /// What the device does, where it is the device that does it.
    pub fn rule(self) -> Option<FaultRule> {
        let on =
            |kind, fault, times| FaultRule { times: Some(times), ..FaultRule::on(kind, fault) };
        Some(match self {
            Self::MemberLatent { block, .. } => {
                let rule = FaultRule::on(RequestKind::Read, Fault::Latent);
                FaultRule { range: Some(block), ..rule }
            }
            Self::MemberSlow { delay, times, .. } => {
                FaultRule { kind: None, ..on(RequestKind::Read, Fault::Delay(delay), times) }
            }
            Self::MemberWrite { .. } => on(RequestKind::Write, Fault::Media, 1),
            Self::MemberFlush { .. } => on(RequestKind::Flush, Fault::Media, 1),
            Self::MemberGone { .. } | Self::JournalGone => {
                FaultRule { kind: None, ..FaultRule::on(RequestKind::Read, Fault::Gone) }
            }
            Self::JournalWrite => on(RequestKind::Write, Fault::Media, 1),
            Self::Hang { .. } => {
                FaultRule { kind: None, ..FaultRule::on(RequestKind::Read, Fault::Hang) }
            }
            Self::Cache { ill, .. } => return ill.rule(),
        })
    }

    /// What the counts call it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::MemberLatent { .. } => "member block unreadable",
            Self::MemberSlow { .. } => "member slow",
            Self::MemberWrite { .. } => "member write error",
            Self::MemberFlush { .. } => "member flush error",
            Self::MemberGone { .. } => "member gone",
            Self::Cache { copy, ill } => ill.kinds()[usize::from(copy.is_some())],
            Self::JournalWrite => "journal write error",
            Self::JournalGone => "journal gone",
            Self::Hang { .. } => "member hangs",
        }
    }

    /// The row of the fault table that it belongs to, whatever comes of it.
    pub fn row(self) -> Option<u8> {
        Some(match self {
            Self::MemberLatent { .. } => 29,
            Self::MemberSlow { .. } | Self::Hang { .. } => 39,
            Self::MemberWrite { .. } | Self::MemberGone { .. } => 32,
            Self::MemberFlush { .. } => 31,
            // What one copy cannot give the other has: dirty blocks as well.
            Self::Cache { copy: Some(_), ill: CacheIll::Reads { .. } } => 20,
            Self::Cache { ill, .. } => return ill.row(),
            Self::JournalWrite | Self::JournalGone => return None,
        })
    }
}

impl fmt::Display for Ill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind())?;
        if let Some(member) = self.member() {
            write!(f, " (member {member})")?;
        }
        if let Self::Cache { copy: Some(copy), .. } = self {
            write!(f, " (copy {copy})")?;
        }
        match self {
            Self::MemberLatent { block, .. } => write!(f, ", {} at {}", block.len(), block.start()),
            Self::Cache {
                ill:
                    CacheIll::Reads { times }
                    | CacheIll::ReadsWrong { times }
                    | CacheIll::Writes { times },
                ..
            } => write!(f, ", {times} times"),
            Self::MemberSlow { delay, times, .. }
            | Self::Cache { ill: CacheIll::Slow { delay, times }, .. } => {
                write!(f, ", {times} operations by {} ms", delay.as_millis())
            }
            _ => Ok(()),
        }
    }
}
