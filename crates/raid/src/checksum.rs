//! CRC-32C of a block that carries its own checksum.

use crc_fast::{CrcAlgorithm, Digest};

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
    use crc_fast::checksum;

    #[test]
    fn it_is_the_crc_of_castagnoli() {
        assert_eq!(checksum(CrcAlgorithm::Crc32Iscsi, b"123456789"), 0xe306_9283);
        assert_eq!(with_hole(b"12\xff\xff\xff\xff89", 2), {
            checksum(CrcAlgorithm::Crc32Iscsi, b"12\0\0\0\x0089") as u32
        });
    }
}
