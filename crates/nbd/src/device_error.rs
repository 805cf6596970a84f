//! Errors of devices in the words of the protocol.

use crate::codec::wire::WireError;
use headpond_block::DeviceError;

/// What a client is told about a failed operation.
pub fn to_wire(error: &DeviceError) -> WireError {
    match error {
        DeviceError::OutOfRange { .. } | DeviceError::Misaligned { .. } => WireError::Invalid,
        DeviceError::NoSpace { .. } => WireError::NoSpace,
        DeviceError::ReadOnly { .. } => WireError::NotPermitted,
        DeviceError::Unsupported { .. } => WireError::NotSupported,
        DeviceError::Os { errno, .. } => os_to_wire(*errno),
        DeviceError::Media { .. }
        | DeviceError::Corrupt { .. }
        | DeviceError::Gone { .. }
        | DeviceError::Timeout { .. } => WireError::InputOutput,
    }
}

/// Linux error numbers; the protocol asks to report a quota and a file limit as lack of space.
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
        let os = |errno| DeviceError::Os { device: "d".into(), operation: "write", errno };
        assert_eq!(to_wire(&os(122)), WireError::NoSpace);
        assert_eq!(to_wire(&os(5)), WireError::InputOutput);
        assert_eq!(to_wire(&os(9999)), WireError::InputOutput);
        let read_only = DeviceError::ReadOnly { device: "d".into() };
        assert_eq!(to_wire(&read_only), WireError::NotPermitted);
    }
}
