//! Numbers out of bytes that may be anything.

/// The bytes at `offset`, where there are as many.
fn take<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

pub(super) fn le16(bytes: &[u8], offset: usize) -> Option<u64> {
    take(bytes, offset).map(|bytes| u16::from_le_bytes(bytes).into())
}

pub(super) fn le32(bytes: &[u8], offset: usize) -> Option<u64> {
    take(bytes, offset).map(|bytes| u32::from_le_bytes(bytes).into())
}

pub(super) fn le64(bytes: &[u8], offset: usize) -> Option<u64> {
    take(bytes, offset).map(u64::from_le_bytes)
}

pub(super) fn be16(bytes: &[u8], offset: usize) -> Option<u64> {
    take(bytes, offset).map(|bytes| u16::from_be_bytes(bytes).into())
}

pub(super) fn be32(bytes: &[u8], offset: usize) -> Option<u64> {
    take(bytes, offset).map(|bytes| u32::from_be_bytes(bytes).into())
}

pub(super) fn be64(bytes: &[u8], offset: usize) -> Option<u64> {
    take(bytes, offset).map(u64::from_be_bytes)
}
