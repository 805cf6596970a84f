//! Who may do what: members of the group look, root and the daemon's own user change.

use crate::common::{CONFIG, Ended, PROGRAM, User, answer_to};
use headpond_api::outcome::Exit;
use headpond_testkit::{skip, tool};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
/// A group without a name, and a user without a home.
const GROUP: u32 = 54_321;
const SOMEBODY: u32 = 54_320;
const STRANGERS: u32 = 54_322;

/// Another user on this machine.
struct Somebody {
    setpriv: PathBuf,
    group: u32,
}

impl Somebody {
    /// A member of this group alone.
    ///
    /// # Errors
    /// Why this machine cannot try it.
    fn of(group: u32) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can be another user".into());
        }
        let setpriv = tool("setpriv").ok_or("no setpriv")?;
        let it = Self { setpriv, group };
        match it.command(&["--version"]).output() {
            Ok(tried) if tried.status.success() => Ok(it),
            _ => Err("other users cannot run the program where it was built".into()),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.setpriv);
        command.args([format!("--reuid={SOMEBODY}"), format!("--regid={}", self.group)]);
        command.args(["--clear-groups", PROGRAM]).args(args).env("COLUMNS", "1000");
        command.env_remove("HOME").env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR");
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// With the folder and the configuration of a test.
    fn run(&self, user: &User, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        command.env("HEADPOND_STATE", user.path("")).env("HEADPOND_CONFIG", user.path(CONFIG));
        Ended::of(&command.output().unwrap())
    }

    /// With the folders of the system, as the configuration of a test has them.
    fn run_in_system(&self, user: &User, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        command.env("HEADPOND_CONFIG", user.path(CONFIG));
        Ended::of(&command.output().unwrap())
    }
}

fn open_to_all(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
}

/// Mode, owner and group.
fn access(path: &Path) -> (u32, u32, u32) {
    let found = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (found.mode() & 0o7777, found.uid(), found.gid())
}

fn create(user: &User) {
    let devices = ["0", "1", "cache"].map(|it| user.file(&format!("{it}.img"), 32 * MIB));
    let [one, two, cache] = &devices;
    user.ok(&["create", "v", "--raid", "1", "--zeroed", one, two, "--cache", cache]);
}

#[test]
fn members_of_the_group_look_and_change_nothing() {
    let name = "members_of_the_group_look_and_change_nothing";
    let (member, stranger) = match (Somebody::of(GROUP), Somebody::of(STRANGERS)) {
        (Ok(member), Ok(stranger)) => (member, stranger),
        (Err(why), _) | (_, Err(why)) => skip!(name, "{why}"),
    };
    let user = User::new();
    open_to_all(&user.path(""));
    // Described before there was a group.
    create(&user);
    user.configure(&format!("group = {GROUP}\n"));
    let daemon = user.serve("v");
    assert_eq!(access(&user.path("v.control")), (0o660, 0, GROUP));
    assert_eq!(access(&user.path("v.toml")), (0o640, 0, GROUP));
    let (mode, owner, group) = access(&user.path("v.sock"));
    assert_eq!((mode, owner), (0o600, 0), "data is the owner's");
    assert_ne!(group, GROUP);
    for args in [
        &["status"][..],
        &["status", "v"],
        &["status", "v", "--json"],
        &["stats", "v"],
        &["metrics", "v"],
        &["metrics"],
        &["export", "list", "v"],
        &["set", "v", "mode"],
    ] {
        let ended = member.run(&user, args);
        assert_eq!(ended.code, 0, "{args:?}: {}{}", ended.out, ended.err);
        assert!(ended.out.contains('v'), "{args:?}: {}", ended.out);
    }
    for (args, operation) in [
        (&["flush", "v"][..], "flush"),
        (&["stop", "v", "--force"], "stop"),
        (&["set", "v", "mode=write-through"], "settings"),
        (&["stats", "v", "--reset"], "stats reset"),
        (&["cache", "detach", "v"], "cache detach"),
        (&["array", "scrub", "v"], "array scrub"),
        (&["export", "add", "v", "tcp:127.0.0.1:1"], "exports"),
    ] {
        let ended = member.run(&user, args);
        assert_eq!(ended.code, Exit::Refused as i32, "{args:?}: {}{}", ended.out, ended.err);
        let text = format!("refused: {operation} needs root, or the user that runs the daemon");
        assert!(ended.err.contains(&text), "{args:?}: {}", ended.err);
    }
    assert_eq!(user.status("v").cache.unwrap().settings.mode.name(), "write-back");
    for args in [&["status", "v"][..], &["stats", "v"], &["flush", "v"]] {
        let ended = stranger.run(&user, args);
        assert_eq!(ended.code, Exit::Refused as i32, "{args:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains("members of the group"), "{}", ended.err);
    }
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let ended = member.run(&user, &["status", "v"]);
    assert_eq!(ended.code, Exit::NotServed as i32, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("31 MiB, not served"), "what was left is read: {}", ended.out);
    assert_eq!(member.run(&user, &["status"]).code, 0);
    assert_eq!(stranger.run(&user, &["status"]).code, 1, "it cannot read the description");
}

#[test]
fn the_folders_of_the_system_are_those_of_the_configuration_and_open_to_the_group() {
    let name = "the_folders_of_the_system_are_those_of_the_configuration_and_open_to_the_group";
    let (member, stranger) = match (Somebody::of(GROUP), Somebody::of(STRANGERS)) {
        (Ok(member), Ok(stranger)) => (member, stranger),
        (Err(why), _) | (_, Err(why)) => skip!(name, "{why}"),
    };
    let user = User::new();
    open_to_all(&user.path(""));
    let (state, run) = (user.path("state"), user.path("run"));
    user.configure(&format!(
        "state-folder = {state:?}\nrun-folder = {run:?}\ngroup = \"{GROUP}\"\n"
    ));
    // As a folder was that the service manager made.
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
    let root = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(args).env("HEADPOND_CONFIG", user.path(CONFIG)).env("COLUMNS", "1000");
        command.env_remove("HEADPOND_STATE").stdin(Stdio::null());
        command
    };
    let ok = |args: &[&str]| {
        let ended = Ended::of(&root(args).output().unwrap());
        assert_eq!(ended.code, 0, "{args:?}: {}{}", ended.out, ended.err);
    };
    let files = ["0", "1"].map(|it| user.file(&format!("{it}.img"), 32 * MIB));
    ok(&["create", "v", "--raid", "1", "--zeroed", &files[0], &files[1]]);
    assert!(state.join("v.toml").exists(), "the state folder has the description");
    let mut daemon = root(&["serve", "v"]).stdout(Stdio::null()).spawn().unwrap();
    while Ended::of(&root(&["status", "v"]).output().unwrap()).code != 0 {
        assert!(daemon.try_wait().unwrap().is_none(), "it is served");
    }
    assert!(run.join("v.sock").exists(), "the run folder has the sockets");
    assert_eq!(access(&state), (0o750, 0, GROUP));
    assert_eq!(access(&run), (0o750, 0, GROUP));
    for args in [&["status"][..], &["status", "v"], &["stats", "v"]] {
        let ended = member.run_in_system(&user, args);
        assert_eq!(ended.code, 0, "{args:?}: {}{}", ended.out, ended.err);
        assert!(ended.out.contains('v'), "{args:?}: {}", ended.out);
    }
    // With volumes of its own, a user sees those of the system as well.
    let home = user.path("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(SOMEBODY), Some(GROUP)).unwrap();
    let mut with_home = member.command(&["status"]);
    with_home.env("HEADPOND_CONFIG", user.path(CONFIG)).env("HOME", &home);
    let ended = Ended::of(&with_home.output().unwrap());
    assert!(ended.code == 0 && ended.out.contains("serving"), "{}{}", ended.out, ended.err);
    let ended = member.run_in_system(&user, &["flush", "v"]);
    assert_eq!(ended.code, Exit::Refused as i32, "{}", ended.err);
    let mut with_home = stranger.command(&["status", "v"]);
    with_home.env("HEADPOND_CONFIG", user.path(CONFIG)).env("HOME", &home);
    let ended = Ended::of(&with_home.output().unwrap());
    assert_eq!(ended.code, Exit::Usage as i32, "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("there is no volume v"), "{}", ended.err);
    ok(&["stop", "v"]);
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn without_a_group_only_the_owner_looks() {
    let user = User::new();
    user.configure("group = \"no-such-group\"\n");
    create(&user);
    let daemon = user.serve("v");
    for file in ["v.control", "v.sock", "v.toml"] {
        assert_eq!(access(&user.path(file)).0, 0o600, "{file}");
    }
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(daemon.log().contains(":1:1: there is no group no-such-group"), is_root);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_daemon_of_another_user_obeys_that_user_and_has_no_readers() {
    let name = "a_daemon_of_another_user_obeys_that_user_and_has_no_readers";
    let somebody = match Somebody::of(GROUP) {
        Ok(somebody) => somebody,
        Err(why) => skip!(name, "{why}"),
    };
    let user = User::new();
    // A group that the user is in, which is no reason to open anything to it.
    user.configure(&format!("group = {GROUP}\n"));
    let files = ["0", "1"].map(|it| user.file(&format!("{it}.img"), 32 * MIB));
    for path in [user.path(""), user.path("0.img"), user.path("1.img"), user.path(CONFIG)] {
        chown(path, Some(SOMEBODY), Some(GROUP)).unwrap();
    }
    let ok = |args: &[&str]| {
        let ended = somebody.run(&user, args);
        assert_eq!(ended.code, 0, "{args:?}: {}{}", ended.out, ended.err);
    };
    ok(&["create", "v", "--raid", "1", "--zeroed", &files[0], &files[1]]);
    let mut serve = somebody.command(&["serve", "v"]);
    serve.env("HEADPOND_STATE", user.path("")).env("HEADPOND_CONFIG", user.path(CONFIG));
    let mut daemon = serve.stdout(Stdio::null()).spawn().unwrap();
    while somebody.run(&user, &["status", "v"]).code != 0 {
        assert!(daemon.try_wait().unwrap().is_none(), "it is served");
    }
    for file in ["v.control", "v.toml"] {
        let (mode, owner, _) = access(&user.path(file));
        assert_eq!((mode, owner), (0o600, SOMEBODY), "{file}");
    }
    ok(&["flush", "v"]);
    let shown = answer_to(
        &user.path("v.control"),
        "POST /v1/stats/reset HTTP/1.1\r\nhost: v\r\nconnection: close\r\n\r\n",
    );
    assert!(shown.starts_with("HTTP/1.1 200"), "root may, too: {shown}");
    ok(&["stop", "v"]);
    assert!(daemon.wait().unwrap().success());
}
