//! Importing drives from the parameter files of DiskSim 4.0, for which measured drives exist.
//!
//! 1. [`import`] reads a file and those that it sources into blocks (`lexer`, `syntax`).
//! 2. The blocks of one drive become [`HddParameters`](crate::hdd::HddParameters): `drive` the
//!    electronics, `buffer` the buffer, `zones` and `sparing` the layout, `seeks` the arm.
//! 3. What the files leave open, and what our model does not know, comes back as [`Note`]s.
//!
//! **Invariants**: no file is opened here, the caller reads them; an error names file, line and
//! field; what is read is never believed, every length is checked before it is used.
//!
//! **Not here**: DiskSim's own way of simulating; layouts of the second and fourth kind.
//!
//! **Source**: J. Bucy, J. Schindler, S. Schlosser, G. Ganger, "The DiskSim Simulation Environment
//! Version 4.0 Reference Manual", CMU-PDL-08-101, 2008, and the manual of its disk model.

mod buffer;
mod coasting;
mod document;
mod drive;
mod error;
mod fields;
mod lexer;
mod remarks;
mod seeks;
mod sparing;
mod syntax;
mod zones;

pub use drive::{Import, Imported, import};
pub use error::{ImportError, Location, Note};

#[cfg(test)]
mod buffer_tests;
#[cfg(test)]
mod tests;
