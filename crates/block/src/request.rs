//! One request to a device: operation, range, memory and flags.

use crate::{Buffers, ByteRange, Cause, DeviceError, DeviceName, Geometry};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    Read,
    Write,
    /// Makes every write that was acknowledged before it stable.
    Flush,
    /// The range's contents are no longer needed; reads may return anything old or zeros.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes,
}

bitflags::bitflags! {
    /// Guarantees and hints that change how a request is executed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct RequestFlags: u8 {
        /// The write is stable when it is acknowledged.
        const FUA = 1 << 0;
        /// An array recomputes the parity of every touched stripe instead of patching it.
        const RECOMPUTE_PARITY = 1 << 1;
        /// A mirror or a parity array serves a read from another copy than usual.
        const OTHER_COPY = 1 << 2;
        /// WriteZeroes keeps the space allocated.
        const NO_UNMAP = 1 << 3;
        /// A cache lets the request pass to its core: part of a sequential stream.
        const STREAMING = 1 << 4;
        /// After an unclean shutdown a log above replays this write, with its parity recomputed: an
        /// array need not mark it in its own intent bitmap.
        const LOGGED = 1 << 5;
        /// A cache writes dirty data back: no client waits for it.
        const CLEANING = 1 << 6;
    }
}

/// Hints of the sender for policies; never needed for correctness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hints {
    /// The data is file-system metadata.
    pub metadata: bool,
    /// Requests of one sequential stream carry the same number.
    pub stream: Option<u32>,
    /// The class set by layers above; 0 without one.
    pub class: u8,
}

/// One request. Cloning shares the memory.
#[derive(Clone, Debug)]
pub struct Request {
    pub kind: RequestKind,
    pub range: ByteRange,
    /// As many bytes as the range for reads and writes; empty otherwise.
    pub buffers: Buffers,
    pub flags: RequestFlags,
    pub hints: Hints,
}

impl Request {
    /// Reads as many bytes at `offset` as the buffers hold.
    ///
    /// # Panics
    /// Where the range overflows 64 bits.
    pub fn read(offset: u64, buffers: impl Into<Buffers>) -> Self {
        Self::with_data(RequestKind::Read, offset, buffers.into())
    }

    /// Writes all bytes of the buffers at `offset`.
    ///
    /// # Panics
    /// Where the range overflows 64 bits.
    #[inline]
    pub fn write(offset: u64, buffers: impl Into<Buffers>) -> Self {
        Self::with_data(RequestKind::Write, offset, buffers.into())
    }

    #[inline]
    pub fn flush() -> Self {
        Self::plain(RequestKind::Flush, ByteRange::EMPTY)
    }

    pub fn discard(range: ByteRange) -> Self {
        Self::plain(RequestKind::Discard, range)
    }

    pub fn write_zeroes(range: ByteRange) -> Self {
        Self::plain(RequestKind::WriteZeroes, range)
    }

    pub fn with_flags(mut self, flags: RequestFlags) -> Self {
        self.flags |= flags;
        self
    }

    pub fn with_hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }

    pub fn is_fua(&self) -> bool {
        self.flags.contains(RequestFlags::FUA)
    }

    /// Whether the request changes what later reads return.
    pub fn is_mutation(&self) -> bool {
        matches!(self.kind, RequestKind::Write | RequestKind::Discard | RequestKind::WriteZeroes)
    }

    /// The request without its memory, for statistics.
    pub fn without_data(&self) -> Request {
        Request { buffers: Buffers::new(), ..*self }
    }

    /// The part of this request on `part`, moved to `offset`: the same kind, flags and hints, and a
    /// sub-slice of the same memory.
    ///
    /// # Panics
    /// Where `part` is outside the request's range.
    pub fn part(&self, part: ByteRange, offset: u64) -> Request {
        assert!(self.range.contains(part), "part outside its request");
        let start = usize::try_from(part.start() - self.range.start()).expect("fits memory");
        let buffers = match self.kind {
            RequestKind::Read | RequestKind::Write => {
                self.buffers.slice(start..start + part.len() as usize)
            }
            _ => Buffers::new(),
        };
        Request { range: ByteRange::at(offset, part.len()), buffers, ..*self }
    }

    /// Checks size and alignment against a device, as every leaf device does on submission.
    ///
    /// # Errors
    /// `OutOfRange` or `Misaligned`; nothing was done.
    ///
    /// # Panics
    /// Where the buffers do not hold as many bytes as the range of a read or write.
    #[inline]
    pub fn check(&self, device: &DeviceName, geometry: &Geometry) -> Result<(), DeviceError> {
        if matches!(self.kind, RequestKind::Read | RequestKind::Write) {
            assert_eq!(self.buffers.len_bytes() as u64, self.range.len(), "memory for the range");
        }
        if self.range.end() > geometry.size_bytes {
            let (range, size_bytes) = (self.range, geometry.size_bytes);
            return Err(DeviceError::new(device, Cause::OutOfRange { range, size_bytes }));
        }
        let logical_block_bytes = geometry.logical_block_bytes;
        // A power of two, and so nothing has to be divided.
        assert!(logical_block_bytes.is_power_of_two());
        let within_block = u64::from(logical_block_bytes) - 1;
        if (self.range.start() | self.range.len()) & within_block != 0 {
            let range = self.range;
            return Err(DeviceError::new(device, Cause::Misaligned { range, logical_block_bytes }));
        }
        Ok(())
    }

    #[inline]
    fn with_data(kind: RequestKind, offset: u64, buffers: Buffers) -> Self {
        let range = ByteRange::at(offset, buffers.len_bytes() as u64);
        Self { kind, range, buffers, flags: RequestFlags::empty(), hints: Hints::default() }
    }

    #[inline]
    fn plain(kind: RequestKind, range: ByteRange) -> Self {
        let (flags, hints) = (RequestFlags::empty(), Hints::default());
        Self { kind, range, buffers: Buffers::new(), flags, hints }
    }
}
