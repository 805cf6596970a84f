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

/// The failure of one operation on one device.
///
/// After a failed read the caller's buffer holds nothing of use; after a failed write each block of
/// the range holds the old or the new data, or answers with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("{device}: {range} lie beyond its end at {size_bytes}")]
    OutOfRange { device: DeviceName, range: ByteRange, size_bytes: u64 },
    #[error("{device}: {range} are not aligned to its blocks of {logical_block_bytes} bytes")]
    Misaligned { device: DeviceName, range: ByteRange, logical_block_bytes: u32 },
    #[error("{device}: medium error at {range}")]
    Media { device: DeviceName, range: ByteRange },
    #[error("{device}: damaged at byte {offset}: expected {expected:#x}, found {found:#x}")]
    Corrupt { device: DeviceName, offset: u64, expected: u64, found: u64 },
    #[error("{device}: is gone")]
    Gone { device: DeviceName },
    #[error("{device}: no answer within {after:?}")]
    Timeout { device: DeviceName, after: Duration },
    #[error("{device}: no space left")]
    NoSpace { device: DeviceName },
    #[error("{device}: is read-only")]
    ReadOnly { device: DeviceName },
    #[error("{device}: cannot {operation}")]
    Unsupported { device: DeviceName, operation: &'static str },
    #[error("{device}: {operation} failed: {}", std::io::Error::from_raw_os_error(*errno))]
    Os { device: DeviceName, operation: &'static str, errno: i32 },
}

impl DeviceError {
    /// The device that failed.
    pub fn device(&self) -> &DeviceName {
        match self {
            Self::OutOfRange { device, .. }
            | Self::Misaligned { device, .. }
            | Self::Media { device, .. }
            | Self::Corrupt { device, .. }
            | Self::Gone { device }
            | Self::Timeout { device, .. }
            | Self::NoSpace { device }
            | Self::ReadOnly { device }
            | Self::Unsupported { device, .. }
            | Self::Os { device, .. } => device,
        }
    }

    /// Whether the caller asked for what the device never offers, so that the device is not to
    /// blame.
    pub fn is_callers_fault(&self) -> bool {
        matches!(self, Self::OutOfRange { .. } | Self::Misaligned { .. } | Self::Unsupported { .. })
    }
}
