//! The way of a request: recognised, cut, passed to a cache or past it.
//!
//! **Not here**: what lies below (`assembly`), and who exchanges it (`change`).

pub(crate) mod dispatcher;
pub(crate) mod endpoint;
pub(crate) mod metadata;
pub(crate) mod readahead;
pub(crate) mod streams;
