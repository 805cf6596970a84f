//! Bytes that drives answer with. They are a stranger's: nothing here trusts a length.

pub mod caching;
pub mod identify;
pub mod vpd;
