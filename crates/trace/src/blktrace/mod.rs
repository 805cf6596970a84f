//! The binary form of the kernel's block tracer, versions 7 and 8, in either byte order.
//!
//! A capture is one file per CPU (`DEV.blktrace.N`) or one merged file; both are the same records
//! one after another. `decode` knows one record, `stream` one file, `files` finds the files that
//! belong together, `merge` joins them by time.
//!
//! **Source**: Linux `include/uapi/linux/blktrace_api.h`, `struct blk_io_trace` (48 bytes) and
//! `struct blk_io_trace2` (64 bytes).

mod decode;
mod files;
mod merge;
mod stream;
#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
pub(crate) use decode::MAGIC;
pub(crate) use decode::VERSIONS;
pub use decode::{Decoded, Header, decode_header};
pub(crate) use files::siblings;
pub(crate) use merge::MergedEvents;
pub(crate) use stream::BlktraceStream;
