//! Options of a client in the negotiation, one at a time.
//!
//! The header gives the length of the data. The receiver checks that length against its limits,
//! collects the data, and only then decodes it as a [`ClientOption`].

use super::wire::{OPTION_MAGIC, STRING_BYTES_MAX, opt};
use super::{CodecError, Cursor};

/// The fixed part of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    pub option: u32,
    /// Bytes of data that follow; untrusted.
    pub data_bytes: u32,
}

impl OptionHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;

    /// Decodes the first [`Self::BYTES`] of `bytes`.
    ///
    /// # Errors
    /// [`CodecError::BadMagic`] or [`CodecError::Truncated`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut cursor = Cursor::new("option header", bytes);
        cursor.magic64(OPTION_MAGIC)?;
        Ok(Self { option: cursor.u32()?, data_bytes: cursor.u32()? })
    }
}

/// One option with its data; strings borrow the received bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientOption<'a> {
    ExportName(&'a str),
    Abort,
    List,
    StartTls,
    Info(ExportQuery<'a>),
    Go(ExportQuery<'a>),
    StructuredReply,
    ListMetaContext(MetaContextQuery<'a>),
    SetMetaContext(MetaContextQuery<'a>),
    /// An unknown option; its data is not decoded.
    Unknown(u32),
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportQuery<'a> {
    pub name: &'a str,
    /// Two bytes for each requested information type, undecoded.
    requests: &'a [u8],
}

/// Data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaContextQuery<'a> {
    pub export: &'a str,
    pub queries_count: u32,
}

impl<'a> ClientOption<'a> {
    /// Decodes the data of option number `option`.
    ///
    /// # Errors
    /// A [`CodecError`] when the data does not have the form that the option prescribes; the
    /// message boundary is known, so the negotiation can continue.
    pub fn decode(option: u32, data: &'a [u8]) -> Result<Self, CodecError> {
        let mut cursor = Cursor::new("option data", data);
        let decoded = match option {
            opt::EXPORT_NAME => Self::ExportName(cursor.text_to_end(STRING_BYTES_MAX)?),
            opt::ABORT => return Ok(Self::Abort),
            opt::LIST => Self::List,
            opt::STARTTLS => Self::StartTls,
            opt::INFO => Self::Info(ExportQuery::decode(&mut cursor)?),
            opt::GO => Self::Go(ExportQuery::decode(&mut cursor)?),
            opt::STRUCTURED_REPLY => Self::StructuredReply,
            opt::LIST_META_CONTEXT => Self::ListMetaContext(MetaContextQuery::decode(&mut cursor)?),
            opt::SET_META_CONTEXT => Self::SetMetaContext(MetaContextQuery::decode(&mut cursor)?),
            unknown => return Ok(Self::Unknown(unknown)),
        };
        cursor.end()?;
        Ok(decoded)
    }
}

impl<'a> ExportQuery<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, CodecError> {
        let name_bytes = cursor.u32()?;
        let name = cursor.text(name_bytes, STRING_BYTES_MAX)?;
        let count = cursor.u16()?;
        let requests = cursor.bytes(usize::from(count) * 2)?;
        Ok(Self { name, requests })
    }

    /// Whether information type `kind` was asked for.
    pub fn wants(&self, kind: u16) -> bool {
        self.requests.chunks_exact(2).any(|pair| pair == kind.to_be_bytes())
    }
}

impl<'a> MetaContextQuery<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, CodecError> {
        let export_bytes = cursor.u32()?;
        let export = cursor.text(export_bytes, STRING_BYTES_MAX)?;
        let queries_count = cursor.u32()?;
        for _ in 0..queries_count {
            let query_bytes = cursor.u32()?;
            cursor.text(query_bytes, STRING_BYTES_MAX)?;
        }
        Ok(Self { export, queries_count })
    }
}

/// Appends an option whose data is `data`.
///
/// # Panics
/// When `data` does not fit the 32-bit length field.
pub fn encode_option(option: u32, data: &[u8], out: &mut Vec<u8>) {
    let data_bytes = u32::try_from(data.len()).expect("option data fits 32 bits");
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&data_bytes.to_be_bytes());
    out.extend_from_slice(data);
}

/// Appends the data of `NBD_OPT_INFO` or `NBD_OPT_GO` for export `name`.
///
/// # Panics
/// When `name` is longer than [`STRING_BYTES_MAX`].
pub fn encode_export_query(name: &str, requests: &[u16], out: &mut Vec<u8>) {
    assert!(name.len() <= STRING_BYTES_MAX, "export name is {} bytes long", name.len());
    let count = u16::try_from(requests.len()).expect("a handful of information types");
    out.extend_from_slice(&(name.len() as u32).to_be_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&count.to_be_bytes());
    for request in requests {
        out.extend_from_slice(&request.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::info;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_go_request_comes_back_as_it_was_sent() {
        let mut data = Vec::new();
        encode_export_query("hv0", &[info::BLOCK_SIZE, info::NAME], &mut data);
        let mut message = Vec::new();
        encode_option(opt::GO, &data, &mut message);
        let header = OptionHeader::decode(&message).unwrap();
        assert_eq!(header.option, opt::GO);
        assert_eq!(header.data_bytes as usize, message.len() - OptionHeader::BYTES);
        let option = ClientOption::decode(header.option, &message[OptionHeader::BYTES..]);
        let Ok(ClientOption::Go(query)) = option else { panic!("{option:?}") };
        assert_eq!(query.name, "hv0");
        assert!(query.wants(info::NAME) && query.wants(info::BLOCK_SIZE));
        assert!(!query.wants(info::DESCRIPTION));
    }

    #[test]
    fn a_name_length_that_lies_is_an_error_not_an_overread() {
        let mut data = Vec::new();
        encode_export_query("hv0", &[], &mut data);
        for lie in [4u32, 5, 100, 4096, 4097, u32::MAX] {
            data[..4].copy_from_slice(&lie.to_be_bytes());
            assert!(ClientOption::decode(opt::INFO, &data).is_err(), "length {lie}");
        }
    }

    #[test]
    fn data_after_the_last_field_is_refused() {
        assert!(ClientOption::decode(opt::LIST, b"x").is_err());
        assert!(ClientOption::decode(opt::STRUCTURED_REPLY, b"x").is_err());
        assert_eq!(ClientOption::decode(opt::ABORT, b"bye"), Ok(ClientOption::Abort));
    }

    #[test]
    fn four_billion_meta_context_queries_end_at_the_first_missing_one() {
        let mut data = 0u32.to_be_bytes().to_vec();
        data.extend_from_slice(&u32::MAX.to_be_bytes());
        assert!(ClientOption::decode(opt::SET_META_CONTEXT, &data).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_option_data_never_panics(
            option in 0u32..16,
            data in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = ClientOption::decode(option, &data);
            let _ = OptionHeader::decode(&data);
        }

        #[test]
        fn every_export_query_comes_back(
            name in "\\PC{0,64}",
            requests in proptest::collection::vec(any::<u16>(), 0..8),
        ) {
            let mut data = Vec::new();
            encode_export_query(&name, &requests, &mut data);
            let Ok(ClientOption::Info(query)) = ClientOption::decode(opt::INFO, &data) else {
                return Err(TestCaseError::fail("did not decode"));
            };
            prop_assert_eq!(query.name, name.as_str());
            prop_assert!(requests.iter().all(|kind| query.wants(*kind)));
        }
    }
}
