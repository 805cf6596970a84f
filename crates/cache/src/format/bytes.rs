//! Little-endian numbers at fixed offsets.

use crate::types::Position;

#[inline]
pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    *bytes[at..].first_chunk_mut().expect("room for it") = value.to_le_bytes();
}

#[inline]
pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    *bytes[at..].first_chunk_mut().expect("room for it") = value.to_le_bytes();
}

#[inline]
pub(super) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    *bytes[at..].first_chunk_mut().expect("room for it") = value.to_le_bytes();
}

#[inline]
pub(super) fn put_uuid(bytes: &mut [u8], at: usize, value: uuid::Uuid) {
    bytes[at..at + 16].copy_from_slice(value.as_bytes());
}

#[inline]
pub(super) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[inline]
pub(super) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
pub(super) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline]
pub(super) fn get_uuid(bytes: &[u8], at: usize) -> uuid::Uuid {
    uuid::Uuid::from_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

/// A place in the log, where there is one; nothing is zero.
pub(super) fn encode_place(place: Option<Position>) -> u64 {
    place.map_or(0, |place| place.0 + 1)
}

pub(super) fn decode_place(word: u64) -> Option<Position> {
    word.checked_sub(1).map(Position)
}
