//! The server's side of the handshake as a state machine without I/O.
//!
//! 1. [`Handshake::new`] appends the greeting to the output.
//! 2. The caller hands received bytes to [`Handshake::advance`] and sends what it appends.
//! 3. [`Step`] gives the bytes consumed and whether to receive more, serve, or disconnect.
//!
//! **Invariants**
//! - One call handles at most one message, so the output of a call is bounded.
//! - Option data is collected by the caller up to [`Limits::option_bytes_max`], skipped up to
//!   [`Limits::option_skip_bytes_max`], and beyond that ends the connection.
//! - After `Serve` or `HangUp` the machine is not used again.
//!
//! **Not here**: the timer and the connection cap, which belong to the owner of the stream; TLS.

use crate::codec::option::{ClientOption, ExportQuery, MetaContextQuery, OptionHeader};
use crate::codec::option_reply::{Info, encode_greeting, encode_reply, encode_server};
use crate::codec::wire::{ClientFlags, EXPORT_NAME_PADDING_BYTES, HandshakeFlags, info, opt, rep};
use crate::codec::{CodecError, Cursor};
use crate::export_info::{ExportInfo, find_export};
use crate::limits::Limits;

/// Bytes of the client's answer to the greeting.
const CLIENT_FLAGS_BYTES: usize = 4;

/// A handshake in progress.
#[derive(Debug)]
pub struct Handshake {
    limits: Limits,
    phase: Phase,
    client: ClientFlags,
    options_seen: u32,
    structured_replies: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    OptionHeader,
    OptionData(OptionHeader),
    Skip { option: u32, left_bytes: u32 },
}

/// What the caller does after handing over bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes consumed from the front of the input.
    pub consumed: usize,
    pub next: Next,
}

/// What happens next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Call again with the remaining bytes; if nothing was consumed, receive more first.
    Continue,
    /// Enter the transmission phase; the remaining input belongs to it.
    Serve(Agreement),
    /// Send the output and close.
    HangUp(HangUp),
}

/// The negotiated terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Name of the export as the server knows it.
    pub export: String,
    pub structured_replies: bool,
    /// Whether the client sends requests without an answer again, on another connection: at a stop
    /// they are dropped, where others are refused.
    pub resends: bool,
}

/// Why the handshake ended without service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HangUp {
    #[error("the client ended the handshake")]
    Aborted,
    #[error("the client set flags {0:#x} that the server did not offer")]
    UnknownFlags(u32),
    #[error("the client sent more than {0} options")]
    TooManyOptions(u32),
    #[error("the client announced {0} bytes of option data")]
    OptionTooLong(u32),
    #[error("no export has the name {0:?}")]
    NoSuchExport(String),
    #[error("the client negotiates without fixed newstyle")]
    NotFixedNewstyle,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("all connections are in use")]
    Full,
    #[error(transparent)]
    Malformed(#[from] CodecError),
}

/// Why no export is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    ShuttingDown,
    /// The connection limit is reached.
    Full {
        connections: usize,
    },
}

impl Handshake {
    /// Starts a handshake and appends the greeting to `out`.
    pub fn new(limits: Limits, out: &mut Vec<u8>) -> Self {
        encode_greeting(HandshakeFlags::all(), out);
        Self {
            limits,
            phase: Phase::ClientFlags,
            client: ClientFlags::empty(),
            options_seen: 0,
            structured_replies: false,
        }
    }

    /// Handles the message at the front of `input`, if it is complete, and appends the answer.
    ///
    /// `exports` are the current ones, or why there are none.
    pub fn advance(
        &mut self,
        input: &[u8],
        exports: Result<&[ExportInfo], Denial>,
        out: &mut Vec<u8>,
    ) -> Step {
        let advanced = match self.phase {
            Phase::ClientFlags => self.client_flags(input),
            Phase::OptionHeader => self.option_header(input),
            Phase::Skip { option, left_bytes } => Ok(self.skip(option, left_bytes, input, out)),
            Phase::OptionData(header) => self.option_data(header, input, exports, out),
        };
        advanced.unwrap_or_else(|reason| Step { consumed: 0, next: Next::HangUp(reason) })
    }

    /// Bytes that the next message needs at least, so that a caller can size its buffer.
    pub fn wanted_bytes(&self) -> usize {
        match self.phase {
            Phase::ClientFlags => CLIENT_FLAGS_BYTES,
            Phase::OptionHeader => OptionHeader::BYTES,
            Phase::OptionData(header) => header.data_bytes as usize,
            Phase::Skip { .. } => 1,
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> Result<Step, HangUp> {
        let Some(bytes) = input.get(..CLIENT_FLAGS_BYTES) else { return Ok(Step::wait()) };
        let bits = Cursor::new("client flags", bytes).u32()?;
        self.client = ClientFlags::from_bits(bits).ok_or(HangUp::UnknownFlags(bits))?;
        self.phase = Phase::OptionHeader;
        Ok(Step::go_on(CLIENT_FLAGS_BYTES))
    }

    fn option_header(&mut self, input: &[u8]) -> Result<Step, HangUp> {
        let Some(bytes) = input.get(..OptionHeader::BYTES) else { return Ok(Step::wait()) };
        let header = OptionHeader::decode(bytes)?;
        self.options_seen += 1;
        if self.options_seen > self.limits.options_max {
            return Err(HangUp::TooManyOptions(self.limits.options_max));
        }
        self.phase = self.after_header(header)?;
        Ok(Step::go_on(OptionHeader::BYTES))
    }

    /// Decides whether the data of an option is worth collecting.
    fn after_header(&self, header: OptionHeader) -> Result<Phase, HangUp> {
        if header.data_bytes <= self.limits.option_bytes_max {
            return Ok(Phase::OptionData(header));
        }
        // EXPORT_NAME has no error reply: skipping its data would leave the client hanging.
        let may_skip = header.option != opt::EXPORT_NAME;
        if may_skip && header.data_bytes <= self.limits.option_skip_bytes_max {
            return Ok(Phase::Skip { option: header.option, left_bytes: header.data_bytes });
        }
        Err(HangUp::OptionTooLong(header.data_bytes))
    }

    fn skip(&mut self, option: u32, left_bytes: u32, input: &[u8], out: &mut Vec<u8>) -> Step {
        assert!(left_bytes > 0, "only data longer than the limit is skipped");
        let consumed = input.len().min(left_bytes as usize);
        let left_bytes = left_bytes - consumed as u32;
        self.phase = Phase::Skip { option, left_bytes };
        if left_bytes == 0 {
            encode_reply(option, rep::ERR_TOO_BIG, b"option data is too long", out);
            self.phase = Phase::OptionHeader;
        }
        Step::go_on(consumed)
    }

    fn option_data(
        &mut self,
        header: OptionHeader,
        input: &[u8],
        exports: Result<&[ExportInfo], Denial>,
        out: &mut Vec<u8>,
    ) -> Result<Step, HangUp> {
        let data_bytes = header.data_bytes as usize;
        let Some(data) = input.get(..data_bytes) else { return Ok(Step::wait()) };
        self.phase = Phase::OptionHeader;
        let option = header.option;
        let is_fixed = self.client.contains(ClientFlags::FIXED_NEWSTYLE);
        if !is_fixed && option != opt::EXPORT_NAME {
            return Err(HangUp::NotFixedNewstyle);
        }
        let decoded = match ClientOption::decode(option, data) {
            Ok(decoded) => decoded,
            Err(error) if option == opt::EXPORT_NAME => return Err(error.into()),
            Err(error) => {
                encode_reply(option, rep::ERR_INVALID, error.to_string().as_bytes(), out);
                return Ok(Step::go_on(data_bytes));
            }
        };
        let next = self.answer(option, decoded, exports, out)?;
        Ok(Step { consumed: data_bytes, next })
    }

    fn answer(
        &mut self,
        number: u32,
        option: ClientOption<'_>,
        exports: Result<&[ExportInfo], Denial>,
        out: &mut Vec<u8>,
    ) -> Result<Next, HangUp> {
        let exports = match exports {
            Ok(exports) => exports,
            Err(Denial::ShuttingDown) => return refuse_shutting_down(number, &option, out),
            Err(Denial::Full { connections }) => match turn_away(number, &option, connections, out)
            {
                Some(denied) => return denied,
                None => &[],
            },
        };
        match option {
            ClientOption::ExportName(name) => return self.export_name(name, exports, out),
            ClientOption::Abort => return Ok(abort(out)),
            ClientOption::List => list(exports, out),
            ClientOption::Info(query) => {
                self.describe(number, query, exports, out);
            }
            ClientOption::Go(query) => {
                if let Some(export) = self.describe(number, query, exports, out) {
                    return Ok(Next::Serve(self.agreement(export)));
                }
            }
            ClientOption::StructuredReply => {
                self.structured_replies = true;
                encode_reply(number, rep::ACK, b"", out);
            }
            ClientOption::ListMetaContext(query) | ClientOption::SetMetaContext(query) => {
                self.meta_context(number, query, exports, out);
            }
            ClientOption::StartTls | ClientOption::Unknown(_) => {
                encode_reply(number, rep::ERR_UNSUP, b"", out);
            }
        }
        Ok(Next::Continue)
    }

    /// `NBD_OPT_EXPORT_NAME` has neither error nor information replies: size and flags, or the end.
    fn export_name(
        &self,
        name: &str,
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) -> Result<Next, HangUp> {
        let export = find_export(exports, name);
        let export = export.ok_or_else(|| HangUp::NoSuchExport(name.to_owned()))?;
        let flags = export.flags_for(self.structured_replies);
        out.extend_from_slice(&export.size_bytes.to_be_bytes());
        out.extend_from_slice(&flags.bits().to_be_bytes());
        if !self.client.contains(ClientFlags::NO_ZEROES) {
            out.extend_from_slice(&[0; EXPORT_NAME_PADDING_BYTES]);
        }
        Ok(Next::Serve(self.agreement(export)))
    }

    /// Answers `INFO` and the first half of `GO`; returns the export if there is one.
    fn describe<'e>(
        &self,
        option: u32,
        query: ExportQuery<'_>,
        exports: &'e [ExportInfo],
        out: &mut Vec<u8>,
    ) -> Option<&'e ExportInfo> {
        let Some(export) = find_export(exports, query.name) else {
            encode_reply(option, rep::ERR_UNKNOWN, b"no export has this name", out);
            return None;
        };
        let flags = export.flags_for(self.structured_replies);
        Info::Export { size_bytes: export.size_bytes, flags }.encode(option, out);
        if query.wants(info::NAME) {
            Info::Name(&export.name).encode(option, out);
        }
        if query.wants(info::DESCRIPTION) && !export.description.is_empty() {
            Info::Description(&export.description).encode(option, out);
        }
        // Sent unasked as well: the constraints hold whether or not the client asks.
        Info::BlockSize(export.block_sizes).encode(option, out);
        encode_reply(option, rep::ACK, b"", out);
        Some(export)
    }

    /// Agrees on no metadata context at all, which the protocol allows for every query.
    fn meta_context(
        &self,
        option: u32,
        query: MetaContextQuery<'_>,
        exports: &[ExportInfo],
        out: &mut Vec<u8>,
    ) {
        let kind = if !self.structured_replies {
            rep::ERR_INVALID
        } else if find_export(exports, query.export).is_none() {
            rep::ERR_UNKNOWN
        } else {
            rep::ACK
        };
        encode_reply(option, kind, b"", out);
    }

    fn agreement(&self, export: &ExportInfo) -> Agreement {
        let structured_replies = self.structured_replies;
        Agreement { export: export.name.clone(), structured_replies, resends: false }
    }
}

fn abort(out: &mut Vec<u8>) -> Next {
    encode_reply(opt::ABORT, rep::ACK, b"", out);
    Next::HangUp(HangUp::Aborted)
}

fn list(exports: &[ExportInfo], out: &mut Vec<u8>) {
    for export in exports {
        encode_server(opt::LIST, &export.name, &export.description, out);
    }
    encode_reply(opt::LIST, rep::ACK, b"", out);
}

fn refuse_shutting_down(
    number: u32,
    option: &ClientOption<'_>,
    out: &mut Vec<u8>,
) -> Result<Next, HangUp> {
    match option {
        ClientOption::Abort => Ok(abort(out)),
        ClientOption::ExportName(_) => Err(HangUp::ShuttingDown),
        _ => {
            encode_reply(number, rep::ERR_SHUTDOWN, b"", out);
            Ok(Next::HangUp(HangUp::ShuttingDown))
        }
    }
}

/// Replies to every option that requests an export with the reason why there is none; `None` for
/// other options, which most clients send first and which are handled as usual.
fn turn_away(
    number: u32,
    option: &ClientOption<'_>,
    connections: usize,
    out: &mut Vec<u8>,
) -> Option<Result<Next, HangUp>> {
    let next = match option {
        ClientOption::ExportName(_) => return Some(Err(HangUp::Full)),
        ClientOption::List | ClientOption::Info(_) | ClientOption::Go(_) => {
            Next::HangUp(HangUp::Full)
        }
        ClientOption::ListMetaContext(_) | ClientOption::SetMetaContext(_) => Next::Continue,
        _ => return None,
    };
    let reason = format!("all {connections} connections of this server are in use");
    encode_reply(number, rep::ERR_POLICY, reason.as_bytes(), out);
    Some(Ok(next))
}

impl Step {
    fn wait() -> Self {
        Self::go_on(0)
    }

    fn go_on(consumed: usize) -> Self {
        Self { consumed, next: Next::Continue }
    }
}

#[cfg(test)]
mod tests;
