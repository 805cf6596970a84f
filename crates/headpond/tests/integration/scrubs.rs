//! Scrubs of all volumes, and the hours for them.

use crate::common::User;
use headpond_api::answers::Status;
use headpond_raid::ArrayState;

const MIB: u64 = 1 << 20;

fn create(user: &User, name: &str, raid: &str) -> Vec<String> {
    let files: Vec<String> =
        (0..3).map(|at| user.file(&format!("{name}{at}.img"), 64 * MIB)).collect();
    let files_of: Vec<&str> = files.iter().map(String::as_str).collect();
    user.ok(&[&["create", name, "--raid", raid, "--zeroed"][..], &files_of].concat());
    files
}

fn scrub_of(status: &Status) -> (bool, bool) {
    let background = status.cores[0].background.clone().expect("it is served");
    (background.scrub_wanted, background.scrub_paused)
}

#[test]
fn all_served_arrays_with_redundancy_are_scrubbed_and_others_are_named() {
    let user = User::new();
    let spare = user.file("spare.img", 64 * MIB);
    let members = create(&user, "a", "5");
    create(&user, "b", "1");
    create(&user, "c", "5");
    let striped = user.file("d.img", 64 * MIB);
    user.ok(&["create", "d", "--raid", "0", &striped]);
    let _daemons = ["a", "b", "d"].map(|name| user.serve(name));
    let told = user.ok(&["array", "scrub", "--all"]);
    assert!(told.contains("a: the scrub has started"), "{told}");
    assert!(told.contains("b: the scrub has started"), "{told}");
    assert!(told.contains("c: not served") && !told.contains("d:"), "{told}");
    user.ok(&["array", "wait", "a"]);
    // The end of the hours: scrubs rest, and a rebuild does not.
    ["a", "b"].into_iter().for_each(|name| {
        user.ok(&["array", "rate", name, "--min", "64K", "--max", "64K"]);
        user.ok(&["array", "scrub", name]);
    });
    user.ok(&["array", "pause", "--all", "--scrub"]);
    ["a", "b"].into_iter().for_each(|name| assert_eq!(scrub_of(&user.status(name)), (true, true)));
    let shown = user.run(&["status", "a"]).out;
    assert!(shown.contains("the scrub of the array is paused"), "{shown}");
    let waited = user.run(&["array", "wait", "a"]);
    assert!(waited.code == 4 && waited.err.contains("it is paused"), "{}", waited.err);
    user.ok(&["array", "rate", "a", "--no-max"]);
    user.ok(&["array", "fail", "a", &members[0]]);
    user.ok(&["array", "add-spare", "a", &spare, "--wait"]);
    assert_eq!(user.array("a").state, ArrayState::Optimal);
    assert!(scrub_of(&user.status("a")).1);
    // The next hours, for scrubs only: what was paused as a whole stays so.
    user.ok(&["array", "pause", "b"]);
    user.ok(&["array", "rate", "b", "--no-max"]);
    user.ok(&["array", "resume", "--all", "--scrub"]);
    user.ok(&["array", "wait", "a"]);
    assert_eq!(scrub_of(&user.status("a")), (false, false));
    let background = user.status("b").cores[0].background.clone().unwrap();
    assert!(background.paused && background.scrub_wanted && !background.scrub_paused);
    user.ok(&["array", "resume", "b", "--wait"]);
}
