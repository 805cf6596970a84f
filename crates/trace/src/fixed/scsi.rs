//! What SCSI's commands ask for, as far as traces hold them.
//!
//! **Source**: T10, SBC-4, table of commands.

use crate::record::Op;

/// What `command` asks of the data; `None` for commands that concern none.
pub(crate) fn operation(command: u16) -> Option<Op> {
    match command {
        // Read and write of 6, 10, 12, 16 bytes.
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a => Some(Op::Write),
        // Synchronize cache of 10, 16 bytes.
        0x35 | 0x91 => Some(Op::Flush),
        // Write same of 10, 16 bytes.
        0x41 | 0x93 => Some(Op::WriteZeroes),
        0x42 => Some(Op::Discard),
        _ => None,
    }
}

/// True for a number that is a command at all: those above are of one byte.
pub(crate) fn is_command(command: u16) -> bool {
    command <= 0xff
}
