//! What a modelled drive is asked, how it answers, and what every such drive is to its device.

use headpond_block::{ByteRange, Instant};

/// Names a command until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    Read,
    Write,
    /// A write that is answered when it is on the medium.
    WriteThrough,
    Flush,
    /// Only for drives that take such: what the range held is no longer needed.
    Discard,
}

#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub kind: CommandKind,
    /// In whole sectors of 512 bytes; empty for a flush.
    pub range: ByteRange,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    pub at: Instant,
    pub tag: Tag,
}

/// A drive as a pure machine: commands and times in, answers with times out. Between calls it has
/// lived through everything that lay between; how late the caller looks changes nothing.
pub trait Machine {
    /// Hands over a command at `now`, or at the machine's own time if that is later.
    fn submit(&mut self, now: Instant, command: Command) -> Tag;

    /// The earliest time at which a command may be answered, if any waits; at that time it may turn
    /// out to be later.
    fn next_answer(&self) -> Option<Instant>;

    /// The next answer that is due at `now`, in the order of time.
    fn take_answer(&mut self, now: Instant) -> Option<Answer>;

    /// Whether the drive wants to hear of discards.
    fn takes_discards(&self) -> bool {
        false
    }

    /// Whether the host sends flushes at all: not to a drive that reports no volatile cache.
    fn is_sent_flushes(&self) -> bool {
        true
    }
}
