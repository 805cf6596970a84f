//! The stripe journal of a served volume's array: another one, and none.

use crate::common::User;
use headpond_volume::Description;

const MIB: u64 = 1 << 20;

fn described(user: &User) -> Description {
    let text = std::fs::read_to_string(user.path("v.toml")).expect("it is described");
    Description::parse(&text).expect("it is read as it was written")
}

fn write_hole(user: &User) -> String {
    user.status("v").cores[0].write_hole.clone().expect("there is parity")
}

#[test]
fn a_lost_journal_is_exchanged_while_the_volume_is_served_and_taken_away() {
    let user = User::new();
    let device = |name: &str| user.file(&format!("{name}.img"), 64 * MIB);
    let members = ["0", "1", "2"].map(device);
    let [journal, other] = ["j0", "j1"].map(device);
    let mut args = vec!["create", "v", "--raid", "5", "--zeroed", "--journal", &journal];
    args.extend(members.iter().map(String::as_str));
    user.ok(&args);
    user.take_away(&journal);
    let daemon = user.serve("v");
    assert!(write_hole(&user).contains("journal failed or is missing"), "{}", write_hole(&user));
    let told = user.ok(&["array", "set-journal", "v", &other, "--when", "always"]);
    assert!(told.contains("is the stripe journal of the array"), "{told}");
    assert!(write_hole(&user).contains("for all writes"), "{}", write_hole(&user));
    assert_eq!(described(&user).core.journal.expect("it has one").device, other);
    let refused = user.run(&["array", "set-journal", "v", &other]);
    assert!(refused.err.contains("belongs to v already"), "{}", refused.err);
    daemon.kill();
    let daemon = user.serve("v");
    assert!(write_hole(&user).contains("for all writes"), "{}", write_hole(&user));
    user.ok(&["array", "fail", "v", &members[0]]);
    let refused = user.run(&["array", "drop-journal", "v"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    user.ok(&["array", "add-spare", "v", &members[0], "--force", "--wait"]);
    user.ok(&["array", "drop-journal", "v"]);
    assert_eq!(described(&user).core.journal, None);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    user.ok(&["create", "w", "--raid", "0", &other]);
}
