//! The kernel's NBD client over netlink. Each call waits for the kernel: not on the data thread.

use headpond_nbd::kernel::{Answer, Device, Request};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The kernel answers before the question has been sent: longer is never.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Some hundred devices.
const ANSWER_BYTES: usize = 32 << 10;
/// Of a socket that has ended, requests are sent again when they are as old as this, and looked at
/// that often until there is another one. The kernel's own value of 30 s would be the shortest
/// pause. Not less: it writes a line about each request that takes longer.
const RESEND_MS: u32 = 3000;
/// The kernel's own.
const RESEND_DEFAULT_MS: u32 = 30_000;

/// Opens a socket to the kernel, or a test's.
pub type OpenKernel = Arc<dyn Fn() -> Result<Kernel, KernelError> + Send + Sync>;

/// A socket to the kernel's NBD client.
pub struct Kernel {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
}

/// What the kernel, or what guards it, does not do.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error(
        "netlink cannot be used ({0}): a unit that serves needs AF_NETLINK in \
         RestrictAddressFamilies="
    )]
    Netlink(Errno),
    #[error(
        "the kernel has no NBD client: load it by `modprobe nbd`, at boot by the line nbd in \
         /etc/modules-load.d/nbd.conf; without that module, programs reach the volume at its NBD \
         export (`headpond export list`)"
    )]
    NoClient,
    #[error("only a process with CAP_SYS_ADMIN attaches devices; this one is not allowed to")]
    NotPermitted,
    #[error("/dev/nbd{0} is in use")]
    InUse(u32),
    #[error("/dev/nbd{0} is not, or no more, a device of this volume")]
    NotOurs(u32),
    #[error("the kernel refuses /dev/nbd{index}: {error}")]
    Refused { index: u32, error: Errno },
    #[error("the kernel's answer over netlink: {0}")]
    Answer(Errno),
    #[error("the kernel was not asked: {0}")]
    NoThread(String),
}

impl KernelError {
    /// Whether nothing was tried that might work the next time.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::NoClient | Self::NotPermitted | Self::InUse(_))
    }
}

impl Kernel {
    /// # Errors
    /// Where the kernel has no NBD client, or netlink is not allowed.
    pub fn open() -> Result<Self, KernelError> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::GENERIC));
        Self::over(socket.map_err(KernelError::Netlink)?)
    }

    /// # Errors
    /// As of [`Self::open`].
    pub fn over(socket: OwnedFd) -> Result<Self, KernelError> {
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIME))
            .map_err(KernelError::Netlink)?;
        let mut kernel = Self { socket, family: 0, sequence: 0 };
        let answer = kernel.ask(&Request::Family)?;
        match (answer.family, error_of(&answer)) {
            (Some(family), None) => kernel.family = family,
            (_, None | Some(Errno::NOENT)) => return Err(KernelError::NoClient),
            (_, Some(error)) => return Err(KernelError::Answer(error)),
        }
        Ok(kernel)
    }

    /// An index that no device uses; where all that there are are in use, that of a new one.
    ///
    /// # Errors
    /// Where the kernel does not answer.
    pub fn free_index(&mut self) -> Result<u32, KernelError> {
        let answer = self.ask(&Request::Status)?;
        if let Some(error) = error_of(&answer) {
            return Err(KernelError::Answer(error));
        }
        let devices = answer.devices;
        let free = devices.iter().find(|(_, is_used)| !is_used).map(|(index, _)| *index);
        let next = devices.iter().map(|(index, _)| index + 1).max().unwrap_or_default();
        Ok(free.unwrap_or(next))
    }

    /// Makes a device of this socket.
    ///
    /// # Errors
    /// Where it is in use, or the kernel refuses.
    pub fn connect(&mut self, device: &Device, socket: impl AsFd) -> Result<(), KernelError> {
        let sockets = vec![socket.as_fd().as_raw_fd()];
        let answer = self.ask(&Request::Connect(device.clone(), sockets))?;
        self.check(&answer, device.index)?;
        set_resend_time(device.index, RESEND_MS);
        Ok(())
    }

    /// Gives a device another socket. Where its own has not ended yet, the new one is closed.
    ///
    /// # Errors
    /// Where it is not, or no more, this device.
    pub fn reconnect(&mut self, device: &Device, socket: impl AsFd) -> Result<(), KernelError> {
        let socket = socket.as_fd().as_raw_fd();
        let answer = self.ask(&Request::Reconfigure(device.clone(), socket))?;
        self.check(&answer, device.index)
    }

    /// Ends a device; requests without an answer fail.
    ///
    /// # Errors
    /// Where it has ended already.
    pub fn disconnect(&mut self, index: u32) -> Result<(), KernelError> {
        let answer = self.ask(&Request::Disconnect { index })?;
        self.check(&answer, index)?;
        // Whoever has it next.
        set_resend_time(index, RESEND_DEFAULT_MS);
        Ok(())
    }

    fn check(&self, answer: &Answer, index: u32) -> Result<(), KernelError> {
        Err(match error_of(answer) {
            None => return Ok(()),
            Some(Errno::PERM) => KernelError::NotPermitted,
            Some(Errno::BUSY) => KernelError::InUse(index),
            // Of a device that is not connected, or has another identifier.
            Some(Errno::INVAL | Errno::NODEV | Errno::NOENT) => KernelError::NotOurs(index),
            Some(error) => KernelError::Refused { index, error },
        })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, KernelError> {
        self.sequence += 1;
        let message = request.encode(self.family, self.sequence);
        let sent = send(&self.socket, &message, SendFlags::NOSIGNAL);
        sent.map_err(KernelError::Answer)?;
        let mut answer = Answer::default();
        let mut bytes = vec![0; ANSWER_BYTES];
        while answer.errno.is_none() {
            match recv(&self.socket, &mut bytes, RecvFlags::empty()) {
                Ok((0, _)) => return Err(KernelError::Answer(Errno::CONNRESET)),
                Ok((count, _)) => answer.read(&bytes[..count], self.family, self.sequence),
                Err(Errno::INTR) => {}
                Err(error) => return Err(KernelError::Answer(error)),
            }
        }
        Ok(answer)
    }
}

fn error_of(answer: &Answer) -> Option<Errno> {
    answer.errno.filter(|errno| *errno != 0).map(Errno::from_raw_os_error)
}

/// Without it a pause is longer.
fn set_resend_time(index: u32, milliseconds: u32) {
    let file = format!("/sys/block/nbd{index}/queue/io_timeout");
    if let Err(error) = std::fs::write(&file, milliseconds.to_string()) {
        tracing::debug!("{file}: {error}: requests are sent again after 30 s");
    }
}
