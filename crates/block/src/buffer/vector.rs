//! Several buffers as the memory of one request.

use super::Buffer;
use smallvec::SmallVec;
use std::ops::Range;

/// The memory of one request: buffers in order. One buffer, the usual case, needs no allocation,
/// nor do the two of a descriptor and what it describes.
#[derive(Debug, Default)]
pub struct Buffers {
    parts: SmallVec<[Buffer; 2]>,
    len: usize,
}

impl Buffers {
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether any part has no payload: then the whole counts as without.
    #[inline]
    pub fn is_payload_free(&self) -> bool {
        self.parts.iter().any(Buffer::is_payload_free)
    }

    /// Number of parts, each contiguous.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Buffer> {
        self.parts.iter()
    }

    /// The only part, where the memory is contiguous.
    #[inline]
    pub fn as_single(&self) -> Option<&Buffer> {
        match self.parts.as_slice() {
            [single] => Some(single),
            _ => None,
        }
    }

    /// Adds `part` at the end; a part that continues the last one in memory is joined to it.
    #[inline]
    pub fn push(&mut self, part: Buffer) {
        if part.is_empty() {
            return;
        }
        self.len += part.len();
        match self.parts.last_mut() {
            Some(last) if last.is_continued_by(&part) => last.len += part.len(),
            _ => self.parts.push(part),
        }
    }

    #[inline]
    pub fn extend(&mut self, others: &Buffers) {
        for part in others.iter() {
            self.push(part.clone());
        }
    }

    /// The bytes `range` of the whole, sharing the memory.
    ///
    /// # Panics
    /// Where the range is not within it.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Buffers {
        assert!(range.start <= range.end && range.end <= self.len, "slice outside its buffers");
        if range.len() == self.len {
            return self.clone();
        }
        let mut slice = Buffers::new();
        let mut at = 0;
        for part in &self.parts {
            let (start, end) = (range.start.max(at), range.end.min(at + part.len()));
            if start < end {
                slice.push(part.slice(start - at..end - at));
            }
            at += part.len();
        }
        slice
    }

    /// The same parts at their present addresses ([`Buffer::pinned`]).
    pub fn pinned(&self) -> Buffers {
        Buffers { parts: self.parts.iter().map(Buffer::pinned).collect(), len: self.len }
    }

    /// Copies the first `to.len()` bytes out.
    ///
    /// # Panics
    /// Where there are fewer.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len, "buffers shorter than their reader expects");
        let mut at = 0;
        for part in &self.parts {
            let count = part.len().min(to.len() - at);
            part.slice(0..count).copy_to(&mut to[at..at + count]);
            at += count;
        }
    }

    /// Copies `from` to the start.
    ///
    /// # Panics
    /// Where there is less space.
    pub fn copy_from(&self, from: &[u8]) {
        assert!(from.len() <= self.len, "buffers shorter than what is written to them");
        let mut at = 0;
        for part in &self.parts {
            let count = part.len().min(from.len() - at);
            part.copy_from(&from[at..at + count]);
            at += count;
        }
    }

    /// Copies as many bytes as both hold, however each is cut into parts.
    pub fn copy_from_buffers(&self, from: &Buffers) {
        let (mut to_parts, mut from_parts) = (self.parts.iter(), from.parts.iter());
        let (mut to, mut from) = (to_parts.next().cloned(), from_parts.next().cloned());
        while let (Some(target), Some(source)) = (&to, &from) {
            let count = target.len().min(source.len());
            target.copy_from_buffer(&source.slice(0..count));
            let (target_len, source_len) = (target.len(), source.len());
            to = if count == target_len {
                to_parts.next().cloned()
            } else {
                Some(target.slice(count..target_len))
            };
            from = if count == source_len {
                from_parts.next().cloned()
            } else {
                Some(source.slice(count..source_len))
            };
        }
    }

    pub fn fill(&self, byte: u8) {
        self.parts.iter().for_each(|part| part.fill(byte));
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.copy_to(&mut bytes);
        bytes
    }
}

impl Clone for Buffers {
    #[inline]
    fn clone(&self) -> Self {
        match self.as_single() {
            Some(single) => single.into(),
            None => Self { parts: self.parts.clone(), len: self.len },
        }
    }
}

impl From<Buffer> for Buffers {
    #[inline]
    fn from(buffer: Buffer) -> Self {
        let len = buffer.len();
        let mut parts = SmallVec::new();
        parts.push(buffer);
        Self { parts, len }
    }
}

impl From<&Buffer> for Buffers {
    #[inline]
    fn from(buffer: &Buffer) -> Self {
        buffer.clone().into()
    }
}

impl FromIterator<Buffer> for Buffers {
    fn from_iter<I: IntoIterator<Item = Buffer>>(parts: I) -> Self {
        let mut buffers = Self::new();
        parts.into_iter().for_each(|part| buffers.push(part));
        buffers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(bytes: &[u8], sizes: &[usize]) -> Buffers {
        let mut rest = bytes;
        let mut parts = Vec::new();
        for &size in sizes {
            let (part, tail) = rest.split_at(size.min(rest.len()));
            parts.push(Buffer::from_slice(part));
            rest = tail;
        }
        parts.push(Buffer::from_slice(rest));
        parts.into_iter().collect()
    }

    #[test]
    fn neighbours_in_memory_are_joined() {
        let whole = Buffer::from_slice(b"abcdef");
        let joined: Buffers = [whole.slice(0..2), whole.slice(2..6)].into_iter().collect();
        assert_eq!(joined.count(), 1);
        assert_eq!(joined.to_vec(), b"abcdef");
    }

    proptest! {
        #[test]
        fn slices_and_copies_agree_with_a_plain_array(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            sizes in prop::collection::vec(0usize..10, 0..6),
            other in prop::collection::vec(0usize..10, 0..6),
            (a, b) in (0usize..64, 0usize..64),
        ) {
            let buffers = cut(&bytes, &sizes);
            let (a, b) = (a.min(b).min(bytes.len()), a.max(b).min(bytes.len()));
            prop_assert_eq!(buffers.slice(a..b).to_vec(), &bytes[a..b]);
            let target = cut(&vec![0; bytes.len()], &other);
            target.copy_from_buffers(&buffers);
            prop_assert_eq!(target.to_vec(), bytes);
        }
    }
}
