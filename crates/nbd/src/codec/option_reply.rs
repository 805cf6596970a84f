//! Replies of a server in the negotiation.

use super::wire::{
    GREETING_BYTES, HandshakeFlags, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, STRING_BYTES_MAX,
    TransmissionFlags, info, rep,
};
use super::{CodecError, Cursor};

/// The first bytes of a fixed-newstyle server.
pub fn encode_greeting(flags: HandshakeFlags, out: &mut Vec<u8>) {
    out.extend_from_slice(&INIT_MAGIC.to_be_bytes());
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&flags.bits().to_be_bytes());
}

/// Decodes the server's first [`GREETING_BYTES`].
///
/// # Errors
/// [`CodecError::BadMagic`] for anything but a newstyle server.
pub fn decode_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<HandshakeFlags, CodecError> {
    let mut cursor = Cursor::new("server greeting", bytes);
    cursor.magic64(INIT_MAGIC)?;
    cursor.magic64(OPTION_MAGIC)?;
    Ok(HandshakeFlags::from_bits_truncate(cursor.u16()?))
}

/// The fixed part of a reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that is answered.
    pub option: u32,
    /// One of [`rep`].
    pub kind: u32,
    /// Bytes of data that follow; untrusted.
    pub data_bytes: u32,
}

impl OptionReplyHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 20;

    /// Decodes the first [`Self::BYTES`] of `bytes`.
    ///
    /// # Errors
    /// [`CodecError::BadMagic`] or [`CodecError::Truncated`].
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut cursor = Cursor::new("option reply", bytes);
        cursor.magic64(OPTION_REPLY_MAGIC)?;
        Ok(Self { option: cursor.u32()?, kind: cursor.u32()?, data_bytes: cursor.u32()? })
    }

    /// Whether the option was refused.
    pub fn is_error(&self) -> bool {
        self.kind & rep::ERROR_BIT != 0
    }
}

/// Appends one reply of type `kind` to option `option`.
///
/// # Panics
/// When `data` does not fit the 32-bit length field.
pub fn encode_reply(option: u32, kind: u32, data: &[u8], out: &mut Vec<u8>) {
    let data_bytes = u32::try_from(data.len()).expect("reply data fits 32 bits");
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&data_bytes.to_be_bytes());
    out.extend_from_slice(data);
}

/// Appends one `NBD_REP_SERVER`: an export of the list, with a description.
pub fn encode_server(option: u32, name: &str, description: &str, out: &mut Vec<u8>) {
    let mut data = Vec::with_capacity(4 + name.len() + description.len());
    data.extend_from_slice(&(name.len() as u32).to_be_bytes());
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(description.as_bytes());
    encode_reply(option, rep::SERVER, &data, out);
}

/// Decodes the data of an `NBD_REP_SERVER` to the export's name.
///
/// # Errors
/// A [`CodecError`] when the name is longer than the message or than the protocol allows.
pub fn decode_server(data: &[u8]) -> Result<&str, CodecError> {
    let mut cursor = Cursor::new("export list entry", data);
    let name_bytes = cursor.u32()?;
    cursor.text(name_bytes, STRING_BYTES_MAX)
}

/// One piece of information about an export (`NBD_REP_INFO`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Info<'a> {
    Export {
        size_bytes: u64,
        flags: TransmissionFlags,
    },
    Name(&'a str),
    Description(&'a str),
    BlockSize(BlockSizes),
    /// A type that Headpond does not know; clients must ignore it.
    Unknown(u16),
}

/// Block-size constraints of an export, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this power of two, at most 64 KiB.
    pub minimum: u32,
    /// Offsets and lengths that are multiples of this power of two are fast.
    pub preferred: u32,
    /// The longest payload of one request.
    pub maximum: u32,
}

impl BlockSizes {
    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, CodecError> {
        let sizes =
            Self { minimum: cursor.u32()?, preferred: cursor.u32()?, maximum: cursor.u32()? };
        let forbidden = |what, found| Err(CodecError::Forbidden { what, found: u64::from(found) });
        if !sizes.minimum.is_power_of_two() || sizes.minimum > 65_536 {
            return forbidden("minimum block size", sizes.minimum);
        }
        if !sizes.preferred.is_power_of_two() || sizes.preferred < sizes.minimum.max(512) {
            return forbidden("preferred block size", sizes.preferred);
        }
        if sizes.maximum < sizes.minimum {
            return forbidden("maximum block size", sizes.maximum);
        }
        Ok(sizes)
    }
}

impl<'a> Info<'a> {
    /// Appends this as an `NBD_REP_INFO` to `option`.
    pub fn encode(&self, option: u32, out: &mut Vec<u8>) {
        let mut data = Vec::with_capacity(16);
        data.extend_from_slice(&self.kind().to_be_bytes());
        match self {
            Self::Export { size_bytes, flags } => {
                data.extend_from_slice(&size_bytes.to_be_bytes());
                data.extend_from_slice(&flags.bits().to_be_bytes());
            }
            Self::Name(text) | Self::Description(text) => data.extend_from_slice(text.as_bytes()),
            Self::BlockSize(sizes) => {
                for size in [sizes.minimum, sizes.preferred, sizes.maximum] {
                    data.extend_from_slice(&size.to_be_bytes());
                }
            }
            Self::Unknown(_) => {}
        }
        encode_reply(option, rep::INFO, &data, out);
    }

    fn kind(&self) -> u16 {
        match self {
            Self::Export { .. } => info::EXPORT,
            Self::Name(_) => info::NAME,
            Self::Description(_) => info::DESCRIPTION,
            Self::BlockSize(_) => info::BLOCK_SIZE,
            Self::Unknown(kind) => *kind,
        }
    }

    /// Decodes the data of an `NBD_REP_INFO`.
    ///
    /// # Errors
    /// A [`CodecError`] when the data does not have the form that its type prescribes, or when
    /// the block sizes contradict each other.
    pub fn decode(data: &'a [u8]) -> Result<Self, CodecError> {
        let mut cursor = Cursor::new("export information", data);
        let decoded = match cursor.u16()? {
            info::EXPORT => {
                let size_bytes = cursor.u64()?;
                let flags = TransmissionFlags::from_bits_truncate(cursor.u16()?);
                Self::Export { size_bytes, flags }
            }
            info::NAME => Self::Name(cursor.text_to_end(STRING_BYTES_MAX)?),
            info::DESCRIPTION => Self::Description(cursor.text_to_end(STRING_BYTES_MAX)?),
            info::BLOCK_SIZE => Self::BlockSize(BlockSizes::decode(&mut cursor)?),
            unknown => return Ok(Self::Unknown(unknown)),
        };
        cursor.end()?;
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::opt;
    use super::*;
    use proptest::prelude::*;

    fn roundtrip(info: Info<'_>) {
        let mut message = Vec::new();
        info.encode(opt::GO, &mut message);
        let header = OptionReplyHeader::decode(&message).unwrap();
        assert_eq!((header.option, header.kind, header.is_error()), (opt::GO, rep::INFO, false));
        assert_eq!(header.data_bytes as usize, message.len() - OptionReplyHeader::BYTES);
        assert_eq!(Info::decode(&message[OptionReplyHeader::BYTES..]), Ok(info));
    }

    #[test]
    fn every_kind_of_information_comes_back() {
        let flags = TransmissionFlags::HAS_FLAGS | TransmissionFlags::CAN_MULTI_CONN;
        roundtrip(Info::Export { size_bytes: 1 << 47, flags });
        roundtrip(Info::Name("hv0"));
        roundtrip(Info::Description("forty disks"));
        let sizes = BlockSizes { minimum: 512, preferred: 65_536, maximum: 32 << 20 };
        roundtrip(Info::BlockSize(sizes));
    }

    #[test]
    fn contradicting_block_sizes_are_refused() {
        for (minimum, preferred, maximum) in
            [(0, 4096, 1 << 20), (513, 4096, 1 << 20), (4096, 512, 1 << 20), (4096, 4096, 512)]
        {
            let mut message = Vec::new();
            Info::BlockSize(BlockSizes { minimum, preferred, maximum })
                .encode(opt::GO, &mut message);
            let decoded = Info::decode(&message[OptionReplyHeader::BYTES..]);
            assert!(matches!(decoded, Err(CodecError::Forbidden { .. })), "{decoded:?}");
        }
    }

    #[test]
    fn a_greeting_comes_back_and_an_oldstyle_server_is_refused() {
        let flags = HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES;
        let mut greeting = Vec::new();
        encode_greeting(flags, &mut greeting);
        let mut bytes: [u8; GREETING_BYTES] = greeting.try_into().unwrap();
        assert_eq!(decode_greeting(&bytes), Ok(flags));
        bytes[8..16].copy_from_slice(&0x0000_4202_8186_1253u64.to_be_bytes());
        assert!(matches!(decode_greeting(&bytes), Err(CodecError::BadMagic { .. })));
    }

    proptest! {
        #[test]
        fn arbitrary_replies_never_panic(data in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = OptionReplyHeader::decode(&data);
            let _ = Info::decode(&data);
            let _ = decode_server(&data);
        }
    }
}
