//! Control commands, each waited for.

use super::{READ, READ_WRITE, command};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const PATH: &str = "/dev/ublk-control";
/// The size of the command's structure.
pub(super) const COMMAND_BYTES: u32 = 32;
/// A command for a whole device names no queue.
const NO_QUEUE: u16 = u16::MAX;

/// What the driver can be asked for; the buffer of each is of the kernel's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// The features of the driver (Linux 6.5): eight bytes.
    Features,
    /// What a device is: its information.
    Information,
    /// Makes a device of this information, and completes it.
    Add,
    /// Removes a device; ends when nobody has its character device open.
    Delete,
    /// The same without waiting for that (Linux 6.9).
    DeleteLater,
    SetParameters,
    /// What was set: the size of the buffer is in its first four bytes.
    Parameters,
    /// Shows the block device, for the process whose number is the data; ends when each tag has
    /// been asked for a request.
    Start,
    /// Removes the block device; ends when what is in flight is answered.
    Stop,
    /// A server begins to take over a device whose server is gone.
    StartRecovery,
    /// It has asked for a request with each tag; the data is its process.
    EndRecovery,
    /// The data is the new size in sectors of 512 bytes (Linux 6.16).
    UpdateSize,
    /// Gives its server no more requests, for a planned restart; ends when it has answered those
    /// that it has, for which the data is the time in milliseconds (Linux 6.16).
    Quiesce,
}

impl ControlCommand {
    const fn number(self) -> u32 {
        let (direction, number) = match self {
            Self::Information => (READ, 0x02),
            Self::Add => (READ_WRITE, 0x04),
            Self::Delete => (READ_WRITE, 0x05),
            Self::Start => (READ_WRITE, 0x06),
            Self::Stop => (READ_WRITE, 0x07),
            Self::SetParameters => (READ_WRITE, 0x08),
            Self::Parameters => (READ, 0x09),
            Self::StartRecovery => (READ_WRITE, 0x10),
            Self::EndRecovery => (READ_WRITE, 0x11),
            Self::Features => (READ, 0x13),
            Self::DeleteLater => (READ, 0x14),
            Self::UpdateSize => (READ_WRITE, 0x15),
            Self::Quiesce => (READ_WRITE, 0x16),
        };
        command(direction, number, COMMAND_BYTES)
    }
}

/// Why there is no control device.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(
        "this kernel has no ublk driver loaded ({PATH} is not there): `modprobe ublk_drv`, on \
         Linux 6.0 or newer with CONFIG_BLK_DEV_UBLK"
    )]
    NotThere,
    #[error("cannot open {PATH}: {0}")]
    Refused(io::Error),
    #[error("cannot set up a ring for the commands of ublk: {0}")]
    Ring(io::Error),
}

/// The control device, with a ring for its commands.
pub struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// # Errors
    /// Where the driver is not there, or may not be used.
    pub fn open() -> Result<Self, ControlError> {
        let opened = File::options().read(true).write(true).open(PATH);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ControlError::NotThere,
            _ => ControlError::Refused(error),
        })?;
        // Commands are of 32 bytes, for which an entry of the usual size has no room.
        let ring = IoUring::builder().dontfork().build(4).map_err(ControlError::Ring)?;
        Ok(Self { file, ring })
    }

    /// Carries out a command for a device, and waits until it has ended.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn command(
        &mut self,
        what: ControlCommand,
        device: u32,
        data: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
        let length = u16::try_from(buffer.len()).expect("a structure of the driver");
        let mut bytes = [0; 80];
        bytes[0..4].copy_from_slice(&device.to_ne_bytes());
        bytes[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
        bytes[6..8].copy_from_slice(&length.to_ne_bytes());
        bytes[8..16].copy_from_slice(&address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&data.to_ne_bytes());
        let target = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(target, what.number()).cmd(bytes).build();
        // SAFETY: the entry points to the buffer, as long as it says, which is borrowed until the
        // command has ended.
        unsafe { self.ring.submission().push(&entry) }.expect("an empty queue");
        let answer = loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel may still write to the buffer: there is no way back.
                Err(error) => panic!("a command of ublk cannot be waited for: {error}"),
                Ok(_) => {}
            }
            if let Some(answer) = self.ring.completion().next() {
                break answer.result();
            }
        };
        if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(()) }
    }
}
