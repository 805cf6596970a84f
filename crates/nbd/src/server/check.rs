//! Validation of request headers.

use crate::codec::request::RequestHeader;
use crate::codec::wire::{Command, CommandFlags, WireError};
use crate::export_info::ExportInfo;
use headpond_block::{ByteRange, RequestFlags};

/// A valid request: in range, aligned, with flags that its command allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Read(ByteRange),
    Write(ByteRange, RequestFlags),
    Flush,
    Trim(ByteRange, RequestFlags),
    WriteZeroes(ByteRange, RequestFlags),
    Cache(ByteRange),
    Disconnect,
}

/// Bytes that follow the header on the wire, also of an invalid request.
pub fn payload_bytes(header: &RequestHeader) -> u32 {
    if header.command == Command::Write.to_wire() { header.length_bytes } else { 0 }
}

/// Checks a request against its export.
///
/// # Errors
/// The error that the protocol requires: `Invalid` for an unknown command, an invalid flag, a
/// misaligned or too long request or a read past the end; `NoSpace` for a change past the end;
/// `NotPermitted` for a change of a read-only export.
pub fn check(
    header: &RequestHeader,
    export: &ExportInfo,
    structured_replies: bool,
) -> Result<Operation, WireError> {
    let command = Command::from_wire(header.command).ok_or(WireError::Invalid)?;
    if command == Command::Disconnect {
        return Ok(Operation::Disconnect);
    }
    if !flags_of(command, structured_replies).contains(header.flags) {
        return Err(WireError::Invalid);
    }
    if command == Command::Flush {
        return Ok(Operation::Flush);
    }
    let range = checked_range(command, header, export)?;
    let flags = device_flags(header.flags);
    match command {
        Command::Read => Ok(Operation::Read(range)),
        Command::Cache => Ok(Operation::Cache(range)),
        Command::Write => Ok(Operation::Write(range, flags)),
        Command::Trim => Ok(Operation::Trim(range, flags)),
        Command::WriteZeroes => Ok(Operation::WriteZeroes(range, flags)),
        Command::BlockStatus | Command::Flush | Command::Disconnect => Err(WireError::Invalid),
    }
}

fn flags_of(command: Command, structured_replies: bool) -> CommandFlags {
    match command {
        Command::Read if structured_replies => CommandFlags::FUA | CommandFlags::DF,
        Command::WriteZeroes => CommandFlags::FUA | CommandFlags::NO_HOLE,
        _ => CommandFlags::FUA,
    }
}

fn device_flags(flags: CommandFlags) -> RequestFlags {
    let mut device_flags = RequestFlags::empty();
    device_flags.set(RequestFlags::FUA, flags.contains(CommandFlags::FUA));
    device_flags.set(RequestFlags::NO_UNMAP, flags.contains(CommandFlags::NO_HOLE));
    device_flags
}

fn checked_range(
    command: Command,
    header: &RequestHeader,
    export: &ExportInfo,
) -> Result<ByteRange, WireError> {
    let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
    if changes && export.is_read_only() {
        return Err(WireError::NotPermitted);
    }
    let moves_data = matches!(command, Command::Read | Command::Write);
    if moves_data && header.length_bytes > export.block_sizes.maximum {
        return Err(WireError::Invalid);
    }
    let range = ByteRange::new(header.offset, u64::from(header.length_bytes));
    let Some(range) = range.filter(|range| range.end() <= export.size_bytes) else {
        return Err(if changes { WireError::NoSpace } else { WireError::Invalid });
    };
    if !range.is_aligned(u64::from(export.block_sizes.minimum)) {
        return Err(WireError::Invalid);
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::wire::TransmissionFlags;
    use crate::export_info::example;
    use proptest::prelude::*;

    const SIZE: u64 = 1 << 30;

    fn request(command: Command, offset: u64, length_bytes: u32) -> RequestHeader {
        let (flags, command) = (CommandFlags::empty(), command.to_wire());
        RequestHeader { flags, command, cookie: 1, offset, length_bytes }
    }

    fn checked(command: Command, offset: u64, length: u32) -> Result<Operation, WireError> {
        check(&request(command, offset, length), &example("hv0"), true)
    }

    #[test]
    fn reads_past_the_end_are_invalid_and_changes_have_no_space() {
        for (offset, length) in [(SIZE, 512), (SIZE - 512, 1024), (u64::MAX - 511, 512)] {
            assert_eq!(checked(Command::Read, offset, length), Err(WireError::Invalid));
            assert_eq!(checked(Command::Write, offset, length), Err(WireError::NoSpace));
            assert_eq!(checked(Command::Trim, offset, length), Err(WireError::NoSpace));
            assert_eq!(checked(Command::WriteZeroes, offset, length), Err(WireError::NoSpace));
        }
        assert!(checked(Command::Write, SIZE - 512, 512).is_ok());
    }

    #[test]
    fn misaligned_requests_are_invalid() {
        assert_eq!(checked(Command::Read, 1, 512), Err(WireError::Invalid));
        assert_eq!(checked(Command::Write, 512, 100), Err(WireError::Invalid));
    }

    #[test]
    fn zero_length_is_a_request_like_any_other() {
        assert_eq!(checked(Command::Read, 512, 0), Ok(Operation::Read(ByteRange::at(512, 0))));
    }

    #[test]
    fn payloads_beyond_the_maximum_are_invalid_but_ranges_without_payload_are_not() {
        assert_eq!(checked(Command::Read, 0, (32 << 20) + 512), Err(WireError::Invalid));
        assert!(checked(Command::Read, 0, 32 << 20).is_ok());
        assert!(checked(Command::Trim, 0, 1 << 30).is_ok());
    }

    #[test]
    fn unknown_commands_and_unfit_flags_are_invalid() {
        let mut unknown = request(Command::Read, 0, 512);
        unknown.command = 99;
        assert_eq!(check(&unknown, &example("hv0"), true), Err(WireError::Invalid));
        assert_eq!(checked(Command::BlockStatus, 0, 512), Err(WireError::Invalid));
        let mut read = request(Command::Read, 0, 512);
        read.flags = CommandFlags::DF;
        assert!(check(&read, &example("hv0"), true).is_ok());
        assert_eq!(check(&read, &example("hv0"), false), Err(WireError::Invalid));
        read.flags = CommandFlags::from_bits_retain(1 << 9);
        assert_eq!(check(&read, &example("hv0"), true), Err(WireError::Invalid));
    }

    #[test]
    fn fua_and_no_hole_reach_the_device() {
        let mut zeroes = request(Command::WriteZeroes, 0, 4096);
        zeroes.flags = CommandFlags::FUA | CommandFlags::NO_HOLE;
        let expected = RequestFlags::FUA | RequestFlags::NO_UNMAP;
        let operation = check(&zeroes, &example("hv0"), true);
        assert_eq!(operation, Ok(Operation::WriteZeroes(ByteRange::at(0, 4096), expected)));
    }

    #[test]
    fn a_read_only_export_permits_no_change() {
        let mut export = example("hv0");
        export.flags |= TransmissionFlags::READ_ONLY;
        let write = request(Command::Write, 0, 512);
        assert_eq!(check(&write, &export, true), Err(WireError::NotPermitted));
        assert!(check(&request(Command::Read, 0, 512), &export, true).is_ok());
    }

    proptest! {
        #[test]
        fn whatever_passes_lies_within_the_export(
            command in 0u16..10, flags: u16, offset: u64, length_bytes: u32, small in any::<bool>(),
        ) {
            let offset = if small { offset % (2 * SIZE) / 512 * 512 } else { offset };
            let flags = CommandFlags::from_bits_retain(flags & 0x1f);
            let header = RequestHeader { flags, command, cookie: 0, offset, length_bytes };
            let (Ok(Operation::Read(range) | Operation::Cache(range))
                | Ok(Operation::Write(range, _) | Operation::Trim(range, _))
                | Ok(Operation::WriteZeroes(range, _))) = check(&header, &example("a"), true)
            else {
                return Ok(());
            };
            prop_assert!(range.end() <= SIZE);
            prop_assert!(range.is_aligned(512));
            prop_assert_eq!(range, ByteRange::at(offset, u64::from(length_bytes)));
        }
    }
}
