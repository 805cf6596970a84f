//! Devices that complete at once and need no runtime.

mod null;
mod ram;

pub use null::NullDevice;
pub use ram::RamDevice;
