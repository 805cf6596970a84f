//! Errors of devices and what scrubs find, over restarts until `headpond clear`.

use crate::common::{Daemon, User, client};
use headpond_raid::{ArrayState, HealthState, ScrubState};
use headpond_testkit::skip;
use headpond_volume::{AlertKind, ErrorCause};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A volume `v` of members, in a folder of its own.
struct Story {
    user: User,
}

impl Story {
    fn new(raid: &str, members: &[String], user: User) -> Self {
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        user.ok(&[&["create", "v", "--raid", raid, "--zeroed"][..], &members].concat());
        Self { user }
    }

    fn again(&self, daemon: Daemon) -> Daemon {
        self.end(daemon);
        self.user.serve("v")
    }

    fn end(&self, daemon: Daemon) {
        self.user.ok(&["stop", "v"]);
        assert_eq!(daemon.wait(), 0);
    }

    /// Does that with each MiB of the volume; what the client says of it.
    fn each_mib(&self, program: &Path, command: &str, mib: std::ops::Range<u64>) -> String {
        let mut args: Vec<String> = ["-f", "raw"].map(Into::into).into();
        for at in mib {
            args.push("-c".into());
            args.push(format!("{command} -P 7 {at}M 1M"));
        }
        args.push(self.user.uri("v"));
        client(program, &args)
    }
}

fn files(user: &User, count: usize) -> Vec<String> {
    (0..count).map(|at| user.file(&format!("{at}.img"), 64 * MIB)).collect()
}

#[test]
fn a_member_that_was_cut_short_under_load_is_told_after_a_restart_until_it_is_cleared() {
    let name = "a_member_that_was_cut_short_under_load_is_told_after_a_restart_until_it_is_cleared";
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    let members = files(&user, 3);
    let story = Story::new("5", &members, user);
    let user = &story.user;
    let daemon = user.serve("v");
    story.each_mib(&qemu_io, "write", 0..100);
    assert_eq!(user.status("v").health, Some(HealthState::Healthy));
    let member = OpenOptions::new().write(true).open(&members[1]).unwrap();
    member.set_len(32 * MIB).unwrap();
    story.each_mib(&qemu_io, "read", 0..100);
    assert_eq!(user.run(&["status", "v"]).code, 3);
    // A start refuses a member that is too short.
    member.set_len(64 * MIB).unwrap();
    let daemon = story.again(daemon);
    let status = user.status("v");
    assert_eq!(status.health, Some(HealthState::Errors));
    assert_eq!(user.array("v").state, ArrayState::Optimal);
    let [report] = &status.errors[..] else { panic!("{:?}", status.errors) };
    assert_eq!((report.number, report.device.as_deref()), (Some(1), Some(&*members[1])));
    assert!(report.errors.read > 0 && report.errors.total() == report.errors.read, "{report:?}");
    let shown = user.run(&["status", "v"]);
    assert_eq!(shown.code, 3, "{}", shown.out);
    assert!(shown.out.contains("RAID 5 of 3 members, all members in use, with errors"));
    assert!(shown.out.contains("member 1") && !shown.out.contains("healthy"), "{}", shown.out);
    let listed = user.run(&["status"]);
    assert!(listed.code == 3 && listed.out.contains("errors"), "{}", listed.out);
    user.ok(&["stats", "v", "--reset"]);
    assert_eq!(user.status("v").errors, status.errors, "they are no statistics");
    let wrong = user.run(&["clear", "v", "/no/such/device"]);
    assert!(wrong.code == 2 && wrong.err.contains(&members[0]), "{}", wrong.err);
    user.ok(&["clear", "v", &members[0]]);
    assert_eq!(user.status("v").errors, status.errors, "of another member");
    user.ok(&["clear", "v", &members[1]]);
    assert_eq!(user.run(&["status", "v"]).code, 0);
    let daemon = story.again(daemon);
    assert_eq!(user.status("v").health, Some(HealthState::Healthy));
    story.end(daemon);
}

/// A memory file system of a few MB, while this lives.
struct Small(PathBuf);

impl Small {
    /// None where this user may not mount one.
    fn mount(folder: PathBuf) -> Option<Self> {
        std::fs::create_dir(&folder).unwrap();
        let mut command = Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "-o", "size=20m", "none"]).arg(&folder).output();
        mounted.ok()?.status.success().then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_member_whose_file_system_is_full_is_named_until_it_is_cleared_on_the_stopped_volume() {
    let name =
        "a_member_whose_file_system_is_full_is_named_until_it_is_cleared_on_the_stopped_volume";
    let Some(qemu_io) = headpond_testkit::tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    let Some(_small) = Small::mount(user.path("small")) else { skip!(name, "no mount") };
    let members = [user.file("0.img", 64 * MIB), user.file("small/1.img", 64 * MIB)];
    let story = Story::new("0", &members, user);
    let user = &story.user;
    let daemon = user.serve("v");
    let mut args: Vec<String> = ["-f", "raw"].map(Into::into).into();
    (0..100).for_each(|at| args.extend(["-c".into(), format!("write -P 7 {at}M 1M")]));
    args.push(user.uri("v"));
    // Its exit code is that of the last command.
    let _ = Command::new(&qemu_io).args(&args).output().unwrap();
    let daemon = story.again(daemon);
    let status = user.status("v");
    let [report] = &status.errors[..] else { panic!("{:?}", status.errors) };
    let last = report.last_error.as_ref().expect("the newest");
    assert!(report.errors.write > 0, "{report:?}");
    assert_eq!((last.cause, &*last.text), (ErrorCause::Full, "No space left on device"));
    let alert = &status.alerts[0];
    assert_eq!(alert.kind, AlertKind::MemberErrors);
    assert!(alert.cause.contains(&format!("holds {} is full", members[1])), "{alert}");
    assert!(alert.action.contains("df "), "{alert}");
    story.end(daemon);
    let cleared = user.run(&["clear", "v"]);
    assert_eq!(cleared.code, 0, "{}", cleared.err);
    let daemon = user.serve("v");
    assert_eq!((user.status("v").errors, user.status("v").alerts), (vec![], vec![]));
    story.end(daemon);
}

#[test]
fn what_a_scrub_repaired_is_shown_by_member_after_a_restart() {
    let user = User::new();
    let members = files(&user, 3);
    let story = Story::new("1", &members, user);
    let user = &story.user;
    let daemon = user.serve("v");
    assert!(user.ok(&["status", "v"]).contains("never scrubbed"));
    let member = OpenOptions::new().write(true).open(&members[2]).unwrap();
    member.write_all_at(&[7; 4096], 40 * MIB).unwrap();
    user.ok(&["array", "scrub", "v", "--wait"]);
    let daemon = story.again(daemon);
    let array = user.array("v");
    let scrub = array.last_scrub.expect("there was one");
    assert_eq!((scrub.state, scrub.report.corrected_sectors), (ScrubState::Complete, 8));
    let [repaired] = &scrub.members[..] else { panic!("{:?}", scrub.members) };
    assert_eq!((&repaired.device, repaired.repaired_sectors), (&members[2], 8));
    assert!(scrub.began_at.to_string().starts_with("20"), "{}", scrub.began_at);
    let shown = user.run(&["status", "v"]);
    assert!(shown.out.contains(&format!("{}: 8 sectors repaired", members[2])), "{}", shown.out);
    assert_eq!(shown.code, 3, "checksum errors of that member: {}", shown.out);
    assert_eq!(array.members[2].errors.checksum, 1);
    user.ok(&["clear", "v"]);
    assert_eq!(user.run(&["status", "v"]).code, 0);
    story.end(daemon);
}
