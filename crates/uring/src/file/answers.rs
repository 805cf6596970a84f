//! The kernel's errnos as errors of the device.

use headpond_block::{ByteRange, Cause, DeviceError, DeviceName};

/// What an errno means for an operation on `range`.
pub(super) fn device_error(
    device: &DeviceName,
    operation: &'static str,
    range: ByteRange,
    errno: i32,
) -> DeviceError {
    let cause = match errno {
        // Source: `blk_errors` in the kernel's block/blk-core.c: a medium error is ENODATA, a
        // failed integrity check EILSEQ; file systems answer EBADMSG (checksum) and EUCLEAN
        // (damage).
        libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EBADMSG | libc::EUCLEAN => {
            Cause::Media { range }
        }
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Cause::NoSpace,
        libc::ENODEV | libc::ENXIO | libc::ENOLINK | libc::ESTALE => Cause::Gone,
        libc::EROFS | libc::EBADF | libc::EPERM => Cause::ReadOnly,
        libc::EOPNOTSUPP => Cause::Unsupported { operation },
        errno => Cause::Os { operation, errno },
    };
    DeviceError::new(device, cause).with_errno(errno)
}

/// Whether the operation should simply be retried.
pub(super) fn is_passing(errno: i32) -> bool {
    matches!(errno, libc::EINTR | libc::EAGAIN)
}

/// Whether the file system or drive does not support the operation.
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
        assert!(matches!(error(libc::EIO).cause(), Cause::Media { .. }));
        assert!(matches!(error(libc::ENOSPC).cause(), Cause::NoSpace));
        assert!(error(libc::ENODEV).is_gone());
        assert!(matches!(error(libc::EROFS).cause(), Cause::ReadOnly));
        assert!(matches!(error(libc::EFAULT).cause(), Cause::Os { errno: libc::EFAULT, .. }));
        assert_eq!(error(libc::EDQUOT).in_words(), "Disk quota exceeded");
        assert_eq!(error(libc::EROFS).in_words(), "Read-only file system");
    }
}
