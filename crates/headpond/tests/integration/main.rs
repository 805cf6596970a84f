//! The program as its users run it; one program, so that it is linked once and all
//! tests share the processors.

mod advise;
mod advise_input;
mod analyze;
mod array_plan;
mod classes;
mod clients;
mod command_line;
mod common;
mod cores;
mod demo;
mod drive;
mod hung_server;
mod import;
mod kill;
mod lab;
mod lab_at_once;
mod lab_caches;
mod lab_nodes;
mod lifecycle;
mod live_advice;
mod members;
mod memory;
mod mirrored_cache;
mod mistakes;
mod model;
mod reshape;
mod statistics;
mod stopping;
mod stripe_journal;
mod traces;
mod two_hosts;
mod witness;
