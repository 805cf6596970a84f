//! What the driver keeps of a device (`struct ublksrv_ctrl_dev_info`).

use crate::features::Flags;

/// Any number that is free.
const ANY: u32 = u32::MAX;

/// A device, as its driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// N of `/dev/ublkbN`.
    pub number: u32,
    pub queues: u16,
    pub depth: u16,
    pub io_bytes_max: u32,
    pub state: State,
    /// The process that serves it, or did.
    pub server: i32,
    pub flags: Flags,
    /// For the server alone: what the device is of.
    pub tag: u64,
}

/// Whether requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not shown, or removed.
    Dead,
    Live,
    /// The server is gone; requests wait for the next one.
    Quiesced,
    /// The server is gone; requests fail.
    Failing,
    Unknown(u16),
}

impl State {
    const fn of(number: u16) -> Self {
        match number {
            0 => Self::Dead,
            1 => Self::Live,
            2 => Self::Quiesced,
            3 => Self::Failing,
            other => Self::Unknown(other),
        }
    }
}

impl Information {
    pub const BYTES: usize = 64;

    /// Of a device that is to be made.
    pub(crate) fn wanted(
        number: Option<u32>,
        (queues, depth, io_bytes_max): (u16, u16, u32),
        flags: Flags,
        tag: u64,
    ) -> Self {
        let number = number.unwrap_or(ANY);
        Self { number, queues, depth, io_bytes_max, state: State::Dead, server: 0, flags, tag }
    }

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.queues.to_ne_bytes());
        put(2, &self.depth.to_ne_bytes());
        put(8, &self.io_bytes_max.to_ne_bytes());
        put(12, &self.number.to_ne_bytes());
        put(16, &self.server.to_ne_bytes());
        put(24, &self.flags.bits().to_ne_bytes());
        put(32, &self.tag.to_ne_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u32::from(word(at)) | u32::from(word(at + 2)) << 16;
        let quad = |at: usize| u64::from(long(at)) | u64::from(long(at + 4)) << 32;
        Self {
            number: long(12),
            queues: word(0),
            depth: word(2),
            io_bytes_max: long(8),
            state: State::of(word(4)),
            server: long(16) as i32,
            flags: Flags::from_bits_retain(quad(24)),
            tag: quad(32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_its_state_is_the_drivers() {
        let shape = (3, 128, 1 << 20);
        let wanted =
            Information::wanted(Some(7), shape, Flags::USER_RECOVERY, 0x0102_0304_0506_0708);
        let mut bytes = wanted.encode();
        assert_eq!(Information::decode(&bytes), wanted);
        bytes[4] = 2;
        assert_eq!(Information::decode(&bytes).state, State::Quiesced);
        let any = Information::wanted(None, shape, Flags::empty(), 0);
        assert_eq!(any.encode()[12..16], [0xff; 4]);
    }
}
