//! Maps device errors to those of the protocol.

use crate::codec::wire::WireError;
use headpond_block::{Cause, DeviceError};

/// The protocol's error for a failed operation.
pub fn to_wire(error: &DeviceError) -> WireError {
    match error.cause() {
        Cause::OutOfRange { .. } | Cause::Misaligned { .. } => WireError::Invalid,
        Cause::NoSpace => WireError::NoSpace,
        Cause::ReadOnly => WireError::NotPermitted,
        Cause::Unsupported { .. } => WireError::NotSupported,
        Cause::Os { errno, .. } => os_to_wire(*errno),
        Cause::Media { .. } | Cause::Corrupt { .. } | Cause::Gone | Cause::Timeout { .. } => {
            WireError::InputOutput
        }
    }
}

/// Linux error numbers; the protocol reports a quota and a file limit as `ENOSPC`.
fn os_to_wire(errno: i32) -> WireError {
    match errno {
        1 | 13 | 30 => WireError::NotPermitted,
        12 => WireError::NoMemory,
        22 => WireError::Invalid,
        27 | 28 | 122 => WireError::NoSpace,
        95 => WireError::NotSupported,
        _ => WireError::InputOutput,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_quota_is_lack_of_space_and_the_unknown_is_an_input_output_error() {
        let os = |errno| DeviceError::new(&"d".into(), Cause::Os { operation: "write", errno });
        assert_eq!(to_wire(&os(122)), WireError::NoSpace);
        assert_eq!(to_wire(&os(5)), WireError::InputOutput);
        assert_eq!(to_wire(&os(9999)), WireError::InputOutput);
        let read_only = DeviceError::new(&"d".into(), Cause::ReadOnly);
        assert_eq!(to_wire(&read_only), WireError::NotPermitted);
    }
}
