//! The comparison of what was found with what may be there.
//!
//! 1. [`Judge::look`] takes what was found, block by block, once each.
//! 2. [`Judge::rule`] says what came of it.
//!
//! The words: a promised value is *lost* where the block holds nothing of this run; *stale* where
//! it holds an older value of its own; *misdirected* where it holds what was written for another
//! place; *torn* where its sectors are parts of different values; a *third value* where it holds
//! what nobody wrote there. A loss is *reordered* where something survived elsewhere that began
//! after the device had promised what is lost: not even the order was kept.
//!
//! **Invariants**: the verdict is [`Verdict::Kept`] only where every block of the region was looked
//! at, nothing offends, and there was something that the device had promised to keep.

use super::book::{Block, Book, Settled};
use super::content::{BlockContent, Sector};
use crate::{BLOCK_BYTES, SECTOR_BYTES};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a block broke the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offence {
    Lost,
    Stale,
    Torn,
    Misdirected,
    ThirdValue,
    Unreadable,
}

/// What came of a look at the whole region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything that was promised is there, and nothing else that should not be.
    Kept,
    /// At least one block breaks the contract.
    Broken,
    /// Nothing offends, and nothing was promised either.
    NothingPromised,
    /// Nothing offends in what was looked at, and not everything was.
    Incomplete,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "everything that was promised is there",
            Self::Broken => "THE DEVICE HAS BROKEN ITS PROMISE",
            Self::NothingPromised => {
                "nothing to judge: the device had promised nothing (no flush was acknowledged)"
            }
            Self::Incomplete => "not judged: the look did not come to its end",
        })
    }
}

/// Blocks by what is wrong with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub lost: u64,
    pub stale: u64,
    pub torn: u64,
    pub misdirected: u64,
    pub third_value: u64,
    pub unreadable: u64,
    /// Of those that are lost or stale.
    pub reordered: u64,
}

/// The first block that offends, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstOffence {
    pub offence: Offence,
    /// Number of the block in the region.
    pub block: u64,
    pub found: String,
    pub allowed: String,
    /// What the witness has heard of the block, the newest lines of it.
    pub story: Vec<String>,
}

/// What the witness says of one look at a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    pub verdict: Verdict,
    pub counts: Counts,
    pub region_blocks: u64,
    pub blocks_looked_at: u64,
    /// Of these, blocks with a value that the device had promised to keep.
    pub blocks_promised: u64,
    /// Blocks whose newest acknowledged value was not promised yet: those that show it, and those
    /// that show an older one. Where some are gone, the cut has taken a volatile cache with it.
    pub unpromised_kept: u64,
    pub unpromised_gone: u64,
    /// Blocks that hold parts of values each of which is allowed, on a device that promises
    /// whole sectors only.
    pub torn_allowed: u64,
    /// Blocks that cannot be read, and that nothing was written to.
    pub unreadable_elsewhere: u64,
    /// Blocks that hold a value of this run, whichever.
    pub blocks_of_this_run: u64,
    pub writes_acknowledged: u64,
    pub flushes_acknowledged: u64,
    pub first: Option<FirstOffence>,
    /// Whether the machine that wrote has started anew since; unknown where it does not say.
    pub was_restarted: Option<bool>,
    /// The number of the cut since which nobody had looked.
    pub cut: Option<u64>,
    /// Whether a hook of the campaign cut the power.
    pub was_hooked: bool,
    /// What the look before came to, where nothing was written since: what that one showed is all
    /// that this one expects.
    #[serde(default)]
    pub before: Option<Verdict>,
    /// Seconds since 1970, by the witness's clock.
    pub at: u64,
}

impl Counts {
    pub fn total(&self) -> u64 {
        let Self { lost, stale, torn, misdirected, third_value, unreadable, reordered: _ } = self;
        lost + stale + torn + misdirected + third_value + unreadable
    }

    fn add(&mut self, offence: Offence) {
        *match offence {
            Offence::Lost => &mut self.lost,
            Offence::Stale => &mut self.stale,
            Offence::Torn => &mut self.torn,
            Offence::Misdirected => &mut self.misdirected,
            Offence::ThirdValue => &mut self.third_value,
            Offence::Unreadable => &mut self.unreadable,
        } += 1;
    }
}

/// Looks at a region block by block.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The device never tears an aligned piece of so many bytes: a sector or a block.
    atom_bytes: u64,
    next: u64,
    counts: Counts,
    first: Option<(Offence, u64, BlockContent)>,
    /// Of lost and stale blocks: the newest announced write when their value was promised.
    promised_at: Vec<u64>,
    newest_found: u64,
    tally: RulingTally,
    /// What each block that was looked at holds of this run, for the book.
    settled: Vec<Settled>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RulingTally {
    promised: u64,
    unpromised_kept: u64,
    unpromised_gone: u64,
    torn_allowed: u64,
    unreadable_elsewhere: u64,
    of_this_run: u64,
}

impl Judge {
    pub fn new(atom_bytes: u64) -> Self {
        Self {
            atom_bytes,
            next: 0,
            counts: Counts::default(),
            first: None,
            promised_at: Vec::new(),
            newest_found: 0,
            tally: RulingTally::default(),
            settled: Vec::new(),
        }
    }

    /// The block that is to be looked at next.
    pub fn next_block(&self) -> u64 {
        self.next
    }

    /// Takes what the next block was found to hold.
    ///
    /// # Panics
    /// Behind the end of the region.
    pub fn look(&mut self, book: &Book, found: &BlockContent) {
        let at = self.next;
        let known = book.block(at);
        self.next += 1;
        self.tally.promised += u64::from(known.promised > 0);
        let own = own_value(found, at * BLOCK_BYTES);
        self.tally.of_this_run += u64::from(own.is_some());
        self.newest_found = self.newest_found.max(own.unwrap_or(0).min(book.newest));
        self.count_unpromised(known, own);
        let is_told = known.is_spoilt && known.promised == 0;
        let offence = self.offence(known, at * BLOCK_BYTES, found).filter(|_| !is_told);
        match offence {
            None if is_told => self.settled.push(Settled::Spoilt),
            None => self.settled.push(values(found)),
            Some(offence) => {
                self.counts.add(offence);
                if matches!(offence, Offence::Lost | Offence::Stale) {
                    self.promised_at.push(known.promised_at);
                }
                if self.first.is_none() {
                    self.first = Some((offence, at, found.clone()));
                }
                self.settled.push(Settled::Spoilt);
            }
        }
    }

    fn count_unpromised(&mut self, known: &Block, own: Option<u64>) {
        if known.acknowledged > known.promised {
            let is_kept = own.is_some_and(|value| value >= known.acknowledged);
            self.tally.unpromised_kept += u64::from(is_kept);
            self.tally.unpromised_gone += u64::from(!is_kept);
        }
    }

    fn offence(&mut self, known: &Block, address: u64, found: &BlockContent) -> Option<Offence> {
        match found {
            BlockContent::Written { sequence, address: at } if *at == address => {
                value(known, *sequence)
            }
            BlockContent::Written { .. } => Some(Offence::Misdirected),
            BlockContent::Zeroes | BlockContent::Foreign => nothing(known),
            BlockContent::Mixed(sectors) => self.mixture(known, address, sectors),
            BlockContent::Unreadable if known.possible > 0 => Some(Offence::Unreadable),
            BlockContent::Unreadable => {
                self.tally.unreadable_elsewhere += 1;
                None
            }
        }
    }

    fn mixture(&mut self, known: &Block, address: u64, sectors: &[Sector]) -> Option<Offence> {
        let each = sectors.iter().map(|sector| match sector {
            Sector::Written { sequence, address: at } if *at == address => value(known, *sequence),
            Sector::Written { .. } => Some(Offence::Misdirected),
            Sector::Zeroes | Sector::Foreign => nothing(known),
            Sector::Damaged => Some(Offence::ThirdValue),
        });
        let each: Vec<Offence> = each.flatten().collect();
        for grave in [Offence::ThirdValue, Offence::Misdirected] {
            if each.contains(&grave) {
                return Some(grave);
            }
        }
        if self.atom_bytes > SECTOR_BYTES {
            return Some(Offence::Torn);
        }
        self.tally.torn_allowed += u64::from(each.is_empty());
        each.first().copied()
    }

    /// Says what came of it, and takes what was found into the book where that is certain: all of
    /// the region was looked at, and the device was flushed since.
    pub fn rule(self, book: &mut Book, was_flushed: bool) -> Ruling {
        let is_complete = self.next == book.block_count();
        let mut counts = self.counts;
        let survived = |promised_at: &&u64| self.newest_found > **promised_at;
        counts.reordered = self.promised_at.iter().filter(survived).count() as u64;
        let verdict = match (counts.total(), is_complete, self.tally.promised) {
            (1.., ..) => Verdict::Broken,
            (0, false, _) => Verdict::Incomplete,
            (0, true, 0) => Verdict::NothingPromised,
            (0, true, 1..) => Verdict::Kept,
        };
        let first = self.first.map(|(offence, block, found)| FirstOffence {
            offence,
            block,
            found: describe(&found),
            allowed: allowed(book.block(block)),
            story: Vec::new(),
        });
        let ruling = Ruling {
            verdict,
            counts,
            region_blocks: book.block_count(),
            blocks_looked_at: self.next,
            blocks_promised: self.tally.promised,
            unpromised_kept: self.tally.unpromised_kept,
            unpromised_gone: self.tally.unpromised_gone,
            torn_allowed: self.tally.torn_allowed,
            unreadable_elsewhere: self.tally.unreadable_elsewhere,
            blocks_of_this_run: self.tally.of_this_run,
            writes_acknowledged: book.acknowledged_writes(),
            flushes_acknowledged: book.acknowledged_flushes(),
            first,
            was_restarted: None,
            cut: None,
            was_hooked: false,
            before: None,
            at: 0,
        };
        if is_complete && was_flushed {
            for (block, found) in self.settled.into_iter().enumerate() {
                book.settle(block as u64, found);
            }
        }
        ruling
    }
}

/// Judges a value of this run that was written for this block.
fn value(known: &Block, sequence: u64) -> Option<Offence> {
    if sequence > known.possible {
        Some(Offence::ThirdValue)
    } else if sequence < known.promised {
        Some(Offence::Stale)
    } else {
        None
    }
}

/// Judges that there is nothing of this run.
fn nothing(known: &Block) -> Option<Offence> {
    if known.is_known {
        // What lay there before the run was seen to be gone: it cannot be that.
        return Some(Offence::ThirdValue);
    }
    (known.promised > 0).then_some(Offence::Lost)
}

/// What an allowed content leaves to be found next time.
fn values(found: &BlockContent) -> Settled {
    let of = |sector: &Sector| match sector {
        Sector::Written { sequence, .. } => *sequence,
        Sector::Zeroes | Sector::Foreign | Sector::Damaged => 0,
    };
    let (oldest, newest) = match found {
        BlockContent::Written { sequence, .. } => (*sequence, *sequence),
        BlockContent::Zeroes | BlockContent::Foreign | BlockContent::Unreadable => (0, 0),
        BlockContent::Mixed(sectors) => {
            let values = sectors.iter().map(of);
            (values.clone().min().unwrap_or(0), values.max().unwrap_or(0))
        }
    };
    Settled::Values { oldest, newest }
}

fn own_value(found: &BlockContent, address: u64) -> Option<u64> {
    match found {
        BlockContent::Written { sequence, address: at } if *at == address => Some(*sequence),
        _ => None,
    }
}

fn describe(found: &BlockContent) -> String {
    match found {
        BlockContent::Written { sequence, address } => {
            format!("write {sequence} of byte {address}")
        }
        BlockContent::Zeroes => "zeros".to_owned(),
        BlockContent::Foreign => "nothing that this run has written".to_owned(),
        BlockContent::Unreadable => "a read error".to_owned(),
        BlockContent::Mixed(sectors) => {
            let words: Vec<String> = sectors.iter().map(describe_sector).collect();
            format!("sectors of different writes: {}", words.join(", "))
        }
    }
}

fn describe_sector(sector: &Sector) -> String {
    match sector {
        Sector::Written { sequence, address } => format!("write {sequence} of byte {address}"),
        Sector::Zeroes => "zeros".to_owned(),
        Sector::Foreign => "not of this run".to_owned(),
        Sector::Damaged => "damaged".to_owned(),
    }
}

fn allowed(known: &Block) -> String {
    let Block { promised, possible, acknowledged, .. } = *known;
    let from = match promised {
        0 => "what lay there before".to_owned(),
        _ => format!("write {promised}, which the device has promised to keep"),
    };
    match possible > promised {
        true => format!("{from}, up to write {possible} (write {acknowledged} was acknowledged)"),
        false => from,
    }
}

#[cfg(test)]
#[path = "ruling_tests.rs"]
mod tests;
