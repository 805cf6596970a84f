//! An NVMe controller's identify data.
//!
//! **Source**: NVM Express Base Specification 2.0, Identify Controller data structure.

/// Length of the structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// The fields about the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// VWC bit 0: there is a volatile write cache.
    pub volatile_write_cache: bool,
    /// ONCS bit 4: features can be saved.
    pub can_save: bool,
}

impl Identify {
    pub fn parse(data: &[u8; IDENTIFY_BYTES]) -> Self {
        let optional_commands = u16::from_le_bytes([data[520], data[521]]);
        Self {
            volatile_write_cache: data[525] & 0x01 != 0,
            can_save: optional_commands & 0x10 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_one_bit_of_byte_525_and_saving_one_of_520() {
        let mut data = [0; IDENTIFY_BYTES];
        assert_eq!(
            Identify::parse(&data),
            Identify { volatile_write_cache: false, can_save: false }
        );
        // The other bits are about flushing several namespaces at once.
        data[525] = 0x06;
        assert!(!Identify::parse(&data).volatile_write_cache);
        data[525] = 0x07;
        assert!(Identify::parse(&data).volatile_write_cache);
        data[520] = 0x10;
        assert!(Identify::parse(&data).can_save);
    }
}
