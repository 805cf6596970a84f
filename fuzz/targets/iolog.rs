//! fio iologs of each version, and blkparse text, which is recognised by its lines.

#![no_main]

use headpond_fuzz::read_trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    read_trace(data.to_vec());
    for version in ["fio version 2 iolog\n", "fio version 3 iolog\n"] {
        read_trace([version.as_bytes(), data].concat());
    }
});
