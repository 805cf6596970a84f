//! What a driver can do, and what a device is made with.

use bitflags::bitflags;

bitflags! {
    /// Flags of a device, and features of a driver: the same bits (`UBLK_F_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u64 {
        /// The device outlives its server (Linux 6.1).
        const USER_RECOVERY = 1 << 3;
        /// What the server had not answered is given to the next one (Linux 6.1).
        const USER_RECOVERY_REISSUE = 1 << 4;
        /// Commands have the numbers of ioctl (Linux 6.4).
        const IOCTL_NUMBERS = 1 << 6;
        /// Data is read and written on the character device (Linux 6.5).
        const USER_COPY = 1 << 7;
        /// Requests fail while there is no server (Linux 6.13).
        const USER_RECOVERY_FAIL_IO = 1 << 9;
        /// The size changes while the device is in use (Linux 6.16).
        const UPDATE_SIZE = 1 << 10;
        /// A server ends without leaving requests half way (Linux 6.16).
        const QUIESCE = 1 << 12;
        const _ = !0;
    }
}

/// What a driver can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub Flags);

impl Features {
    /// What a device needs in any case.
    pub const NEEDED: Flags =
        Flags::USER_RECOVERY.union(Flags::USER_RECOVERY_REISSUE).union(Flags::IOCTL_NUMBERS);

    /// What it lacks of what is needed.
    pub fn lacking(self) -> Flags {
        Self::NEEDED.difference(self.0)
    }

    /// What a device is made with: it outlives its server, and changes its size where it can.
    pub fn of_device(self) -> Flags {
        Self::NEEDED | self.0 & (Flags::UPDATE_SIZE | Flags::QUIESCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_made_with_what_the_driver_can() {
        let old = Features(Features::NEEDED | Flags::USER_COPY);
        assert_eq!(old.lacking(), Flags::empty());
        assert_eq!(old.of_device(), Features::NEEDED);
        let new = Features(
            old.0 | Flags::UPDATE_SIZE | Flags::QUIESCE | Flags::from_bits_retain(1 << 40),
        );
        assert_eq!(new.of_device(), Features::NEEDED | Flags::UPDATE_SIZE | Flags::QUIESCE);
        assert_eq!(Features::default().lacking(), Features::NEEDED);
    }
}
