//! The server, asked by clients; one program, so that it is linked once and all
//! tests share the processors.

mod announced;
mod clients;
mod common;
mod crowd;
mod hostile;
mod leaving;
mod moved;
mod raw;
mod resending;
mod simulated;
