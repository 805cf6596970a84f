//! Volumes as whoever serves them has them; one program, so that it is linked once and all
//! tests share the processors.

mod array_settings;
mod both_runtimes;
mod cache_away;
mod classes;
mod commands;
mod copy_count;
mod cores;
mod declustered;
mod durable;
mod errors;
mod existing;
mod flushed_positions;
mod initialise;
mod jobs;
mod journal;
mod journal_change;
mod lifecycle;
mod mirror;
mod mirror_cuts;
mod ownership;
mod payload_free;
mod power_cuts;
mod rebuild_latency;
mod reshape;
mod reshape_cuts;
mod support;
mod tier;
mod verify_contents;
