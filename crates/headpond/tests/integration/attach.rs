//! `headpond attach` on a machine whose kernel has no NBD client, and what of it needs no kernel.
//! What a kernel makes of it is a scenario of the rig.

use crate::common::User;
use headpond_daemon::attached::{Kept, KeptDevice, Kernel, KernelError};
use headpond_daemon::host;
use headpond_testkit::skip;
use std::fs;

const MIB: u64 = 1 << 20;

fn create(user: &User) {
    let disk = user.file("disk.img", 32 * MIB);
    user.ok(&["create", "hv0", "--raid", "0", "--zeroed", &disk]);
}

fn refused(user: &User, args: &[&str], code: i32, text: &str) {
    let ended = user.run(args);
    assert!(ended.code == code && ended.err.contains(text), "{args:?}: {}", ended.err);
}

#[test]
fn wrong_words_are_told() {
    let user = User::new();
    create(&user);
    refused(&user, &["attach", "hv0"], 5, "hv0");
    let _daemon = user.serve("hv0");
    refused(&user, &["attach", "hv0", "--device", "/dev/sda"], 2, "write /dev/nbdN");
    refused(&user, &["attach", "hv0/logs"], 2, "no core hv0/logs");
    refused(&user, &["detach", "/dev/nbd0"], 2, "no volume is /dev/nbd0");
    refused(&user, &["detach", "/dev/nbd0p1"], 2, "write /dev/nbdN");
    refused(&user, &["detach", "hv0", "--force"], 2, "--force is for devices");
}

#[test]
fn without_an_nbd_client_in_the_kernel_the_command_says_what_to_use() {
    let name = "without an NBD client in the kernel";
    if !matches!(Kernel::open(), Err(KernelError::NoClient)) {
        skip!(name, "this kernel has one, or netlink cannot be used");
    }
    let user = User::new();
    create(&user);
    let _daemon = user.serve("hv0");
    for args in [&["attach", "hv0"][..], &["attach", "hv0", "--device", "/dev/nbd7"]] {
        refused(&user, args, 4, "modprobe nbd");
        refused(&user, args, 4, "NBD export");
    }
    let note = fs::read(user.path("hv0.attached.json")).unwrap();
    let Kept { devices, .. } = serde_json::from_slice(&note).unwrap();
    assert_eq!(devices, [], "no note of a device that there is not");
}

#[test]
fn a_volume_that_is_a_device_is_not_removed_below_it() {
    let user = User::new();
    create(&user);
    let device = KeptDevice {
        index: 4711,
        export: "hv0".into(),
        dead_conn_timeout_s: 600,
        backend: "headpond:hv0".into(),
        number: 0,
    };
    let kept = Kept { boot: host::boot(), devices: vec![device] };
    let note = |kept: &Kept| {
        fs::write(user.path("hv0.attached.json"), serde_json::to_vec(kept).unwrap()).unwrap();
    };
    note(&kept);
    refused(&user, &["destroy", "hv0", "--yes"], 4, "hv0 is /dev/nbd4711: unmount");
    refused(&user, &["detach", "/dev/nbd4711"], 4, "its next daemon goes on with /dev/nbd4711");
    // Those of an earlier boot are no devices any more.
    note(&Kept { boot: uuid::Uuid::from_u128(1), ..kept });
    user.ok(&["destroy", "hv0", "--yes"]);
    assert!(!user.path("hv0.attached.json").exists());
}

#[test]
fn memory_that_would_lose_writes_is_not_brought_in_where_that_cannot_be_kept() {
    let user = User::new();
    create(&user);
    let mark = user.path("hv0.memory");
    fs::create_dir_all(&mark).unwrap();
    let _daemon = user.serve("hv0");
    let brings = ["cache", "attach", "hv0", "ram:16M", "--force"];
    refused(&user, &brings, 1, "hv0.memory, which keeps");
    assert!(user.status("hv0").cache.is_none());
    fs::remove_dir(&mark).unwrap();
    user.ok(&brings);
    assert!(mark.is_file());
}
