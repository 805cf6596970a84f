//! All volumes of a machine without a service manager.

use crate::common::User;
use headpond_api::answers::ServiceState;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

fn create(user: &User, name: &str) {
    user.ok(&["create", name, "--raid", "0", &user.file(&format!("{name}.img"), 16 * MIB)]);
}

fn until_serving(user: &User, names: &[&str]) {
    let begun = Instant::now();
    let is_served = |name: &&str| {
        let status = user.run(&["status", name, "--json"]).out;
        serde_json::from_str::<serde_json::Value>(&status).is_ok_and(|it| it["state"] == "serving")
    };
    while !names.iter().all(is_served) {
        assert!(begun.elapsed() < PATIENCE, "{names:?} are not served");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn each_volume_is_served_and_a_signal_stops_all_of_them_cleanly() {
    let user = User::new();
    ["a", "b-1"].into_iter().for_each(|name| create(&user, name));
    let all = user.start(&["serve", "--all"]);
    until_serving(&user, &["a", "b-1"]);
    // A closed terminal ends nothing, and a volume may be stopped alone.
    signal(&all, "-HUP");
    user.ok(&["stop", "a"]);
    until_serving(&user, &["b-1"]);
    assert_ne!(user.status("a").state, ServiceState::Serving);
    signal(&all, "-TERM");
    let ended = all.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{told}");
    assert!(!told.contains("second signal"), "{told}");
    assert_ne!(user.status("b-1").state, ServiceState::Serving);
}

#[test]
fn a_broken_description_and_a_missing_device_hide_no_other_volume() {
    let user = User::new();
    ["good", "lost", "served"].into_iter().for_each(|name| create(&user, name));
    std::fs::write(user.path("broken.toml"), "name = 3").unwrap();
    std::fs::remove_file(user.path("lost.img")).unwrap();
    let daemon = user.serve("served");
    let all = user.start(&["serve", "--all"]);
    until_serving(&user, &["good", "served"]);
    signal(&all, "-INT");
    let ended = all.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(matches!(ended.status.code(), Some(1 | 4)), "{told}");
    for part in ["broken: ", "lost: its daemon ended with", "served is being served already"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Not one of its own.
    until_serving(&user, &["served"]);
    user.ok(&["stop", "served"]);
    assert_eq!(daemon.wait(), 0);
}
