//! What a daemon is asked and how it answers, for both sides: operations with their requests and
//! answers as types, the client of the control socket, the folders where both meet, and exit codes.
//!
//! **Not here**: how a request is carried out (`daemon`), and words of the command line.

#![forbid(unsafe_code)]

pub mod answers;
pub mod client;
pub mod operations;
pub mod outcome;
pub mod place;
mod refusal;
pub mod requests;

pub use client::Client;
pub use refusal::Refusal;
