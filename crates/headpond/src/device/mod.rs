//! From what the user calls a device to an open one.

mod open;
mod spec;
mod vet;

pub use open::Opener;
pub use spec::{DeviceSpec, SpecError};
pub use vet::{Consent, vet};
