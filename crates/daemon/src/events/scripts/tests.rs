use super::*;
use headpond_api::events::{EventKind, Severity};
use std::os::unix::fs::PermissionsExt;

const OWN: u32 = 1000;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn script(&self, name: &str, mode: u32, text: &str) {
        let path = self.0.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn runner(&self) -> Runner {
        Runner::new(self.0.path().to_owned(), Duration::from_millis(500)).unwrap()
    }

    fn found(&self) -> Vec<String> {
        let found = self.runner().found().into_iter();
        found.map(|it| it.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    /// What the executables have written.
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }
}

fn event() -> Event {
    let event =
        Event::new(EventKind::MemberState, Severity::Error, "member 2 has failed; $(reboot)");
    Event { sequence: 7, volume: "v".into(), ..event.of_device(Some("/dev/a b\0")).of_member(2) }
}

#[test]
fn owner_and_rights_decide_what_is_run() {
    for (owner, mode, may_run) in [
        (0, 0o755, true),
        (OWN, 0o700, true),
        (OWN + 1, 0o755, false),
        (0, 0o775, false),
        (0, 0o757, false),
        (OWN, 0o722, false),
    ] {
        assert_eq!(objection(owner, mode, OWN).is_none(), may_run, "{owner} {mode:o}");
    }
}

#[test]
fn what_is_not_safe_to_run_is_skipped_and_the_rest_is_in_order() {
    let folder = Folder::new();
    folder.script("20-b", 0o755, "");
    folder.script("10-a", 0o700, "");
    folder.script("30-of-the-group", 0o775, "");
    folder.script("40-of-all", 0o757, "");
    folder.script("50-not-executable", 0o644, "");
    folder.script("60-backup~", 0o755, "");
    folder.script(".hidden", 0o755, "");
    fs::create_dir(folder.0.path().join("70-folder")).unwrap();
    std::os::unix::fs::symlink("10-a", folder.0.path().join("80-link")).unwrap();
    assert_eq!(folder.found(), ["10-a", "20-b"]);
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(folder.found().is_empty(), "of a folder that others may write to");
}

#[test]
fn a_reason_is_logged_once() {
    let folder = Folder::new();
    folder.script("bad", 0o777, "");
    let mut runner = folder.runner();
    (0..3).for_each(|_| drop(runner.found()));
    assert_eq!(runner.told.len(), 1);
    fs::remove_dir_all(folder.0.path()).unwrap();
    assert!(runner.found().is_empty() && runner.told.len() == 1, "no folder is no reason");
}

#[test]
fn an_executable_gets_the_event_as_data_and_nothing_else_of_the_daemon() {
    let folder = Folder::new();
    let place = folder.0.path().display();
    let text = format!("env | sort > {place}/env.txt; ls -l /proc/self/fd > {place}/fd.txt");
    folder.script("a", 0o755, &text);
    let _open = fs::File::open(folder.0.path()).unwrap();
    folder.runner().run_all(&event());
    let env = folder.text("env.txt");
    for line in [
        "HEADPOND_DEVICE=/dev/a b ",
        "HEADPOND_EVENT=member_state",
        "HEADPOND_MEMBER=2",
        "HEADPOND_SEQUENCE=7",
        "HEADPOND_SEVERITY=error",
        "HEADPOND_TEXT=member 2 has failed; $(reboot)",
        "HEADPOND_TIME=",
        "HEADPOND_VOLUME=v",
    ] {
        assert!(env.lines().any(|it| it == line), "{line}: {env}");
    }
    let is_expected = |line: &str| {
        let name = line.split('=').next().unwrap_or_default();
        name.starts_with("HEADPOND_") || ["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name)
    };
    assert!(env.lines().all(is_expected), "{env}");
    let descriptors = folder.text("fd.txt");
    let open = format!(" -> {place}");
    assert!(descriptors.contains("fd.txt"), "{descriptors}");
    assert!(!descriptors.lines().any(|line| line.ends_with(&open)), "{descriptors}");
}

#[test]
fn one_that_hangs_is_killed_with_its_children_and_the_next_one_runs() {
    let folder = Folder::new();
    let place = folder.0.path().display();
    folder.script("1-hangs", 0o755, &format!("sleep 1000 & echo $! > {place}/child.txt; wait"));
    folder.script("2-next", 0o755, &format!("echo done > {place}/next.txt"));
    folder.runner().run_all(&event());
    assert_eq!(folder.text("next.txt"), "done\n");
    let child: i32 = folder.text("child.txt").trim().parse().unwrap();
    let is_running = || {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    while is_running() {
        std::thread::yield_now();
    }
}

#[test]
fn output_is_bounded_and_a_pipe_that_stays_open_holds_nothing_up() {
    let folder = Folder::new();
    folder.script("a", 0o755, "yes x | head -c 100000; sleep 1000 & exit 3");
    let runner = folder.runner();
    let path = folder.0.path().join("a");
    let ended = runner.runtime.block_on(run(&path, &event(), Duration::from_secs(100))).unwrap();
    assert_eq!(ended.output.len(), OUTPUT_BYTES_MAX);
    assert_eq!(ended.status.unwrap().code(), Some(3));
}
