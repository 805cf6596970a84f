//! Volumes as whoever serves them has them; one program, so that it is linked once and all
//! tests share the processors.

mod acts;
mod array_settings;
mod both_runtimes;
mod cache_away;
mod classes;
mod commands;
mod copy_count;
mod cores;
mod declustered;
mod durable;
mod growth;
mod growth_cuts;
mod initialise;
mod journal;
mod journal_change;
mod lifecycle;
mod mirror;
mod mirror_cuts;
mod ownership;
mod payload_free;
mod power_cuts;
mod promises;
mod rebuild_latency;
mod support;
mod tier;
mod vouch;
