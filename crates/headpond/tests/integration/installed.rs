//! What a package installs beside the program, and what the program says of itself and the machine.

use crate::common::User;
use headpond_testkit::{skip, tool};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

#[test]
fn a_version_tells_what_this_machine_offers_and_why_it_lacks_the_rest() {
    let user = User::new();
    let told = user.json(&["version", "--json"]);
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(told["build"], if cfg!(debug_assertions) { "debug" } else { "optimised" });
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(told["kernel"], kernel.trim());
    let features = told["features"].as_array().unwrap();
    let of = |name: &str| {
        let found = features.iter().find(|feature| feature["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name}: {told}"));
        (found["is_available"].as_bool().unwrap(), found["detail"].as_str().unwrap())
    };
    assert!(of("io_uring").0, "it serves in other tests: {told}");
    let parity = headpond_raid::parity::available().iter().any(|it| it.name() == of("parity").1);
    assert!(parity, "{told}");
    let (has_ublk, why) = of("ublk");
    let has_driver = Path::new("/dev/ublk-control").exists();
    assert!(has_driver || !has_ublk && why.contains("modprobe ublk_drv"), "{told}");
    let text = user.ok(&["version"]);
    assert!(text.starts_with(&format!("headpond {} (", env!("CARGO_PKG_VERSION"))), "{text}");
    for feature in features {
        let name = feature["name"].as_str().unwrap();
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
}

#[test]
fn a_stop_of_all_ends_each_volume_but_those_that_are_in_use() {
    let name = "a_stop_of_all_ends_each_volume_but_those_that_are_in_use";
    let Some(program) = tool("qemu-io") else { skip!(name, "no qemu-io") };
    let user = User::new();
    user.ok(&["stop", "--all"]);
    let mut daemons = Vec::new();
    for volume in ["a", "b", "c"] {
        let members = [0, 1].map(|at| user.file(&format!("{volume}{at}.img"), 16 * MIB));
        user.ok(&["create", volume, "--raid", "1", "--zeroed", &members[0], &members[1]]);
        daemons.push(user.serve(volume));
    }
    let mut client = Command::new(program);
    client.args(["-f", "raw", &user.uri("b")]);
    client.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let mut client = client.spawn().unwrap();
    while user.status("b").clients.is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let refused = user.run(&["stop", "--all"]);
    assert!(
        refused.code == 4 && refused.err.contains("b is in use; 1 client is connected"),
        "{}",
        refused.err
    );
    assert_eq!(refused.out, "stopped a\nstopped c\n");
    user.ok(&["stop", "--all", "--force"]);
    daemons.into_iter().for_each(|daemon| assert_eq!(daemon.wait(), 0));
    let _ = client.kill();
    client.wait().unwrap();
    assert_eq!(user.run(&["stop"]).code, 2);
    assert_eq!(user.run(&["stop", "a", "--all"]).code, 2);
}

fn generated(user: &User, what: &str) -> PathBuf {
    let folder = user.path(what);
    user.ok(&["generate", what, folder.to_str().unwrap()]);
    folder
}

/// What a shell prints for a script; its file of completions is `$1`.
fn asked(shell: &Path, args: &[&str], script: &str, file: &Path) -> String {
    let output = Command::new(shell).args(args).arg(script).arg("sh").arg(file).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{}: {told}", shell.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn bash_completes_commands_below_commands() {
    let name = "bash_completes_commands_below_commands";
    let Some(shell) = tool("bash") else { skip!(name, "no bash") };
    let user = User::new();
    let folder = generated(&user, "completions");
    let script = "source \"$1\"; COMP_WORDS=(headpond array scr); COMP_CWORD=2; \
                  _headpond headpond scr array; echo \"${COMPREPLY[*]}\"";
    let told = asked(&shell, &["--norc", "-c"], script, &folder.join("headpond.bash"));
    assert_eq!(told.trim(), "scrub");
}

#[test]
fn zsh_and_fish_take_their_completions() {
    let name = "zsh_and_fish_take_their_completions";
    let user = User::new();
    let folder = generated(&user, "completions");
    let Some(shell) = tool("zsh") else { skip!(name, "no zsh") };
    let script = "compdef() { :; }; source $1; whence -w _headpond__subcmd__array_commands";
    let told = asked(&shell, &["-f", "-c"], script, &folder.join("_headpond"));
    assert!(told.contains("function"), "{told}");
    let Some(shell) = tool("fish") else { skip!(name, "no fish") };
    let mut command = Command::new(shell);
    command.env("HOME", user.path("")).arg("--no-config").arg("-c");
    command.arg(format!(
        "source {}; complete --do-complete 'headpond array scr'",
        folder.join("headpond.fish").display()
    ));
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.starts_with("scrub\t"), "{told}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn man_has_nothing_to_warn_of() {
    let name = "man_has_nothing_to_warn_of";
    let Some(man) = tool("man") else { skip!(name, "no man") };
    let user = User::new();
    let folder = generated(&user, "man");
    for page in ["headpond.1", "headpond-create.1", "headpond-set.1", "headpond-array-plan.1"] {
        let mut command = Command::new(&man);
        command.args(["--warnings", "--local-file"]).arg(folder.join(page));
        let output = command.env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8").output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{page}: {told}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("SYNOPSIS") && text.contains("OPTIONS"), "{page}: {text}");
    }
}
