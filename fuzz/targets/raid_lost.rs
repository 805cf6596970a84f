//! The list of lost blocks: any bytes, and a sound one in which some bytes were changed and the
//! checksum made right again.

#![no_main]

use headpond_block::ByteRange;
use headpond_fuzz::{patch, seal, sized};
use headpond_raid::lost::{COPY_BYTES, HEADER_BYTES, LostBlocks, decode, encode};
use libfuzzer_sys::fuzz_target;
use uuid::Uuid;

const ARRAY: Uuid = Uuid::from_u128(1000);
const ARRAY_BYTES: u64 = 1 << 30;
const CHECKSUM_AT: usize = 8;
const GROUPS: u64 = 3;

fuzz_target!(|data: &[u8]| {
    let _ = decode(&sized(data, COPY_BYTES), ARRAY, ARRAY_BYTES);
    let mut bytes = encode(ARRAY, 9, &sound());
    patch(&mut bytes, data);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    seal(&mut bytes, CHECKSUM_AT, 0..HEADER_BYTES + GROUPS as usize * 16);
    if let Ok((sequence, list)) = decode(&sized(&bytes, COPY_BYTES), ARRAY, ARRAY_BYTES) {
        let again = sized(&encode(ARRAY, sequence, &list), COPY_BYTES);
        assert_eq!(decode(&again, ARRAY, ARRAY_BYTES), Ok((sequence, list)));
    }
});

fn sound() -> LostBlocks {
    let mut list = LostBlocks::new(512);
    let lost: Vec<ByteRange> = (0..GROUPS).map(|group| ByteRange::at(group << 20, 1024)).collect();
    list.insert(&lost).expect("there is room");
    list
}
