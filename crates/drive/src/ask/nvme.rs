//! NVMe commands through the kernel's pass-through.
//!
//! **Source**: Linux `include/uapi/linux/nvme_ioctl.h`; NVM Express Base Specification 2.0.

use super::{AskError, ioctl};
use crate::parse::identify::{IDENTIFY_BYTES, Identify};
use std::fs::File;

const ID: u32 = 0x4E40;
const ADMIN_COMMAND: u32 = 0xC048_4E41;
const IO_COMMAND: u32 = 0xC048_4E43;

const FLUSH: u8 = 0x00;
const IDENTIFY: u8 = 0x06;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0A;
const VOLATILE_WRITE_CACHE: u32 = 0x06;
const SAVE: u32 = 1 << 31;

/// `nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dwords_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    dwords_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<Command>() == 72);

/// The controller's identify data.
///
/// # Errors
/// Without permission, or where the controller does not complete the command.
pub fn identify(file: &File) -> Result<Identify, AskError> {
    let mut data = Box::new([0_u8; IDENTIFY_BYTES]);
    let mut command = Command {
        opcode: IDENTIFY,
        address: data.as_mut_ptr() as u64,
        data_len: u32::try_from(IDENTIFY_BYTES).expect("a page"),
        dwords_10_15: [1, 0, 0, 0, 0, 0],
        ..Command::default()
    };
    send(file, "Identify", ADMIN_COMMAND, &mut command)?;
    Ok(Identify::parse(&data))
}

/// Feature 06h: whether the volatile write cache is on.
///
/// # Errors
/// As [`identify`].
pub fn write_cache(file: &File) -> Result<bool, AskError> {
    let mut command = features(GET_FEATURES, [VOLATILE_WRITE_CACHE, 0]);
    send(file, "Get Features 06h", ADMIN_COMMAND, &mut command)?;
    Ok(command.result & 1 != 0)
}

/// Switches the volatile write cache until the next power cycle.
///
/// # Errors
/// As [`identify`].
pub fn set_write_cache(file: &File, on: bool) -> Result<(), AskError> {
    let mut command = features(SET_FEATURES, [VOLATILE_WRITE_CACHE, on.into()]);
    send(file, "Set Features 06h", ADMIN_COMMAND, &mut command)
}

/// Switches the volatile write cache persistently.
///
/// # Errors
/// As [`identify`]; also where the controller cannot save.
pub fn save_write_cache(file: &File, on: bool) -> Result<(), AskError> {
    let mut command = features(SET_FEATURES, [VOLATILE_WRITE_CACHE | SAVE, on.into()]);
    send(file, "Set Features 06h with the save bit", ADMIN_COMMAND, &mut command)
}

/// Writes the namespace's share of the cache to its medium.
///
/// # Errors
/// As [`identify`].
pub fn flush(file: &File) -> Result<(), AskError> {
    // SAFETY: NVME_IOCTL_ID takes no argument and returns the namespace's number.
    let namespace = unsafe { ioctl(file, ID, &mut 0_u64) };
    let namespace = namespace.map_err(|source| AskError::Refused { command: "Flush", source })?;
    let namespace = namespace.unsigned_abs();
    let mut command = Command { opcode: FLUSH, namespace, ..Command::default() };
    send(file, "Flush", IO_COMMAND, &mut command)
}

fn features(opcode: u8, [first, second]: [u32; 2]) -> Command {
    Command { opcode, dwords_10_15: [first, second, 0, 0, 0, 0], ..Command::default() }
}

fn send(
    file: &File,
    name: &'static str,
    request: u32,
    command: &mut Command,
) -> Result<(), AskError> {
    // SAFETY: both requests take an `nvme_passthru_cmd`; where it has an address, that is memory
    // of the caller's of the length beside it, which outlives the call.
    let returned = unsafe { ioctl(file, request, command) };
    let status = returned.map_err(|source| AskError::Refused { command: name, source })?;
    match u16::try_from(status).unwrap_or(u16::MAX) {
        0 => Ok(()),
        // The bits above are for the kernel (do not retry, more).
        status => Err(AskError::Nvme { command: name, status: status & 0x7FF }),
    }
}

/// A known status in words.
pub fn told(status: u16) -> &'static str {
    match status {
        0x001 => " (unknown command)",
        0x002 => " (unknown feature)",
        0x10D => " (the feature cannot be saved)",
        0x10E => " (the feature cannot be changed)",
        _ => "",
    }
}
