//! The server's handshake against any client, whose bytes arrive in pieces of any size.

#![no_main]

use headpond_nbd::codec::option_reply::BlockSizes;
use headpond_nbd::codec::wire::TransmissionFlags;
use headpond_nbd::export_info::ExportInfo;
use headpond_nbd::limits::Limits;
use headpond_nbd::server::handshake::{Handshake, Next};
use libfuzzer_sys::fuzz_target;

/// One message may be answered with a few replies for each export.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

fuzz_target!(|data: &[u8]| {
    let Some((&piece, client)) = data.split_first() else { return };
    let exports = [export("", 1 << 40), export("second", 4096)];
    let mut out = Vec::new();
    let mut handshake = Handshake::new(Limits::default(), &mut out);
    let (mut start, mut end) = (0, 0);
    loop {
        out.clear();
        let step = handshake.advance(&client[start..end], Ok(&exports), &mut out);
        assert!(step.consumed <= end - start, "more was consumed than was there");
        assert!(out.len() <= ANSWER_BYTES_MAX, "{} bytes of answer", out.len());
        start += step.consumed;
        if step.next != Next::Continue {
            return;
        }
        if step.consumed == 0 {
            if end == client.len() {
                return;
            }
            end = client.len().min(end + 1 + usize::from(piece));
        }
    }
});

fn export(name: &str, size_bytes: u64) -> ExportInfo {
    ExportInfo {
        name: name.to_owned(),
        description: "fuzzed".to_owned(),
        size_bytes,
        flags: TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_FUA,
        block_sizes: BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 },
    }
}
