//! The client's side of the handshake as a state machine without I/O.
//!
//! 1. The greeting arrives; flags and `STRUCTURED_REPLY` are sent.
//! 2. Whatever the answer, `GO` is sent for the export.
//! 3. Information arrives until `ACK`; a server without `GO` gets `EXPORT_NAME`.

use crate::codec::option::{encode_export_query, encode_option};
use crate::codec::option_reply::{BlockSizes, Info, OptionReplyHeader, decode_greeting};
use crate::codec::wire::{
    ClientFlags, EXPORT_NAME_PADDING_BYTES, GREETING_BYTES, HandshakeFlags, TransmissionFlags,
    info, opt, rep,
};
use crate::codec::{CodecError, Cursor};
use crate::limits::PAYLOAD_BYTES_MAX;

/// Longest data of one option reply that a client decodes.
const REPLY_BYTES_MAX: u32 = 16 * 1024;
/// Replies after which the handshake is aborted.
const REPLIES_MAX: u32 = 64;
/// Size and flags that answer `EXPORT_NAME`.
const EXPORT_NAME_BYTES: usize = 10;

/// The export as the server described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    pub size_bytes: u64,
    pub flags: TransmissionFlags,
    pub block_sizes: BlockSizes,
    pub structured_replies: bool,
    /// The server's description; empty where it has none.
    pub name: String,
    pub description: String,
}

/// Why there is no connection to the export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the server has no export named {0:?}")]
    UnknownExport(String),
    #[error("the server requires TLS")]
    TlsRequired,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("the server refused the export: {0:?}")]
    Policy(String),
    #[error("the server refused the export with reply {0:#x}")]
    Refused(u32),
    #[error("the server does not support the fixed newstyle handshake")]
    NotFixedNewstyle,
    #[error("the server replied to option {found} instead of option {expected}")]
    OutOfTurn { expected: u32, found: u32 },
    #[error("the server announced a reply of {0} bytes")]
    ReplyTooLong(u32),
    #[error("the server sent more than {REPLIES_MAX} replies")]
    TooManyReplies,
    #[error("the server acknowledged the export without its size")]
    NoSize,
    #[error(transparent)]
    Malformed(#[from] CodecError),
}

/// A handshake in progress.
#[derive(Debug)]
pub struct ClientHandshake {
    export: String,
    phase: Phase,
    terms: Terms,
    has_size: bool,
    has_zeroes: bool,
    replies: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    Reply { asked: u32 },
    ReplyData { asked: u32, header: OptionReplyHeader },
    ExportName,
}

impl ClientHandshake {
    /// Starts a handshake for `export`.
    ///
    /// # Panics
    /// Where the name is longer than the protocol allows.
    pub fn new(export: &str) -> Self {
        let block_sizes = BlockSizes { minimum: 512, preferred: 4096, maximum: PAYLOAD_BYTES_MAX };
        let flags = TransmissionFlags::empty();
        let (name, description) = (String::new(), String::new());
        let structured_replies = false;
        let terms =
            Terms { size_bytes: 0, flags, block_sizes, structured_replies, name, description };
        let (export, phase) = (export.to_owned(), Phase::Greeting);
        Self { export, phase, terms, has_size: false, has_zeroes: true, replies: 0 }
    }

    /// Bytes of the next message; [`Self::advance`] is called with exactly as many.
    pub fn wanted_bytes(&self) -> usize {
        match self.phase {
            Phase::Greeting => GREETING_BYTES,
            Phase::Reply { .. } => OptionReplyHeader::BYTES,
            Phase::ReplyData { header, .. } => header.data_bytes as usize,
            Phase::ExportName if self.has_zeroes => EXPORT_NAME_BYTES + EXPORT_NAME_PADDING_BYTES,
            Phase::ExportName => EXPORT_NAME_BYTES,
        }
    }

    /// Handles one whole message and appends what is to be sent; the terms once they are settled.
    ///
    /// # Errors
    /// A [`Refusal`]; the connection is of no further use.
    ///
    /// # Panics
    /// Where `message` does not have [`Self::wanted_bytes`].
    pub fn advance(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<Option<Terms>, Refusal> {
        assert_eq!(message.len(), self.wanted_bytes(), "one whole message at a time");
        match self.phase {
            Phase::Greeting => self.greeting(message, out),
            Phase::Reply { asked } => self.reply_header(asked, message),
            Phase::ReplyData { asked, header } => self.reply(asked, header, message, out),
            Phase::ExportName => {
                let mut cursor = Cursor::new("answer to EXPORT_NAME", message);
                self.terms.size_bytes = cursor.u64()?;
                self.terms.flags = TransmissionFlags::from_bits_truncate(cursor.u16()?);
                Ok(Some(self.terms.clone()))
            }
        }
    }

    fn greeting(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<Option<Terms>, Refusal> {
        let bytes = message.try_into().expect("as long as a greeting");
        let offered = decode_greeting(bytes)?;
        if !offered.contains(HandshakeFlags::FIXED_NEWSTYLE) {
            return Err(Refusal::NotFixedNewstyle);
        }
        self.has_zeroes = !offered.contains(HandshakeFlags::NO_ZEROES);
        let mut flags = ClientFlags::FIXED_NEWSTYLE;
        flags.set(ClientFlags::NO_ZEROES, !self.has_zeroes);
        out.extend_from_slice(&flags.bits().to_be_bytes());
        encode_option(opt::STRUCTURED_REPLY, b"", out);
        self.phase = Phase::Reply { asked: opt::STRUCTURED_REPLY };
        Ok(None)
    }

    fn reply_header(&mut self, asked: u32, message: &[u8]) -> Result<Option<Terms>, Refusal> {
        let header = OptionReplyHeader::decode(message)?;
        self.replies += 1;
        if self.replies > REPLIES_MAX {
            return Err(Refusal::TooManyReplies);
        }
        if header.option != asked {
            return Err(Refusal::OutOfTurn { expected: asked, found: header.option });
        }
        if header.data_bytes > REPLY_BYTES_MAX {
            return Err(Refusal::ReplyTooLong(header.data_bytes));
        }
        self.phase = Phase::ReplyData { asked, header };
        Ok(None)
    }

    fn reply(
        &mut self,
        asked: u32,
        header: OptionReplyHeader,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Terms>, Refusal> {
        self.phase = Phase::Reply { asked };
        if asked == opt::STRUCTURED_REPLY {
            self.terms.structured_replies = header.kind == rep::ACK;
            self.ask_to_go(out);
            return Ok(None);
        }
        match header.kind {
            rep::INFO => self.learn(Info::decode(data)?),
            rep::ACK if !self.has_size => return Err(Refusal::NoSize),
            rep::ACK => return Ok(Some(self.terms.clone())),
            rep::ERR_UNSUP => self.ask_by_name(out),
            kind => return Err(self.refusal(kind, data)),
        }
        Ok(None)
    }

    fn ask_to_go(&mut self, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        let wanted = [info::BLOCK_SIZE, info::NAME, info::DESCRIPTION];
        encode_export_query(&self.export, &wanted, &mut data);
        encode_option(opt::GO, &data, out);
        self.phase = Phase::Reply { asked: opt::GO };
    }

    fn ask_by_name(&mut self, out: &mut Vec<u8>) {
        encode_option(opt::EXPORT_NAME, self.export.as_bytes(), out);
        self.phase = Phase::ExportName;
    }

    fn learn(&mut self, info: Info<'_>) {
        match info {
            Info::Export { size_bytes, flags } => {
                (self.terms.size_bytes, self.terms.flags) = (size_bytes, flags);
                self.has_size = true;
            }
            Info::BlockSize(sizes) => self.terms.block_sizes = sizes,
            Info::Name(name) => self.terms.name = name.to_owned(),
            Info::Description(text) => self.terms.description = text.to_owned(),
            Info::Unknown(_) => {}
        }
    }

    fn refusal(&self, kind: u32, reason: &[u8]) -> Refusal {
        match kind {
            rep::ERR_UNKNOWN => Refusal::UnknownExport(self.export.clone()),
            rep::ERR_TLS_REQD => Refusal::TlsRequired,
            rep::ERR_SHUTDOWN => Refusal::ShuttingDown,
            rep::ERR_POLICY => Refusal::Policy(String::from_utf8_lossy(reason).into_owned()),
            other => Refusal::Refused(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export_info::example;
    use crate::limits::Limits;
    use crate::server::handshake::{Handshake, Next};
    use proptest::prelude::*;

    /// Lets a client and our server haggle in memory.
    fn haggle(export: &str) -> Result<Terms, Refusal> {
        let exports = [example("hv0")];
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        let mut server = Handshake::new(Limits::default(), &mut to_client);
        let mut client = ClientHandshake::new(export);
        loop {
            while to_client.len() >= client.wanted_bytes() {
                let message: Vec<u8> = to_client.drain(..client.wanted_bytes()).collect();
                if let Some(terms) = client.advance(&message, &mut to_server)? {
                    return Ok(terms);
                }
            }
            let step = server.advance(&to_server, Ok(&exports), &mut to_client);
            to_server.drain(..step.consumed);
            assert!(!matches!(step.next, Next::HangUp(_)), "{step:?}");
        }
    }

    #[test]
    fn client_and_server_agree_on_everything() {
        let terms = haggle("hv0").unwrap();
        assert_eq!(terms.size_bytes, 1 << 30);
        assert!(terms.structured_replies);
        assert!(terms.flags.contains(TransmissionFlags::SEND_FUA | TransmissionFlags::SEND_DF));
        assert_eq!(terms.block_sizes.maximum, PAYLOAD_BYTES_MAX);
        assert_eq!(terms.name, "hv0");
        assert_eq!(terms.description, example("hv0").description);
    }

    #[test]
    fn a_missing_export_is_named() {
        assert_eq!(haggle("nope"), Err(Refusal::UnknownExport("nope".into())));
    }

    #[test]
    fn a_server_that_announces_a_huge_reply_is_given_up() {
        let mut client = ClientHandshake::new("");
        let mut greeting = Vec::new();
        Handshake::new(Limits::default(), &mut greeting);
        client.advance(&greeting, &mut Vec::new()).unwrap();
        let mut header = Vec::new();
        crate::codec::option_reply::encode_reply(opt::STRUCTURED_REPLY, rep::ACK, b"", &mut header);
        header[16..].copy_from_slice(&u32::MAX.to_be_bytes());
        let refused = client.advance(&header, &mut Vec::new());
        assert_eq!(refused, Err(Refusal::ReplyTooLong(u32::MAX)));
    }

    proptest! {
        #[test]
        fn hostile_servers_are_survived(
            pieces in proptest::collection::vec((0u32..12, 0u32..5, any::<Vec<u8>>()), 0..20),
        ) {
            let mut bytes = Vec::new();
            Handshake::new(Limits::default(), &mut bytes);
            for (option, kind, data) in pieces {
                crate::codec::option_reply::encode_reply(option, kind, &data, &mut bytes);
            }
            let mut client = ClientHandshake::new("x");
            while bytes.len() >= client.wanted_bytes() {
                let message: Vec<u8> = bytes.drain(..client.wanted_bytes()).collect();
                match client.advance(&message, &mut Vec::new()) {
                    Ok(None) => {}
                    Ok(Some(_)) | Err(_) => break,
                }
            }
        }
    }
}
