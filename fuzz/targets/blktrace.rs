//! A blktrace capture of either byte order, and whatever else the reader takes the bytes for.

#![no_main]

use headpond_fuzz::{read_trace, stamp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&version, rest)) = data.split_first() else { return };
    read_trace(rest.to_vec());
    for magic in
        [[0x07 + (version & 1), 0x74, 0x61, 0x65], [0x65, 0x61, 0x74, 0x07 + (version & 1)]]
    {
        let mut bytes = rest.to_vec();
        // Events follow each other without a gap; the fuzzer moves the payload lengths within them.
        for event in bytes.chunks_mut(48) {
            stamp(event, &magic);
        }
        read_trace(bytes);
    }
});
