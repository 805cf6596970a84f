//! The control API for both sides: operations with their requests and answers as types, the client
//! of the control socket, the events that are kept, the shared folders and who may read them, the
//! configuration of the machine, and exit codes.
//!
//! **Not here**: execution of requests (`daemon`), and output of the command line.

#![forbid(unsafe_code)]

pub mod answers;
pub mod client;
pub mod config;
pub mod events;
pub mod operations;
pub mod outcome;
pub mod place;
pub mod readers;
mod refusal;
pub mod requests;
mod word;

pub use client::Client;
pub use refusal::Refusal;
pub use word::word;
