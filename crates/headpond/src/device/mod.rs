//! From what the user calls a device to an open one.

pub mod claims;
mod copies;
mod export;
mod open;
mod spec;
mod speed;
mod vet;
mod zeros;

pub use copies::{check_copies, mirror_of};
pub use export::{Export, ends};
pub use open::Opener;
pub use spec::{DeviceSpec, SpecError};
pub use speed::read_mb_per_s;
pub use vet::{Consent, Vetted, vet, vet_lasting};
pub use zeros::expect_zeros;
