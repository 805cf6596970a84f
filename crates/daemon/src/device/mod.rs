//! From the name of a device to an open one.

mod copies;
mod image;
mod machine;
mod open;
mod spec;
mod vet;
mod zeros;

pub use copies::{check_copies, mirror_of};
pub use machine::{
    MachineDevice, block_devices, existing_identity, files_in, identity_of, serial_of,
};
pub use open::{Opener, not_opened};
pub use spec::{DeviceSpec, SpecError};
pub use vet::{Consent, Vetted, vet, vet_lasting};
pub use zeros::expect_zeros;
