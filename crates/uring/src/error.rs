//! Why a ring cannot be set up, or a run cannot continue.

use headpond_block::Stalled;
use std::io;

/// io_uring is unavailable, or lacks required features.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    #[error(
        "this kernel has no io_uring: Linux 5.15 or newer, built with CONFIG_IO_URING, is required"
    )]
    Missing,
    #[error(
        "this kernel's io_uring is too old (it lacks {feature}): Linux 5.15 or newer is required"
    )]
    TooOld { feature: &'static str },
    #[error(
        "io_uring is disabled on this host (kernel.io_uring_disabled=2): `sysctl \
        kernel.io_uring_disabled=0` enables it"
    )]
    Disabled,
    #[error(
        "io_uring is reserved for privileged users here (kernel.io_uring_disabled=1): run as root, \
         join the group of kernel.io_uring_group, or `sysctl kernel.io_uring_disabled=0`"
    )]
    Privileged,
    #[error(
        "the kernel has io_uring, but this process may not use it, most likely because of a \
        container's seccomp filter: allow io_uring_setup, io_uring_enter and io_uring_register in \
        its profile"
    )]
    Forbidden,
    #[error(
        "not enough memory for a ring of {entries} entries: raise RLIMIT_MEMLOCK (`ulimit -l`) or \
        use fewer entries"
    )]
    NoMemory { entries: u32 },
    #[error("the ring cannot be set up: {0}")]
    Os(#[from] io::Error),
}

/// A run ended without the result of its main future.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error(transparent)]
    Stalled(#[from] Stalled),
}

/// Names the cause of a refused `io_uring_setup`.
///
/// `disabled` is the text of `/proc/sys/kernel/io_uring_disabled`, where there is one.
pub(crate) fn setup_refused(error: io::Error, entries: u32, disabled: Option<&str>) -> RingError {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => RingError::Missing,
        Some(libc::ENOMEM) => RingError::NoMemory { entries },
        Some(libc::EPERM | libc::EACCES) => match disabled.map(str::trim) {
            Some("2") => RingError::Disabled,
            Some("1") => RingError::Privileged,
            _ => RingError::Forbidden,
        },
        _ => RingError::Os(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: i32, disabled: Option<&str>) -> RingError {
        setup_refused(io::Error::from_raw_os_error(errno), 64, disabled)
    }

    #[test]
    fn each_refusal_names_its_cause_and_way_out() {
        let message = |errno, disabled| refused(errno, disabled).to_string();
        assert!(message(libc::ENOSYS, None).contains("CONFIG_IO_URING"));
        assert!(message(libc::EPERM, Some("2\n")).contains("io_uring_disabled=2"));
        assert!(message(libc::EPERM, Some("1\n")).contains("io_uring_group"));
        assert!(message(libc::EPERM, Some("0\n")).contains("seccomp"));
        assert!(message(libc::EPERM, None).contains("seccomp"));
        assert!(message(libc::ENOMEM, None).contains("RLIMIT_MEMLOCK"));
        assert!(matches!(refused(libc::EMFILE, None), RingError::Os(_)));
    }
}
