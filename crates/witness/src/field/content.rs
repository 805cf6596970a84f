//! What a block was found to hold, in words that need no book: whose value it is, and whether it is
//! whole.
//!
//! A block of the field is eight sectors of [`Payload`]: magic, seed, sequence and address, and a
//! body that follows from them, so that every word of a sector proves all of it. That is stricter
//! than a checksum beside the data: a sector is one that the run has made, or it is not.

use crate::{BLOCK_BYTES, Content, Payload, SECTOR_BYTES, SECTORS_PER_BLOCK, WriteId};

/// One sector of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sector {
    Written {
        sequence: u64,
        address: u64,
    },
    Zeroes,
    /// Nothing in it is of this run.
    Foreign,
    /// It carries the seed of this run, and is none of its sectors.
    Damaged,
}

/// One block of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContent {
    /// All of it is one write's, for the block at this byte address.
    Written {
        sequence: u64,
        address: u64,
    },
    Zeroes,
    /// Nothing in it is of this run.
    Foreign,
    /// Its sectors do not belong together.
    Mixed([Sector; SECTORS_PER_BLOCK]),
    /// The device answers reads of it with an error.
    Unreadable,
}

/// Recognises one block.
///
/// # Panics
/// Where `bytes` is not one block long.
pub fn recognise(payload: &Payload, bytes: &[u8]) -> BlockContent {
    assert_eq!(bytes.len() as u64, BLOCK_BYTES, "one block");
    let mut sectors = [Sector::Foreign; SECTORS_PER_BLOCK];
    for (index, bytes) in bytes.chunks_exact(SECTOR_BYTES as usize).enumerate() {
        let within = index as u64 * SECTOR_BYTES;
        sectors[index] = match payload.identify(bytes) {
            Content::Zeroes => Sector::Zeroes,
            Content::Written { write, address: at } => {
                Sector::Written { sequence: write.0, address: at.wrapping_sub(within) }
            }
            Content::Garbage if payload.begins_like(bytes) => Sector::Damaged,
            Content::Garbage => Sector::Foreign,
        };
    }
    let is_ours = |sector: &Sector| matches!(sector, Sector::Written { .. } | Sector::Damaged);
    match sectors[0] {
        first if sectors.iter().all(|sector| *sector == first) => match first {
            Sector::Written { sequence, address } => BlockContent::Written { sequence, address },
            Sector::Zeroes => BlockContent::Zeroes,
            Sector::Foreign => BlockContent::Foreign,
            Sector::Damaged => BlockContent::Mixed(sectors),
        },
        _ if !sectors.iter().any(is_ours) => BlockContent::Foreign,
        _ => BlockContent::Mixed(sectors),
    }
}

/// Fills `bytes` with what the write `sequence` puts at `address`.
///
/// # Panics
/// Where address or length are not of whole sectors.
pub fn fill(payload: &Payload, sequence: u64, address: u64, bytes: &mut [u8]) {
    payload.fill(WriteId(sequence), address, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(payload: &Payload, sequence: u64, address: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        fill(payload, sequence, address, &mut bytes);
        bytes
    }

    #[test]
    fn a_block_tells_its_write_its_address_and_whether_it_is_whole() {
        let payload = Payload::new(5);
        let whole = block(&payload, 9, 8192);
        let written = BlockContent::Written { sequence: 9, address: 8192 };
        assert_eq!(recognise(&payload, &whole), written);
        assert_eq!(recognise(&payload, &whole), written, "it says where it belongs");
        let torn = [&whole[..2048], &block(&payload, 8, 8192)[2048..]].concat();
        assert!(matches!(recognise(&payload, &torn), BlockContent::Mixed(_)));
        let mut damaged = whole.clone();
        damaged[700] ^= 1;
        let BlockContent::Mixed(sectors) = recognise(&payload, &damaged) else { panic!("mixed") };
        assert_eq!(sectors[1], Sector::Damaged);
    }

    #[test]
    fn what_another_run_or_nobody_wrote_is_foreign() {
        let payload = Payload::new(5);
        let other = block(&Payload::new(6), 9, 0);
        assert_eq!(recognise(&payload, &other), BlockContent::Foreign);
        assert_eq!(recognise(&payload, &[0; 4096]), BlockContent::Zeroes);
        let half = [&[0; 2048][..], &[7; 2048]].concat();
        assert_eq!(recognise(&payload, &half), BlockContent::Foreign);
    }
}
