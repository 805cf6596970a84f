//! Simulated devices beside what they are models of; one program, so that it is linked once and all
//! tests share the processors.

mod channel;
mod common;
mod controller;
mod crash;
mod ssd;
