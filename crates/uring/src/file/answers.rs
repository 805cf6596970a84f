//! The kernel's errnos as errors of the device.

use headpond_block::{ByteRange, DeviceError, DeviceName};

/// What an errno means for an operation on `range`.
pub(super) fn device_error(
    device: &DeviceName,
    operation: &'static str,
    range: ByteRange,
    errno: i32,
) -> DeviceError {
    let device = device.clone();
    match errno {
        // Source: `blk_errors` in the kernel's block/blk-core.c: a medium error is ENODATA, a
        // failed integrity check EILSEQ; file systems answer EBADMSG (checksum) and EUCLEAN
        // (damage).
        libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EBADMSG | libc::EUCLEAN => {
            DeviceError::Media { device, range }
        }
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DeviceError::NoSpace { device },
        libc::ENODEV | libc::ENXIO | libc::ENOLINK | libc::ESTALE => DeviceError::Gone { device },
        libc::EROFS | libc::EBADF | libc::EPERM => DeviceError::ReadOnly { device },
        libc::EOPNOTSUPP => DeviceError::Unsupported { device, operation },
        errno => DeviceError::Os { device, operation, errno },
    }
}

/// Whether trying again is all there is to do about it.
pub(super) fn is_passing(errno: i32) -> bool {
    matches!(errno, libc::EINTR | libc::EAGAIN)
}

/// Whether the file system or drive does not know the operation.
pub(super) fn is_unknown(errno: i32) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_become_what_the_layers_above_act_on() {
        let device = DeviceName::from("d");
        let range = ByteRange::at(0, 512);
        let error = |errno| device_error(&device, "write", range, errno);
        assert!(matches!(error(libc::EIO), DeviceError::Media { .. }));
        assert!(matches!(error(libc::ENOSPC), DeviceError::NoSpace { .. }));
        assert!(matches!(error(libc::ENODEV), DeviceError::Gone { .. }));
        assert!(matches!(error(libc::EROFS), DeviceError::ReadOnly { .. }));
        assert!(matches!(error(libc::EFAULT), DeviceError::Os { errno: libc::EFAULT, .. }));
    }
}
