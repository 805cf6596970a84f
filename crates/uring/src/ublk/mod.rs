//! The kernel's ublk driver: block devices whose requests are served here.
//!
//! [`Control`] sends the driver's commands, on a small ring of its own, and waits for each.
//! [`Queue`] is one queue of a device, on the thread's ring: for each of its tags the kernel is
//! asked for a request and told what became of it. What the commands mean for a device is said in
//! `headpond-ublk`.
//!
//! **Invariants**
//! - Memory that the kernel may copy a request's data to or from is kept until it has completed the
//!   command that names it.
//! - A control command may take as long as requests of the device do: never on their thread.
//!
//! **Source**: Linux, include/uapi/linux/ublk_cmd.h and Documentation/block/ublk.rst. Numbers as
//! ioctl encodes them (Linux 6.4).

mod control;
mod queue;

pub use control::{Control, ControlCommand, ControlError};
pub use queue::{Descriptor, Fetch, Queue};

/// Memory that this thread asks for is not freed by writing to a block device, which it may serve
/// itself: it would wait for itself. Needs CAP_SYS_RESOURCE.
///
/// # Errors
/// Where the kernel refuses.
pub fn serve_during_reclaim() -> std::io::Result<()> {
    /// Linux 5.6, include/uapi/linux/prctl.h.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: no pointers are passed.
    let set = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1 as libc::c_ulong, UNUSED, UNUSED, UNUSED) };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The number of a command, as `_IOR` and `_IOWR` make it of its structure.
const fn command(direction: u32, number: u8, argument_bytes: u32) -> u32 {
    direction << 30 | argument_bytes << 16 | (b'u' as u32) << 8 | number as u32
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernels_header() {
        assert_eq!(command(READ, 0x13, control::COMMAND_BYTES), 0x8020_7513);
        assert_eq!(command(READ_WRITE, 0x04, control::COMMAND_BYTES), 0xc020_7504);
        assert_eq!(command(READ_WRITE, 0x21, queue::COMMAND_BYTES), 0xc010_7521);
    }
}
