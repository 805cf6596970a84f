//! A package of the program that tests are built with, and a small Debian that it is installed in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headpond_testkit::{skip, tempdir, tool};
use tempfile::TempDir;

use super::{Recipe, is_installed, make};
use crate::workspace;

/// Of shell and files; the scripts of a package call no more.
const BUSYBOX_TOOLS: [&str; 8] = ["sh", "cat", "chmod", "echo", "mkdir", "rm", "rmdir", "test"];
/// They only write down how they are called.
const TWINS: [&str; 5] =
    ["deb-systemd-helper", "deb-systemd-invoke", "systemctl", "systemd-sysusers", "udevadm"];
const CALLS: &str = "calls";

/// A package that was made twice; dpkg upgrades from one to the other.
struct Packages {
    _folder: TempDir,
    first: PathBuf,
    second: PathBuf,
}

impl Packages {
    /// Or why there are none.
    fn make() -> Result<Self, String> {
        let program = std::env::current_exe().unwrap();
        let program = program.parent().and_then(Path::parent).unwrap().join("headpond");
        if !is_installed() {
            return Err("dh is not installed".into());
        }
        if !program.is_file() {
            return Err(format!("{} is not built", program.display()));
        }
        let folder = tempdir();
        let make = |folder: PathBuf| {
            fs::create_dir(&folder).unwrap();
            let (version, is_trial) = (Some("1.0-0test1"), true);
            let recipe = Recipe { program: &program, version, out: &folder, is_trial };
            make(&workspace(), &recipe).unwrap()
        };
        let [first, second] = ["1", "2"].map(|name| make(folder.path().join(name)));
        Ok(Self { first, second, _folder: folder })
    }
}

/// A root with a shell, a database of dpkg, and twins of what the scripts call.
struct Root {
    folder: TempDir,
    dpkg: PathBuf,
}

impl Root {
    /// Or why there is none.
    fn new() -> Result<Self, String> {
        let dpkg = tool("dpkg").ok_or("no dpkg")?;
        let busybox = tool("busybox").ok_or("no busybox")?;
        let root = Self { folder: tempdir(), dpkg };
        for folder in ["bin", "dev", "usr/bin", "usr/sbin", "etc", "run/systemd/system", "run/udev"]
        {
            fs::create_dir_all(root.path(folder)).unwrap();
        }
        for folder in ["info", "updates", "triggers"] {
            fs::create_dir_all(root.path("var/lib/dpkg").join(folder)).unwrap();
        }
        for file in ["var/lib/dpkg/status", "run/udev/control", "dev/null", CALLS] {
            fs::write(root.path(file), "").unwrap();
        }
        fs::copy(busybox, root.path("bin/busybox")).unwrap();
        for name in BUSYBOX_TOOLS {
            symlink("busybox", root.path("bin").join(name)).unwrap();
        }
        TWINS.iter().for_each(|name| root.twin(name, 0));
        let ended = root.run(&["/bin/sh", "-c", "true"]);
        match ended {
            Ok(output) if output.status.success() => Ok(root),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program of the root that writes down its call, and ends with this code.
    fn twin(&self, name: &str, code: i32) {
        let path = self.path("usr/bin").join(name);
        fs::write(&path, format!("#!/bin/sh\necho \"{name} $*\" >>/{CALLS}\nexit {code}\n"))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// In a user namespace of its own, where this is not root's.
    fn as_root(&self) -> Result<Command, String> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|it| {
            use std::os::unix::fs::MetadataExt;
            it.uid() == 0
        });
        if is_root {
            return Ok(Command::new("env"));
        }
        let unshare = tool("unshare").ok_or("not root, and no unshare")?;
        let mut command = Command::new(unshare);
        command.arg("--map-root-user");
        Ok(command)
    }

    fn run(&self, words: &[&str]) -> Result<Output, String> {
        let chroot = tool("chroot").ok_or("no chroot")?;
        let mut command = self.as_root()?;
        command.arg(chroot).arg(self.folder.path()).args(words);
        command.output().map_err(|error| error.to_string())
    }

    /// Whether dpkg has done it, and what it told; the calls of the scripts are new ones.
    fn dpkg(&self, words: &[&str]) -> (bool, String) {
        fs::write(self.path(CALLS), "").unwrap();
        let mut command = self.as_root().unwrap();
        command.arg(&self.dpkg).arg(format!("--root={}", self.folder.path().display()));
        // The packages that it depends on are not there.
        command.args(["--force-depends", "--force-unsafe-io"]).args(words);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env_remove("DPKG_ROOT");
        let output = command.output().unwrap();
        let told = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.success(), String::from_utf8_lossy(&told).into_owned())
    }

    fn ok(&self, words: &[&str]) {
        let (is_done, told) = self.dpkg(words);
        assert!(is_done, "{words:?}: {told}");
    }

    /// How the scripts have called others.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path(CALLS)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// All files and folders but dpkg's own and the calls, with their modes.
    fn tree(&self) -> BTreeMap<String, u32> {
        let mut tree = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                let name = path.strip_prefix(self.folder.path()).unwrap().display().to_string();
                if name.starts_with("var/lib/dpkg") || name == CALLS {
                    continue;
                }
                let kind = entry.metadata().unwrap();
                if kind.is_dir() {
                    folders.push(path);
                }
                tree.insert(name, kind.permissions().mode() & 0o7777);
            }
        }
        tree
    }

    fn state(&self) -> String {
        let status = fs::read_to_string(self.path("var/lib/dpkg/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Status: "));
        line.unwrap_or("none").to_owned()
    }

    /// The folder of this Debian for what older ones have in `/lib`.
    fn lib(&self) -> &'static str {
        if self.path("lib/systemd").is_dir() { "lib" } else { "usr/lib" }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Whether a call stops, restarts or kills a unit.
fn ends(call: &str) -> bool {
    let words = call.split(' ').skip(1);
    let is_end = |word: &str| word.contains("stop") || word.contains("restart") || word == "kill";
    words.into_iter().any(is_end)
}

#[test]
fn a_package_is_installed_upgraded_below_what_serves_removed_and_purged() {
    let name = "a_package_is_installed_upgraded_below_what_serves_removed_and_purged";
    let packages = match Packages::make() {
        Ok(packages) => packages,
        Err(why) => skip!(name, "{why}"),
    };
    let is_same = fs::read(&packages.first).unwrap() == fs::read(&packages.second).unwrap();
    assert!(is_same, "two builds make different files");
    let root = match Root::new() {
        Ok(root) => root,
        Err(why) => skip!(name, "{why}"),
    };
    let before = root.tree();
    installed(&root, &packages.first);
    upgraded(&root, &packages.second);
    removed_when_nothing_is_in_use(&root);
    purged_but_for_descriptions(&root, &packages.first);
    root.twin("headpond", 0);
    root.ok(&["--purge", "headpond"]);
    assert_eq!(root.tree(), before, "what is left");
    assert_eq!(root.state(), "none");
    let Some(lintian) = tool("lintian") else { skip!(name, "no lintian") };
    has_no_flaws(&lintian, &packages.first);
}

fn installed(root: &Root, package: &Path) {
    root.ok(&["--install", text(package)]);
    all_files_are_there(root);
    let calls = root.calls();
    let has = |call: &str| calls.iter().any(|it| it == call);
    assert!(has("systemd-sysusers headpond.conf"), "{calls:?}");
    assert!(has("deb-systemd-helper enable headpond.target"), "{calls:?}");
    assert!(has("deb-systemd-invoke start headpond-reap.timer"), "{calls:?}");
    assert!(has("udevadm control --reload"), "{calls:?}");
    assert!(has("udevadm trigger --subsystem-match=block --action=change"), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| call.contains(" start ")).count(), 1, "{calls:?}");
    assert!(!calls.iter().any(|call| ends(call)), "{calls:?}");
}

fn upgraded(root: &Root, package: &Path) {
    // In its place there is one that would be asked to stop.
    root.twin("headpond", 0);
    root.ok(&["--install", text(package)]);
    let calls = root.calls();
    assert!(calls.iter().any(|call| call == "systemctl --system daemon-reload"), "{calls:?}");
    assert!(!calls.iter().any(|call| ends(call)), "at an upgrade: {calls:?}");
    assert!(!calls.iter().any(|call| call.contains("trigger")), "at an upgrade: {calls:?}");
    all_files_are_there(root);
}

fn removed_when_nothing_is_in_use(root: &Root) {
    root.twin("headpond", 4);
    let (is_done, told) = root.dpkg(&["--remove", "headpond"]);
    assert!(!is_done && told.contains("a volume is not stopped"), "{told}");
    assert_eq!(root.state(), "deinstall ok installed", "wanted, and not done");
    let calls = root.calls();
    assert!(!calls.iter().any(|call| call.starts_with("deb-systemd-invoke stop")), "{calls:?}");
    root.twin("headpond", 0);
    fs::create_dir_all(root.path("var/lib/headpond")).unwrap();
    fs::write(root.path("var/lib/headpond/hv0.toml"), "").unwrap();
    root.ok(&["--remove", "headpond"]);
    let calls = root.calls();
    let first = calls.iter().position(|call| call == "headpond stop --all");
    let then = calls.iter().position(|call| call.contains("stop headpond.target"));
    assert!(first.is_some() && first < then, "{calls:?}");
}

/// The package is installed again.
fn purged_but_for_descriptions(root: &Root, package: &Path) {
    let (is_done, told) = root.dpkg(&["--purge", "headpond"]);
    assert!(is_done && told.contains("descriptions of volumes stay"), "{told}");
    fs::remove_file(root.path("var/lib/headpond/hv0.toml")).unwrap();
    root.ok(&["--install", text(package)]);
}

fn has_no_flaws(lintian: &Path, package: &Path) {
    let mut command = Command::new(lintian);
    command.args(["--allow-root", "--tag-display-limit", "0", "--fail-on", "error,warning"]);
    let output = command.arg(package).output().unwrap();
    let told = [&output.stdout[..], &output.stderr[..]].concat();
    let told = String::from_utf8_lossy(&told);
    let has_tag = told.lines().any(|line| line.starts_with("E: ") || line.starts_with("W: "));
    assert!(output.status.success() && !has_tag, "{told}");
}

/// Each file of the tree that belongs to the package, as it is there, and what is generated.
fn all_files_are_there(root: &Root) {
    let tree = root.tree();
    let workspace = workspace();
    let lib = root.lib();
    let mut same = vec![
        ("udev/64-headpond.rules".to_owned(), format!("{lib}/udev/rules.d/64-headpond.rules")),
        ("sysusers/headpond.conf".to_owned(), "usr/lib/sysusers.d/headpond.conf".to_owned()),
        ("docs/boot.md".to_owned(), "usr/share/doc/headpond/boot.md".to_owned()),
    ];
    for entry in fs::read_dir(workspace.join("systemd")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        same.push((format!("systemd/{name}"), format!("{lib}/systemd/system/{name}")));
    }
    assert!(same.len() > 10, "{same:?}");
    for (of_tree, installed) in &same {
        let expected = fs::read(workspace.join(of_tree)).unwrap();
        assert!(fs::read(root.path(installed)).unwrap() == expected, "{installed} is another");
        assert_eq!(tree.get(installed), Some(&0o644), "{installed}");
    }
    for (name, mode) in [
        ("usr/bin/headpond", 0o755),
        ("usr/share/man/man1/headpond.1.gz", 0o644),
        ("usr/share/man/man1/headpond-array-scrub.1.gz", 0o644),
        ("usr/share/bash-completion/completions/headpond", 0o644),
        ("usr/share/zsh/vendor-completions/_headpond", 0o644),
        ("usr/share/fish/vendor_completions.d/headpond.fish", 0o644),
        ("usr/share/doc/headpond/copyright", 0o644),
        ("usr/share/doc/headpond/changelog.gz", 0o644),
        ("usr/share/doc/headpond/examples/events.d/all-mail.sh", 0o755),
    ] {
        assert_eq!(tree.get(name), Some(&mode), "{name}");
    }
    if workspace.join("monitoring").is_dir() {
        for entry in fs::read_dir(workspace.join("monitoring")).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let there =
                tree.keys().any(|it| it == &format!("usr/share/headpond/monitoring/{name}"));
            assert!(there, "monitoring/{name}");
        }
    }
    // What units start is in the package.
    let programs: BTreeSet<String> = same
        .iter()
        .filter(|(of_tree, _)| of_tree.ends_with(".service"))
        .flat_map(|(of_tree, _)| {
            let unit = fs::read_to_string(workspace.join(of_tree)).unwrap();
            let starts = unit.lines().filter_map(|line| line.strip_prefix("ExecStart="));
            let program = |start: &str| start.split(' ').next().unwrap_or_default().to_owned();
            starts.map(program).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(programs.into_iter().collect::<Vec<_>>(), ["/usr/bin/headpond"]);
}

#[test]
fn the_time_of_a_package_is_that_of_its_commit() {
    let time = super::Time("1767225600".into());
    assert_eq!(time.rfc_2822().unwrap(), "Thu, 01 Jan 2026 00:00:00 +0000");
    assert_eq!(time.formatted(&["+%Y%m%d%H%M%S"]).unwrap(), "20260101000000");
    assert!(super::maintainer(&workspace()).unwrap().contains('@'));
}
