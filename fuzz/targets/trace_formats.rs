//! Every format that is read, as it is told: tables of text, records of one length, OCTF.

#![no_main]

use headpond_fuzz::read_trace_as;
use headpond_trace::TraceFormat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else { return };
    let format = TraceFormat::ALL[usize::from(which) % TraceFormat::ALL.len()];
    read_trace_as(rest.to_vec(), format);
});
