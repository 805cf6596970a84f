//! CRC-32C of blocks, and of those that carry their own checksum.

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// CRC-32C (Castagnoli).
pub fn of(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C (Castagnoli) of `bytes` with the four bytes at `hole` taken as zero.
pub fn with_hole(bytes: &[u8], hole: usize) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..hole]);
    digest.update(&[0; 4]);
    digest.update(&bytes[hole + 4..]);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_of_castagnoli() {
        assert_eq!(of(b"123456789"), 0xe306_9283);
        assert_eq!(with_hole(b"12\xff\xff\xff\xff89", 2), of(b"12\0\0\0\x0089"));
    }
}
