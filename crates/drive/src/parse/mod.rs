//! Parsers of drives' replies. The bytes are untrusted: every length is checked.

pub mod caching;
pub mod identify;
pub mod vpd;
