//! Devices around devices: for faults, limits, measurement and lost writes.

mod fault;
mod probe;
mod throttle;
mod volatile;
mod window;

pub use fault::{Fault, FaultControl, FaultDevice, FaultRule};
pub use probe::{ProbeCounts, ProbeDevice, ProbeSnapshot};
pub use throttle::{Limits, ThrottleDevice};
pub use volatile::{Leak, VolatileDevice};
pub use window::WindowDevice;

#[cfg(test)]
mod tests;
