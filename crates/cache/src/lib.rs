//! The cache: a log on a fast device in front of a slow one.
//!
//! A volume is split into slices; each [`Slice`] has a log and a line map of its own on the cache
//! device and is a block device over its extents of the core. `docs/format.md` describes the layout
//! on the device.
//!
//! 1. Pure: the codecs (`format`), `layout`, `line_map`, `dirty_index`, `ring`, `log`, `replay`,
//!    `classes`, promotion (`admission`), `eviction`, cleaning policies (`cleaning`), and the
//!    bypass of a slow cache (`bypass`).
//! 2. Async: one file for each path in `paths`; `append` (the queue before the log), `cleaner`,
//!    `reclaim`, `recover`, `verify_contents`, and `slice` above them all.
//!
//! **Invariants**: the laws of the log.
//! - A version is valid until a durable tombstone invalidates it or its segment is below the tail.
//! - Flushed data is read back, or reading fails; it is never replaced by anything older.
//! - The core is written under the lock on the blocks; data that it lacks is in the log.
//!
//! **Not here**: arrays, the parity of cleaned data, real or virtual devices, the split into
//! slices.

mod admission;
mod append;
mod bypass;
mod checkpoint;
mod checksum;
pub mod classes;
mod cleaner;
mod cleaning;
mod completion;
mod config;
mod copies;
mod core_flushes;
mod create;
mod dirty_index;
mod engine;
mod error;
mod eviction;
mod fallback;
mod fill;
mod fit;
pub mod format;
mod label;
mod layout;
mod life;
mod line_map;
mod log;
mod paths;
mod reclaim;
mod recover;
mod replay;
mod ring;
mod scrub;
mod slice;
mod stats;
mod types;
mod under_way;
mod verify_contents;

pub use admission::{AdmissionConfig, CutoffPolicy, Promotion, PromotionPolicy};
pub use bypass::{BypassPolicy, BypassReport, BypassShare};
pub use checksum::checksum_kernel;
pub use cleaner::FullRateFlush;
pub use cleaning::{
    AcpConfig, AlruConfig, CleaningConfig, CleaningPolicy, CleaningPreset, ParameterError,
    StripeConfig, UnknownPreset,
};
pub use config::{Checksums, Mode, SliceConfig};
pub use core_flushes::CoreFlushes;
pub use create::{CreateOptions, bytes_min, consider, create, load, wipe, write_superblock};
pub use error::{CleanError, CreateError, ModeError, OpenError, StopError};
pub use eviction::{
    ClassKey, EvictionPolicy, EvictionStats, Heat, MINIATURE_BLOCKS, Miniature, ShadowStats,
};
pub use fallback::FallbackConfig;
pub use fit::{Expected, check_fit, check_memory};
pub use format::superblock::Superblock;
pub use label::CoreLabel;
pub use layout::{SliceLayout, is_line_size};
pub use life::Life;
pub use paths::Coverage;
pub use recover::{LoadProgress, Recovery};
pub use scrub::{ScrubError, ScrubReport};
pub use slice::{ChangedCore, Foundation, LoadedSlice, Slice, judge};
pub use stats::{
    BypassReason, BypassStats, CacheTraffic, ClassStats, ClassUsage, CoreStats, CoreTraffic,
    Counters, ErrorStats, LatencyStats, MemoryStats, OrderStats, PartTraffic, RequestStats,
    Sampled, ScrubProgress, SliceStats, Traffic, Way, WayLatency, WayTimes,
};
pub use types::{BlockRun, CoreBlock, CorePlace, Epoch, Position, Promise, SegmentIndex, Sequence};
