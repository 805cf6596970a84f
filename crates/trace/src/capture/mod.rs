//! Live capture: a decorator notes every request that passes and what became of it.
//!
//! 1. [`capture`] makes a [`Recorder`], which data threads share, and a [`Drain`], which one other
//!    thread runs.
//! 2. Each data thread gives its [`CaptureDevice`] the recorder; from then on its requests are
//!    noted.
//! 3. When every device has stopped and its last noted request has ended, the drain writes the end
//!    and returns.
//!
//! **Invariants**: the data path never waits for the drain: what does not fit is dropped and
//! counted; memory is `CHUNKS_MAX` chunks on the way and one in each device; a device that does not
//! record costs one branch.
//!
//! **Not here**: threads and files; the caller gives the drain both.

mod device;
mod recorder;
#[cfg(test)]
mod tests;

pub use device::CaptureDevice;
pub use recorder::{CaptureSummary, Drain, Recorder, capture};
