//! Hostile datagrams of netlink: to the reader of the kernel's answers, and to the kernel's twin.

#![no_main]

use headpond_nbd::kernel::twin::Twin;
use headpond_nbd::kernel::{Answer, Request};
use libfuzzer_sys::fuzz_target;

const FAMILY: u16 = 0x21;

fuzz_target!(|bytes: &[u8]| {
    let mut answer = Answer::default();
    answer.read(bytes, FAMILY, 1);
    assert!(answer.devices.len() <= bytes.len());
    let mut twin = Twin::default();
    let told = twin.answer(bytes);
    // Whatever it was told, it goes on.
    let mut after = Answer::default();
    after.read(&twin.answer(&Request::Status.encode(FAMILY, 2)), FAMILY, 2);
    assert!(after.errno == Some(0) && told.len() <= 4096 + bytes.len());
});
