//! The handshake told as short stories, and a client that sends noise.

use super::*;
use crate::codec::option::{encode_export_query, encode_option};
use crate::codec::option_reply::OptionReplyHeader;
use crate::codec::wire::{GREETING_BYTES, TransmissionFlags};
use crate::export_info::example;
use proptest::prelude::*;

/// A handshake with two exports and a client that has said hello.
struct Story {
    machine: Handshake,
    exports: Vec<ExportInfo>,
    denial: Option<Denial>,
}

impl Story {
    fn begin(client: ClientFlags) -> Self {
        let mut greeting = Vec::new();
        let machine = Handshake::new(Limits::default(), &mut greeting);
        assert_eq!(greeting.len(), GREETING_BYTES);
        let exports = vec![example("hv0"), example("hv1")];
        let mut story = Self { machine, exports, denial: None };
        let (next, answer) = story.send(&client.bits().to_be_bytes());
        assert_eq!((next, answer.len()), (Next::Continue, 0));
        story
    }

    fn modern() -> Self {
        Self::begin(ClientFlags::all())
    }

    /// Hands over `bytes` one message at a time until nothing is left or the machine is done.
    fn send(&mut self, mut bytes: &[u8]) -> (Next, Vec<u8>) {
        let mut out = Vec::new();
        loop {
            let exports = self.denial.map_or(Ok(&self.exports[..]), Err);
            let step = self.machine.advance(bytes, exports, &mut out);
            bytes = &bytes[step.consumed..];
            let stuck = step.consumed == 0 && self.machine.wanted_bytes() > bytes.len();
            if step.next != Next::Continue || stuck {
                return (step.next, out);
            }
        }
    }

    fn option(&mut self, option: u32, data: &[u8]) -> (Next, Vec<u8>) {
        let mut bytes = Vec::new();
        encode_option(option, data, &mut bytes);
        self.send(&bytes)
    }

    fn query(&mut self, option: u32, name: &str, requests: &[u16]) -> (Next, Vec<u8>) {
        let mut data = Vec::new();
        encode_export_query(name, requests, &mut data);
        self.option(option, &data)
    }
}

/// Splits an answer into its replies.
fn replies(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let header = OptionReplyHeader::decode(bytes).expect("a reply");
        let end = OptionReplyHeader::BYTES + header.data_bytes as usize;
        replies.push((header.kind, bytes[OptionReplyHeader::BYTES..end].to_vec()));
        bytes = &bytes[end..];
    }
    replies
}

fn kinds(bytes: &[u8]) -> Vec<u32> {
    replies(bytes).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn go_tells_everything_asked_for_and_serves() {
    let mut story = Story::modern();
    let (next, answer) = story.option(opt::STRUCTURED_REPLY, b"");
    assert_eq!((next, kinds(&answer)), (Next::Continue, vec![rep::ACK]));
    let (next, answer) = story.query(opt::GO, "hv1", &[info::NAME, info::DESCRIPTION]);
    let agreement = Agreement { export: "hv1".into(), structured_replies: true, resends: false };
    assert_eq!(next, Next::Serve(agreement));
    let replies = replies(&answer);
    let infos: Vec<_> = replies[..4].iter().map(|(_, data)| Info::decode(data).unwrap()).collect();
    let Info::Export { size_bytes, flags } = infos[0] else { panic!("{infos:?}") };
    assert_eq!(size_bytes, 1 << 30);
    assert!(flags.contains(TransmissionFlags::HAS_FLAGS | TransmissionFlags::SEND_DF));
    assert_eq!(infos[1], Info::Name("hv1"));
    assert!(matches!(infos[2], Info::Description(_)));
    assert!(matches!(infos[3], Info::BlockSize(sizes) if sizes.minimum == 512));
    assert_eq!(replies[4].0, rep::ACK);
}

#[test]
fn info_tells_and_haggling_goes_on() {
    let mut story = Story::modern();
    let (next, answer) = story.query(opt::INFO, "hv0", &[]);
    assert_eq!(next, Next::Continue);
    assert_eq!(kinds(&answer), vec![rep::INFO, rep::INFO, rep::ACK]);
    assert!(matches!(story.query(opt::GO, "hv0", &[]).0, Next::Serve(_)));
}

#[test]
fn an_unknown_name_is_refused_and_the_client_may_try_another() {
    let mut story = Story::modern();
    let (next, answer) = story.query(opt::GO, "nope", &[]);
    assert_eq!((next, kinds(&answer)), (Next::Continue, vec![rep::ERR_UNKNOWN]));
    assert!(matches!(story.query(opt::GO, "", &[]).0, Next::Serve(_)));
}

#[test]
fn export_name_answers_size_and_flags_with_zeroes_only_for_those_who_want_them() {
    let mut story = Story::modern();
    let (next, answer) = story.option(opt::EXPORT_NAME, b"hv0");
    assert!(matches!(next, Next::Serve(_)));
    assert_eq!(answer.len(), 10);
    let mut story = Story::begin(ClientFlags::empty());
    let (_, answer) = story.option(opt::EXPORT_NAME, b"hv0");
    assert_eq!(answer.len(), 10 + EXPORT_NAME_PADDING_BYTES);
    assert_eq!(answer[..8], (1u64 << 30).to_be_bytes());
    let mut story = Story::modern();
    let (next, answer) = story.option(opt::EXPORT_NAME, b"nope");
    assert_eq!(next, Next::HangUp(HangUp::NoSuchExport("nope".into())));
    assert!(answer.is_empty());
}

#[test]
fn list_names_every_export() {
    let (next, answer) = Story::modern().option(opt::LIST, b"");
    assert_eq!(next, Next::Continue);
    assert_eq!(kinds(&answer), vec![rep::SERVER, rep::SERVER, rep::ACK]);
}

#[test]
fn abort_is_acknowledged_and_ends() {
    let (next, answer) = Story::modern().option(opt::ABORT, b"");
    assert_eq!((next, kinds(&answer)), (Next::HangUp(HangUp::Aborted), vec![rep::ACK]));
}

#[test]
fn unknown_options_are_unsupported_whatever_their_data() {
    for option in [opt::STARTTLS, 11, 4, 77, u32::MAX] {
        let mut story = Story::modern();
        let (next, answer) = story.option(option, b"");
        assert_eq!((next, kinds(&answer)), (Next::Continue, vec![rep::ERR_UNSUP]), "{option}");
    }
}

#[test]
fn meta_contexts_need_structured_replies_and_are_then_none() {
    let mut query = Vec::new();
    query.extend_from_slice(&3u32.to_be_bytes());
    query.extend_from_slice(b"hv0");
    query.extend_from_slice(&0u32.to_be_bytes());
    let mut story = Story::modern();
    let (_, answer) = story.option(opt::SET_META_CONTEXT, &query);
    assert_eq!(kinds(&answer), vec![rep::ERR_INVALID]);
    story.option(opt::STRUCTURED_REPLY, b"");
    let (_, answer) = story.option(opt::SET_META_CONTEXT, &query);
    assert_eq!(kinds(&answer), vec![rep::ACK]);
}

#[test]
fn the_thirty_third_option_ends_the_connection() {
    let mut story = Story::modern();
    for _ in 0..32 {
        assert_eq!(story.option(opt::LIST, b"").0, Next::Continue);
    }
    let (next, answer) = story.option(opt::LIST, b"");
    assert_eq!((next, answer.len()), (Next::HangUp(HangUp::TooManyOptions(32)), 0));
}

#[test]
fn long_option_data_is_skipped_and_absurd_data_ends_the_connection() {
    let mut story = Story::modern();
    let (next, answer) = story.option(opt::GO, &vec![0; 40_000]);
    assert_eq!((next, kinds(&answer)), (Next::Continue, vec![rep::ERR_TOO_BIG]));
    assert!(matches!(story.query(opt::GO, "hv0", &[]).0, Next::Serve(_)));
    let mut header = Vec::new();
    encode_option(opt::GO, b"", &mut header);
    header[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let (next, _) = Story::modern().send(&header);
    assert_eq!(next, Next::HangUp(HangUp::OptionTooLong(u32::MAX)));
}

#[test]
fn a_malformed_option_is_invalid_and_haggling_goes_on() {
    let mut story = Story::modern();
    let (next, answer) = story.option(opt::GO, &[0, 0, 0, 200, b'x']);
    assert_eq!((next, kinds(&answer)), (Next::Continue, vec![rep::ERR_INVALID]));
    assert!(matches!(story.query(opt::GO, "hv0", &[]).0, Next::Serve(_)));
}

#[test]
fn a_wrong_magic_or_unknown_flags_end_the_connection() {
    let (next, answer) = Story::modern().send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(next, Next::HangUp(HangUp::Malformed(CodecError::BadMagic { .. }))));
    assert!(answer.is_empty());
    let mut machine = Handshake::new(Limits::default(), &mut Vec::new());
    let step = machine.advance(&4u32.to_be_bytes(), Ok(&[]), &mut Vec::new());
    assert_eq!(step.next, Next::HangUp(HangUp::UnknownFlags(4)));
}

#[test]
fn a_client_without_fixed_newstyle_may_only_name_an_export() {
    let mut story = Story::begin(ClientFlags::empty());
    assert_eq!(story.option(opt::LIST, b"").0, Next::HangUp(HangUp::NotFixedNewstyle));
}

#[test]
fn a_server_that_shuts_down_says_so() {
    let mut story = Story::modern();
    story.denial = Some(Denial::ShuttingDown);
    let (next, answer) = story.query(opt::GO, "hv0", &[]);
    assert_eq!(next, Next::HangUp(HangUp::ShuttingDown));
    assert_eq!(kinds(&answer), vec![rep::ERR_SHUTDOWN]);
}

#[test]
fn a_full_server_says_so_to_whoever_asks_for_an_export() {
    for asked in [opt::GO, opt::INFO, opt::LIST] {
        let mut story = Story::modern();
        story.denial = Some(Denial::Full { connections: 7 });
        let (next, answer) = story.option(opt::STRUCTURED_REPLY, b"");
        assert_eq!((next, kinds(&answer)), (Next::Continue, vec![rep::ACK]));
        let (next, answer) = match asked {
            opt::LIST => story.option(asked, b""),
            _ => story.query(asked, "hv0", &[]),
        };
        assert_eq!((next, kinds(&answer)), (Next::HangUp(HangUp::Full), vec![rep::ERR_POLICY]));
        assert!(answer.ends_with(b"all 7 connections of this server are in use"));
    }
    let mut story = Story::modern();
    story.denial = Some(Denial::Full { connections: 7 });
    let (next, answer) = story.option(opt::EXPORT_NAME, b"hv0");
    assert_eq!((next, answer.len()), (Next::HangUp(HangUp::Full), 0));
}

#[test]
fn bytes_after_go_are_left_for_the_transmission_phase() {
    let mut story = Story::modern();
    let mut data = Vec::new();
    encode_export_query("hv0", &[], &mut data);
    let mut bytes = Vec::new();
    encode_option(opt::GO, &data, &mut bytes);
    let header = story.machine.advance(&bytes, Ok(&story.exports), &mut Vec::new());
    assert_eq!(header.consumed, OptionHeader::BYTES);
    let mut rest = bytes[header.consumed..].to_vec();
    let go_bytes = rest.len();
    rest.extend_from_slice(b"first request");
    let step = story.machine.advance(&rest, Ok(&story.exports), &mut Vec::new());
    assert!(matches!(step.next, Next::Serve(_)));
    assert_eq!(step.consumed, go_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Pieces of real messages mixed with noise, cut at any byte: the machine never panics,
    /// never claims more than it was given, and always comes to an end.
    #[test]
    fn hostile_bytes_are_survived(
        pieces in proptest::collection::vec((0u32..14, any::<bool>(), any::<Vec<u8>>()), 0..50),
        cut in 1usize..40,
    ) {
        let mut bytes = ClientFlags::all().bits().to_be_bytes().to_vec();
        for (option, framed, noise) in pieces {
            if framed {
                encode_option(option, &noise, &mut bytes);
            } else {
                bytes.extend_from_slice(&noise);
            }
        }
        let exports = [example("a")];
        let mut machine = Handshake::new(Limits::default(), &mut Vec::new());
        let mut received = 0;
        let mut done = 0;
        while received < bytes.len() {
            received = (received + cut).min(bytes.len());
            loop {
                let input = &bytes[done..received];
                let step = machine.advance(input, Ok(&exports), &mut Vec::new());
                prop_assert!(step.consumed <= input.len());
                done += step.consumed;
                if step.next != Next::Continue {
                    return Ok(());
                }
                if step.consumed == 0 && machine.wanted_bytes() > received - done {
                    break;
                }
            }
        }
    }
}
