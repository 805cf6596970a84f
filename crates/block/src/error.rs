//! Why an operation on a device failed.

use crate::ByteRange;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What the user calls a device: a path, `ram:64M`, `member 3 of hv0`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl From<&str> for DeviceName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// The failure of one operation on one device. One machine word, so that the outcome of a request
/// is passed through layers in a register.
///
/// After a failed read the contents of the caller's buffer are undefined; after a failed write each
/// block of the range holds the old or the new data, or is unreadable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", .0.device, .0.cause)]
pub struct DeviceError(Box<Failure>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    device: DeviceName,
    cause: Cause,
    /// What the operating system answered; zero where it was not asked.
    errno: i32,
}

/// The cause of the failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("{range} are past its end at {size_bytes}")]
    OutOfRange { range: ByteRange, size_bytes: u64 },
    #[error("{range} are not aligned to its blocks of {logical_block_bytes} bytes")]
    Misaligned { range: ByteRange, logical_block_bytes: u32 },
    #[error("medium error at {range}")]
    Media { range: ByteRange },
    #[error("damaged at byte {offset}: expected {expected:#x}, found {found:#x}")]
    Corrupt { offset: u64, expected: u64, found: u64 },
    #[error("is gone")]
    Gone,
    #[error("timed out after {after:?}")]
    Timeout { after: Duration },
    #[error("no space left")]
    NoSpace,
    #[error("is read-only")]
    ReadOnly,
    #[error("cannot {operation}")]
    Unsupported { operation: &'static str },
    #[error("{operation} failed: {}", std::io::Error::from_raw_os_error(*errno))]
    Os { operation: &'static str, errno: i32 },
}

impl DeviceError {
    #[cold]
    pub fn new(device: &DeviceName, cause: Cause) -> Self {
        Self(Box::new(Failure { device: device.clone(), cause, errno: 0 }))
    }

    /// The same, as the operating system answered it.
    #[must_use]
    pub fn with_errno(mut self, errno: i32) -> Self {
        self.0.errno = errno;
        self
    }

    /// The cause in the words of the operating system, where it said so.
    pub fn in_words(&self) -> String {
        match self.0.errno {
            0 => self.cause().to_string(),
            errno => {
                let text = std::io::Error::from_raw_os_error(errno).to_string();
                text.split(" (os error").next().unwrap_or_default().to_owned()
            }
        }
    }

    /// The device that failed.
    pub fn device(&self) -> &DeviceName {
        &self.0.device
    }

    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// Whether the device is gone for good.
    pub fn is_gone(&self) -> bool {
        matches!(self.cause(), Cause::Gone)
    }

    /// Whether there is no space left on it.
    pub fn is_full(&self) -> bool {
        matches!(self.cause(), Cause::NoSpace)
    }

    /// Whether data on the device is damaged, so that only a redundant copy has it.
    pub fn is_damage(&self) -> bool {
        matches!(self.cause(), Cause::Media { .. } | Cause::Corrupt { .. })
    }

    pub fn is_unsupported(&self) -> bool {
        matches!(self.cause(), Cause::Unsupported { .. })
    }

    /// Whether the request was invalid or unsupported, so that it is no fault of the device.
    pub fn is_callers_fault(&self) -> bool {
        let is_beside = matches!(self.cause(), Cause::OutOfRange { .. } | Cause::Misaligned { .. });
        is_beside || self.is_unsupported()
    }
}
