//! The server, asked by clients; one program, so that it is linked once and all
//! tests share the processors.

mod clients;
mod common;
mod hostile;
mod raw;
mod simulated;
