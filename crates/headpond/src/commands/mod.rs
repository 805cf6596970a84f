//! One file a command.

pub mod advise;
pub mod analyze;
pub mod array;
pub mod cache;
pub mod class;
mod contents;
pub mod core;
pub mod create;
pub mod destroy;
pub mod drive;
pub mod flush;
pub mod lab;
pub mod merge;
pub mod model;
mod reading;
pub mod scan;
pub mod serve;
pub mod set;
pub mod simulate;
pub mod stats;
pub mod status;
pub mod stop;
mod striping;
pub mod trace;
mod waiting;
pub mod witness;
