//! SCSI commands through the kernel's SG_IO.
//!
//! **Source**: Linux `include/scsi/sg.h`; SPC-5 and SBC-4 for the commands.

use super::{AskError, ioctl};
use crate::parse::caching::{Caching, Header};
use std::ffi::c_void;
use std::fs::File;
use std::ptr;

const SG_IO: u32 = 0x2285;
const NO_DATA: i32 = -1;
const FROM_DRIVE: i32 = -3;
const TIMEOUT_MS: u32 = 60_000;
const CHECK_CONDITION: u8 = 0x02;

/// `sg_io_hdr`.
#[repr(C)]
struct SgIo {
    interface_id: i32,
    direction: i32,
    command_len: u8,
    sense_max: u8,
    iovec_count: u16,
    data_len: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: i32,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residue: i32,
    duration_ms: u32,
    info: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<SgIo>() == 88);

/// The caching page as it is now.
///
/// # Errors
/// Where the drive reports it in neither form.
pub fn caching(file: &File) -> Result<Caching, AskError> {
    const TEN: &str = "MODE SENSE(10)";
    // Without block descriptors, current values, the caching page.
    let ten = [0x5A, 0x08, 0x08, 0, 0, 0, 0, 0, 252, 0];
    let mut reply = [0; 252];
    match send(file, TEN, &ten, Some(&mut reply)) {
        Ok(length) => {
            let parsed = Caching::parse(&reply[..length], Header::Ten);
            parsed.ok_or(AskError::Malformed { command: TEN })
        }
        // Old drives and many USB bridges know the short form only.
        Err(AskError::Scsi { .. }) => {
            const SIX: &str = "MODE SENSE(6)";
            let six = [0x1A, 0x08, 0x08, 0, 252, 0];
            let length = send(file, SIX, &six, Some(&mut reply))?;
            let parsed = Caching::parse(&reply[..length], Header::Six);
            parsed.ok_or(AskError::Malformed { command: SIX })
        }
        Err(error) => Err(error),
    }
}

/// A page of vital product data.
///
/// # Errors
/// Where the drive has none.
pub fn product_data(file: &File, page: u8) -> Result<Vec<u8>, AskError> {
    let mut reply = [0; 252];
    let length = send(file, "INQUIRY", &[0x12, 1, page, 0, 252, 0], Some(&mut reply))?;
    Ok(reply[..length].to_vec())
}

/// Writes the drive's cache to its medium.
///
/// # Errors
/// Where the drive could not.
pub fn synchronize_cache(file: &File) -> Result<(), AskError> {
    let whole_drive = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    send(file, "SYNCHRONIZE CACHE(10)", &whole_drive, None).map(drop)
}

/// Sends a command that reads, or transfers no data; returns the bytes transferred.
fn send(
    file: &File,
    name: &'static str,
    command: &[u8],
    reply: Option<&mut [u8]>,
) -> Result<usize, AskError> {
    let mut sense = [0_u8; 32];
    let direction = if reply.is_some() { FROM_DRIVE } else { NO_DATA };
    let (data, data_len) =
        reply.map_or((ptr::null_mut(), 0), |reply| (reply.as_mut_ptr().cast(), reply.len()));
    let mut header = SgIo {
        interface_id: i32::from(b'S'),
        direction,
        command_len: u8::try_from(command.len()).expect("a command is short"),
        sense_max: u8::try_from(sense.len()).expect("so is its sense"),
        iovec_count: 0,
        data_len: u32::try_from(data_len).expect("so is its answer"),
        data,
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: TIMEOUT_MS,
        flags: 0,
        pack_id: 0,
        user: ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_len: 0,
        host_status: 0,
        driver_status: 0,
        residue: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: SG_IO takes an `sg_io_hdr`; the command, the answer's and the sense's memory outlive
    // the call, which ends when the drive has answered, and their lengths are right.
    let sent = unsafe { ioctl(file, SG_IO, &mut header) };
    sent.map_err(|source| AskError::Refused { command: name, source })?;
    judge(name, &header, &sense)?;
    let unused = usize::try_from(header.residue).unwrap_or(0);
    Ok(data_len.saturating_sub(unused))
}

fn judge(name: &'static str, header: &SgIo, sense: &[u8]) -> Result<(), AskError> {
    let (host, driver) = (header.host_status, header.driver_status);
    match header.status {
        0 if host != 0 || driver != 0 => Err(AskError::Lost { command: name, host, driver }),
        0 => Ok(()),
        status => {
            let sense = match status {
                CHECK_CONDITION => sense_told(&sense[..usize::from(header.sense_len).min(32)]),
                _ => "none".to_owned(),
            };
            Err(AskError::Scsi { command: name, status, sense })
        }
    }
}

/// Key, code and qualifier, of either format of sense data.
fn sense_told(sense: &[u8]) -> String {
    let at = |index: usize| sense.get(index).copied().unwrap_or(0);
    let (key, code, qualifier) = match at(0) & 0x7F {
        0x72 | 0x73 => (at(1), at(2), at(3)),
        _ => (at(2), at(12), at(13)),
    };
    format!("{:x}h/{code:02x}h/{qualifier:02x}h", key & 0x0F)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_is_told_of_either_format() {
        let mut fixed = [0; 18];
        (fixed[0], fixed[2], fixed[12]) = (0x70, 0x05, 0x24);
        assert_eq!(sense_told(&fixed), "5h/24h/00h");
        assert_eq!(sense_told(&[0x72, 0x05, 0x20, 0x00]), "5h/20h/00h");
        assert_eq!(sense_told(&[]), "0h/00h/00h");
    }
}
