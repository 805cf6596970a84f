//! What a drive is asked, and how it answers.

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
