//! Netlink's frames: messages of attributes, which may nest.
//!
//! **Source**: linux `include/uapi/linux/netlink.h` and `genetlink.h`. All numbers are the host's,
//! and everything is padded to 4 bytes.

/// Length, type, flags, sequence number and port of a message.
pub const HEADER_BYTES: usize = 16;
/// Command, version and two reserved bytes, which follow it in a generic message.
pub const GENERIC_BYTES: usize = 4;
const ATTRIBUTE_BYTES: usize = 4;
const ALIGNMENT: usize = 4;
/// `NLA_F_NESTED`: the attribute's data are attributes.
const NESTED: u16 = 1 << 15;
/// `NLA_F_NET_BYTEORDER`.
const NET_ORDER: u16 = 1 << 14;

/// Appends attributes.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

/// One message as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub body: &'a [u8],
}

impl Writer {
    pub fn bytes(&mut self, kind: u16, data: &[u8]) -> &mut Self {
        let len = u16::try_from(ATTRIBUTE_BYTES + data.len()).expect("attributes are short");
        self.bytes.extend(len.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// With the zero at its end.
    pub fn text(&mut self, kind: u16, text: &str) -> &mut Self {
        self.bytes(kind, &[text.as_bytes(), &[0]].concat())
    }

    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(kind | NESTED, &inner.bytes)
    }

    /// A whole generic message with these attributes.
    pub fn message(&self, (kind, flags, sequence): (u16, u16, u32), command: u8) -> Vec<u8> {
        let generic = [command, super::VERSION, 0, 0];
        frame((kind, flags, sequence), &[&generic[..], &self.bytes].concat())
    }
}

/// A message with this body.
pub fn frame((kind, flags, sequence): (u16, u16, u32), body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_BYTES + body.len()).expect("messages are short");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // The port of the sender, which the kernel fills in.
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// The messages of one datagram; what is cut off or too short ends them.
pub fn frames(mut bytes: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    std::iter::from_fn(move || {
        let len = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let message = bytes.get(..len)?;
        let body = message.get(HEADER_BYTES..)?;
        let (kind, flags) = (u16_at(message, 4)?, u16_at(message, 6)?);
        let sequence = u32_at(message, 8)?;
        bytes = bytes.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(Frame { kind, flags, sequence, body })
    })
}

/// The attributes of a message or of an attribute, by kind; what is cut off ends them.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & !(NESTED | NET_ORDER);
        let data = bytes.get(ATTRIBUTE_BYTES..len)?;
        bytes = bytes.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind, data))
    })
}

/// The first attribute of this kind.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, data)| data)
}

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attributes_are_padded_and_nest() {
        let mut writer = Writer::default();
        writer.text(10, "hv0").nest(7, |sockets| {
            sockets.nest(1, |socket| {
                socket.u32(1, 9);
            });
        });
        assert_eq!(writer.bytes.len(), 8 + 4 + 4 + 8);
        assert_eq!(attribute(&writer.bytes, 10), Some(&b"hv0\0"[..]));
        let sockets = attribute(&writer.bytes, 7).unwrap();
        let socket = attribute(sockets, 1).unwrap();
        assert_eq!(u32_at(attribute(socket, 1).unwrap(), 0), Some(9));
        assert_eq!(u16_at(&writer.bytes, 10), Some(7 | NESTED), "the kernel is told that it nests");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            parts in proptest::collection::vec((0u16..1000, any::<Vec<u8>>()), 0..8),
            header in (any::<u16>(), any::<u16>(), any::<u32>()),
        ) {
            let mut writer = Writer::default();
            for (kind, data) in &parts {
                writer.bytes(*kind, data);
            }
            let message = writer.message(header, 3);
            let two = [&message[..], &message].concat();
            let read: Vec<Frame> = frames(&two).collect();
            prop_assert_eq!(read.len(), 2);
            prop_assert_eq!((read[1].kind, read[1].flags, read[1].sequence), header);
            let attributes = attributes(&read[1].body[GENERIC_BYTES..]);
            let found: Vec<_> = attributes.map(|(kind, data)| (kind, data.to_vec())).collect();
            prop_assert_eq!(found, parts);
        }

        #[test]
        fn hostile_bytes_end_the_list(bytes: Vec<u8>) {
            let total: usize = frames(&bytes).map(|frame| frame.body.len()).sum();
            prop_assert!(total <= bytes.len());
            let total: usize = attributes(&bytes).map(|(_, data)| data.len()).sum();
            prop_assert!(total <= bytes.len());
        }
    }
}
