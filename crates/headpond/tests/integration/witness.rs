//! `headpond witness` as its users run it: two programs, real sockets, disks whose power the test
//! cuts.

mod exports;
mod kept;
mod refusals;
mod virtual_machine;
