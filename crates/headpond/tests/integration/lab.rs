//! `headpond lab`, as a user types it.

use crate::common;
use crate::common::{User, running_in};
use headpond_testkit::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

const MODEL: &str = r#"
name = "small"
question = "Is flash faster than a disk?"
[[target]]
name = "disk"
machine = { core = { raid = 0, drives = 1, drive = "hdd-7k2-4t" } }
[[target]]
name = "flash"
machine = { core = { raid = 0, drives = 1, drive = "ssd-dc-960g" } }
[matrix]
rw = ["randread"]
bs = ["4K"]
depth = [1, 4, 16]
[rounds]
warm_up = 1
count = 5
seconds = 0.5
[[answer]]
kind = "versus"
axis = "target"
first = "disk"
second = "flash"
"#;

fn write(user: &User, name: &str, text: &str) -> String {
    let path = user.path(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_plan_is_checked_carried_out_reported_and_compared() {
    let user = User::new();
    let plan = write(&user, "plan.toml", MODEL);
    let check = user.ok(&["lab", "check", &plan]);
    assert!(check.contains("Nothing is overwritten") && check.contains("6 of 500 ms"), "{check}");
    // The folder of the results is made before the table is.
    let (page, table) = (user.path("page.html"), user.path("one/table.csv"));
    let (page_text, table_text) = (page.display().to_string(), table.display().to_string());
    let run = ["lab", "run", &plan, "--out", "one", "--html", &page_text, "--csv", &table_text];
    let said = user.ok(&run);
    assert!(said.contains("of 3 cells flash is faster in 3, disk in 0"), "{said}");
    let page = std::fs::read_to_string(page).unwrap();
    for part in ["Is flash faster", "disk or flash?", "<svg", "kernel"] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["http", "<script", "NaN"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let table = std::fs::read_to_string(table).unwrap();
    let columns = |line: &str| line.split(',').count();
    assert_eq!(table.lines().count(), 7);
    assert!(table.lines().all(|line| columns(line) == columns(table.lines().next().unwrap())));
    let json = user.json(&["lab", "report", "one", "--json"]);
    assert_eq!(json["cells"].as_array().unwrap().len(), 6);
    // A second time in the same folder is refused; resumed, there is nothing left to do.
    let again = user.run(&["lab", "run", &plan, "--out", "one"]);
    assert!(again.code == 1 && again.err.contains("lab resume"), "{}", again.err);
    assert!(user.run(&["lab", "resume", "one"]).err.contains("all cells are measured already"));
    user.ok(&["lab", "run", &plan, "--out", "two"]);
    let compared = user.ok(&["lab", "compare", "one", "two"]);
    assert!(compared.contains("faster in 0, slower in 0"), "{compared}");
}

#[test]
fn what_is_written_to_has_to_be_named_again() {
    let user = User::new();
    let image = user.file("x.img", 16 << 20);
    let target = format!("{image}:16M");
    let base = ["lab", "run", "snia-iops", "--target", &target, "--out", "out"];
    let refusal = user.run(&base);
    assert_eq!(refusal.code, 4, "{}", refusal.err);
    assert!(refusal.err.contains(&format!("--overwrite {image}")), "{}", refusal.err);
    assert!(!user.path("out").exists());
    let stranger = user.run(&[&base[..], &["--overwrite", &image, "--overwrite", "/x"]].concat());
    assert_eq!(stranger.code, 2, "{}", stranger.err);
    assert!(stranger.err.contains("does not write to it"), "{}", stranger.err);
}

/// A plan that writes a small file of its own for a moment.
const SMALL: &str = "name = \"small\"\n[[target]]\nname = \"it\"\nfile = \"x.img\"\nsize = \"8M\"\n\
    load = \"in-process\"\n[matrix]\nrw = [\"randread\", \"randwrite\"]\nbs = [\"4K\"]\n\
    [rounds]\nwarm_up = 1\ncount = 2\nseconds = 0.1\nwindows = 2\n";

#[test]
fn check_says_how_long_it_takes_what_it_cannot_know_and_what_is_overwritten() {
    let user = User::new();
    let image = user.path("x.img").display().to_string();
    let check = user.ok(&["lab", "check", &write(&user, "plan.toml", SMALL)]);
    assert!(check.contains("It takes 600 ms.") && !check.contains("Not included"), "{check}");
    assert!(check.contains(&format!("It overwrites {image}; allow it with")), "{check}");
    assert!(check.contains(&format!("--overwrite {image}")), "{check}");
    let reads = SMALL.replace(", \"randwrite\"", "");
    let check = user.ok(&["lab", "check", &write(&user, "plan.toml", &reads)]);
    assert!(check.contains("Nothing is overwritten"), "{check}");
    let filled = format!("{reads}[precondition]\npurge = true\nfills = 5\n")
        .replace("seconds = 0.1", "pass = true")
        .replace("8M", "100G");
    let plan = write(&user, "plan.toml", &filled);
    let check = user.ok(&["lab", "check", &plan]);
    for says in [
        "It takes 17 min.",
        "Of that, 17 min for fills at 500 MB/s.",
        "Not included, since unknown: how long it takes to discard everything on it.",
        "Not included, since unknown: how long it takes to pass over it, once a round.",
        &format!("It overwrites {image}"),
    ] {
        assert!(check.contains(says), "{says}: {check}");
    }
    let json = user.json(&["lab", "check", &plan, "--json"]);
    assert_eq!(json["overwrites"], serde_json::json!([image]));
    let passes = write(&user, "plan.toml", &filled.replace("fills = 5", "").replace("100G", "8M"));
    let check = user.ok(&["lab", "check", &passes]);
    assert!(!check.contains("It takes") && check.contains("to pass over it"), "{check}");
    let model = user.ok(&["lab", "check", &write(&user, "plan.toml", MODEL)]);
    assert!(model.contains("up to 18 s of virtual time"), "{model}");
    assert!(model.contains("The models take about"), "{model}");
    assert_eq!(json["seconds_unknown"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn a_plan_that_takes_longer_than_it_allows_itself_is_refused_and_so_is_the_rest_of_it() {
    let user = User::new();
    let limit = |hours: &str| format!("{SMALL}[limits]\nhours = {hours}\n");
    let plan = write(&user, "plan.toml", &limit("1e-4"));
    let run = ["lab", "run", &plan, "--out", "out", "--overwrite", "x.img"];
    let refusal = user.run(&run);
    assert!(refusal.code == 2 && refusal.err.contains("limits.hours"), "{}", refusal.err);
    assert!(!user.path("out").exists() && !user.path("x.img").exists(), "nothing was begun");
    assert!(user.ok(&["lab", "check", &plan]).contains("It will be refused"));
    write(&user, "plan.toml", &limit("1"));
    user.ok(&run);
    let (stored, rounds) = (user.path("out/plan.toml"), user.path("out/rounds.jsonl"));
    let text = std::fs::read_to_string(&stored).unwrap();
    std::fs::write(&stored, text.replace("hours = 1.0", "hours = 1.2e-4")).unwrap();
    let whole = std::fs::read_to_string(&rounds).unwrap();
    // Of the 600 ms, 300 are left once a cell is done, and 432 are allowed.
    for (done, code) in [(2, 0), (1, 0), (0, 2)] {
        let (ends, lines): (Vec<&str>, Vec<_>) =
            whole.lines().partition(|line| line.contains("\"line\":\"done\""));
        let kept: Vec<_> = lines.into_iter().chain(ends.into_iter().take(done)).collect();
        std::fs::write(&rounds, kept.join("\n") + "\n").unwrap();
        let ended = user.run(&["lab", "resume", "out", "--overwrite", "x.img"]);
        assert_eq!(ended.code, code, "{done} done: {}", ended.err);
    }
}

#[test]
fn where_there_is_no_terminal_each_cell_is_a_line_with_what_is_left() {
    let user = User::new();
    let plan = write(&user, "plan.toml", SMALL);
    let ended = user.run(&["lab", "run", &plan, "--out", "out", "--overwrite", "x.img"]);
    let lines: Vec<_> = ended.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.err);
    assert!(lines[0].starts_with("1 of 2 cells (left: "), "{}", lines[0]);
    assert!(lines[1].starts_with("2 of 2 cells: it: rand"), "{}", lines[1]);
    assert!(lines.iter().all(|line| line.contains("/s in the last of 3 rounds")), "{lines:?}");
}

#[test]
fn a_target_that_holds_a_file_system_is_refused() {
    let Some(mkfs) = headpond_testkit::tool("mkfs.ext4") else {
        skip!("a_target_that_holds_a_file_system_is_refused", "no mkfs.ext4");
    };
    let user = User::new();
    let image = user.file("fs.img", 16 << 20);
    common::client(&mkfs, &["-q".into(), "-F".into(), image.clone()]);
    let before = std::fs::read(&image).unwrap();
    let target = format!("{image}:16M");
    let refusal = user.run(&[
        "lab",
        "run",
        "snia-iops",
        "--target",
        &target,
        "--out",
        "out",
        "--overwrite",
        &image,
    ]);
    assert_eq!(refusal.code, 4, "{}", refusal.err);
    assert!(refusal.err.contains("ext4"), "{}", refusal.err);
    assert!(!refusal.err.contains("force"), "nothing here forces it: {}", refusal.err);
    let check = user.ok(&["lab", "check", "snia-iops", "--target", &target]);
    assert!(check.contains("It will be refused: ") && check.contains("ext4"), "{check}");
    assert!(std::fs::read(&image).unwrap() == before, "nothing was changed");
}

/// A volume with a cache that is served in a mode that no plan here has.
fn served(user: &User) -> common::Daemon {
    let (cache, member) = (user.file("cache.img", 64 << 20), user.file("m.img", 128 << 20));
    user.ok(&["create", "hv0", "--raid", "0", &member, "--cache", &cache]);
    let daemon = user.serve("hv0");
    user.ok(&["set", "hv0", "mode=write-around"]);
    daemon
}

/// A plan of two modes of that volume.
fn modes(user: &User, load: &str, sync: &str) -> String {
    let text = format!(
        "name = \"modes\"\n[[target]]\nname = \"hv0\"\nvolume = \"hv0\"\nload = \"{load}\"\n\
         [matrix]\nrw = [\"randwrite\"]\nbs = [\"4K\"]\nsize = \"16M\"\ndepth = [4]\n\
         sync = [\"{sync}\"]\n\
         settings = {{ \"cache.mode\" = [\"write-through\", \"write-back\"] }}\n\
         [rounds]\nwarm_up = 0\ncount = 2\nseconds = 0.5\nwindows = 5\n"
    );
    write(user, &format!("{load}.toml"), &text)
}

fn mode(user: &User) -> String {
    let shown = user.json(&["set", "hv0", "mode", "--json"]);
    shown["settings"][0]["value"].as_str().unwrap().to_owned()
}

#[test]
fn a_served_volume_is_measured_in_each_of_its_modes_and_has_its_own_back() {
    let user = User::new();
    let daemon = served(&user);
    let mut loads = vec![("in-process", "fua")];
    if headpond_testkit::tool("fio").is_some() {
        loads.push(("fio", "fsync"));
    }
    for (load, sync) in loads {
        let plan = modes(&user, load, sync);
        let json = user.json(&["lab", "run", &plan, "--out", load, "--overwrite", "hv0", "--json"]);
        let cells = json["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2);
        for cell in cells {
            assert!(cell["summary"]["write"]["iops"].as_f64().unwrap() > 0.0, "{load}: {cell}");
            assert_eq!(cell["summary"]["errors"], 0, "{load}: {cell}");
        }
        assert_eq!(mode(&user), "write-around", "{load}");
        let text = std::fs::read_to_string(user.path(load).join("environment.json")).unwrap();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let target = &told["targets"][0];
        let parts = target["parts"].as_array().unwrap();
        let names: Vec<_> = parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["member", "cache"], "{target}");
        assert!(parts[0]["place"].as_str().unwrap().ends_with("m.img"), "{target}");
        let settings = target["settings"].as_array().unwrap();
        assert!(settings.iter().any(|it| it["name"] == "cleaning"), "{target}");
        assert!(settings.iter().all(|it| it["name"] != "mode"), "it is varied: {target}");
    }
    drop(daemon);
}

#[test]
fn what_a_volume_cannot_be_set_to_and_a_plan_cannot_answer_is_told_before_anything_runs() {
    let user = User::new();
    let daemon = served(&user);
    // What comes with the program is fitted to the volume, and what is left out is said.
    let check = user.run(&["lab", "check", "cache-limits", "--target", "it=volume:hv0"]);
    assert!(check.code == 0 && check.err.contains("cache.line is not set"), "{}", check.err);
    let json =
        user.json(&["lab", "check", "sequential-map", "--target", "it=volume:hv0", "--json"]);
    assert_eq!(json["cells"], 2 * 5 * 6, "once without the cache and once with it: {json}");
    // What the user wrote is refused as it stands.
    let plan = modes(&user, "in-process", "none");
    let text = std::fs::read_to_string(&plan).unwrap().replace("cache.mode", "cache.line");
    std::fs::write(&plan, text.replace("write-through", "4K")).unwrap();
    for command in [vec!["lab", "check", &plan], vec!["lab", "run", &plan, "--out", "out"]] {
        let command = match command.len() {
            3 => command,
            _ => [command, vec!["--overwrite", "hv0"]].concat(),
        };
        let refused = user.run(&command);
        assert!(
            refused.code != 0 && refused.err.contains("it has no setting line"),
            "{}",
            refused.err
        );
    }
    assert!(!std::path::Path::new(&user.path("out")).exists(), "nothing was begun");
    let device = write(&user, "disk.img", "");
    let target = format!("it={device}:1M");
    let refused = user.run(&["lab", "check", "sequential-map", "--target", &target]);
    assert!(refused.code != 0 && refused.err.contains("name two targets"), "{}", refused.err);
    drop(daemon);
}

#[test]
fn a_served_volume_has_its_mode_back_after_a_signal_and_after_a_failure() {
    let user = User::new();
    let daemon = served(&user);
    let plan = modes(&user, "in-process", "none");
    let text = std::fs::read_to_string(&plan).unwrap();
    std::fs::write(&plan, text.replace("seconds = 0.5\nwindows = 5", "seconds = 600\nwindows = 1"))
        .unwrap();
    let mut run = user.start(&["lab", "run", &plan, "--out", "one", "--overwrite", "hv0"]);
    while mode(&user) == "write-around" {
        assert!(run.try_wait().unwrap().is_none(), "it ended before it was to");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(mode(&user), "write-around", "after a signal");
    let bad = text.replace("\"write-back\"] }", "\"write-sideways\"] }");
    std::fs::write(&plan, format!("order = \"as-written\"\n{bad}")).unwrap();
    let ended = user.run(&["lab", "run", &plan, "--out", "two", "--overwrite", "hv0"]);
    assert!(
        ended.code == 1 && ended.err.contains("cannot be set to write-sideways"),
        "{}",
        ended.err
    );
    assert_eq!(mode(&user), "write-around", "after a failure");
    drop(daemon);
}

#[test]
fn what_a_hook_has_set_is_set_back_after_a_signal_and_check_shows_both_commands() {
    let user = User::new();
    let (target, settings) =
        (format!("{}:8M", user.file("x.img", 8 << 20)), "settings = { mode = [\"fast\"] }");
    let text = format!(
        "name = \"hooks\"\n[[target]]\nname = \"m\"\nvolume = \"none\"\n\
         [matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\nrate = [100]\n{settings}\n\
         [rounds]\nwarm_up = 0\ncount = 1\nseconds = 600\nwindows = 1\n"
    );
    let plan = write(&user, "plan.toml", &text);
    let (set, back) = ("echo {name} {value} >> log", "echo {name} back >> log");
    let with = ["--target", &target, "--set", set, "--restore", back];
    let check = user.ok(&[&["lab", "check", &plan][..], &with].concat());
    assert!(check.contains(set) && check.contains(&format!("it runs: {back}")), "{check}");
    let without = user.ok(&[&["lab", "check", &plan][..], &with[..4]].concat());
    assert!(without.contains("Nothing restores"), "{without}");
    let mut run = user.start(&[&["lab", "run", &plan, "--out", "out"][..], &with].concat());
    let log = || std::fs::read_to_string(user.path("log")).unwrap_or_default();
    while log().is_empty() {
        assert!(run.try_wait().unwrap().is_none(), "it ended before it was to");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(log(), "mode fast\nmode back\n");
}

#[test]
fn a_served_volume_that_holds_a_file_system_is_refused() {
    let name = "a_served_volume_that_holds_a_file_system_is_refused";
    let Some(mkfs) = headpond_testkit::tool("mkfs.ext4") else { skip!(name, "no mkfs.ext4") };
    let Some(copy) = headpond_testkit::tool("nbdcopy") else { skip!(name, "no nbdcopy") };
    let user = User::new();
    let daemon = served(&user);
    let image = user.file("fs.img", 8 << 20);
    common::client(&mkfs, &["-q".into(), "-F".into(), image.clone()]);
    common::client(&copy, &[image, user.uri("hv0")]);
    let plan = modes(&user, "in-process", "none");
    let refusal = user.run(&["lab", "run", &plan, "--out", "two", "--overwrite", "hv0"]);
    assert_eq!(refusal.code, 4, "a file system is served: {}", refusal.err);
    assert!(refusal.err.contains("ext4"), "{}", refusal.err);
    assert_eq!(mode(&user), "write-around", "nothing was changed");
    drop(daemon);
}

#[test]
fn a_rate_on_a_volume_is_kept_by_this_program_and_of_fio_it_is_said_what_it_counts() {
    let user = User::new();
    let plan = |load: &str| {
        let text = format!(
            "name = \"rate\"\n[[target]]\nname = \"hv0\"\nvolume = \"hv0\"\nload = \"{load}\"\n\
             [matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\nsize = \"16M\"\nrate = [200]\n\
             [rounds]\nwarm_up = 0\ncount = 1\nseconds = 0.5\nwindows = 5\n"
        );
        write(&user, &format!("{load}.toml"), &text)
    };
    let (own, fio) = (plan("auto"), plan("fio"));
    assert!(user.json(&["lab", "check", &own, "--json"])["targets"][0]["load"] == "this program");
    let check = user.ok(&["lab", "check", &fio]);
    assert!(check.contains("latency from submission"), "{check}");
    let daemon = served(&user);
    let said = user.ok(&["lab", "run", &own, "--out", "own"]);
    assert!(said.contains("200/s") && !said.contains("when fio sent"), "{said}");
    if headpond_testkit::tool("fio").is_some() {
        let said = user.ok(&["lab", "run", &fio, "--out", "fio"]);
        assert!(said.contains("hv0: latencies count from when fio sent a request"), "{said}");
    }
    drop(daemon);
}

#[test]
fn sequential_rounds_of_fio_go_on_in_a_volume_whose_size_its_server_says() {
    if headpond_testkit::tool("fio").is_none() {
        skip!("sequential_rounds_of_fio_go_on_in_a_volume_whose_size_its_server_says", "no fio");
    }
    let user = User::new();
    let daemon = served(&user);
    let text = "name = \"row\"\n[[target]]\nname = \"hv0\"\nvolume = \"hv0\"\nload = \"fio\"\n\
                [matrix]\nrw = [\"read\"]\nbs = [\"64K\"]\nrate = [200]\n\
                [rounds]\nwarm_up = 0\ncount = 2\nseconds = 0.5\nwindows = 5\n";
    user.ok(&["lab", "run", &write(&user, "row.toml", text), "--out", "row"]);
    let job = std::fs::read_to_string(user.path("row").join("raw/cell-0000-round-001.fio"));
    let job = job.unwrap();
    let offset = job.lines().find_map(|line| line.strip_prefix("offset="));
    let offset: u64 = offset.unwrap_or_else(|| panic!("{job}")).parse().unwrap();
    assert!(offset > 0 && offset.is_multiple_of(64 << 10), "behind the first round: {job}");
    drop(daemon);
}

#[test]
fn a_run_that_was_killed_is_gone_on_with_at_once() {
    let user = User::new();
    let text = "name = \"killed\"\n[[target]]\nname = \"it\"\nfile = \"x.img\"\nsize = \"8M\"\n\
                load = \"in-process\"\n[matrix]\nrw = [\"randread\", \"randwrite\"]\nbs = [\"4K\"]\n\
                depth = [64]\n[rounds]\nwarm_up = 0\ncount = 2\nseconds = 0.3\nwindows = 3\n";
    let plan = write(&user, "plan.toml", text);
    let mut run = user.start(&["lab", "run", &plan, "--out", "out", "--overwrite", "x.img"]);
    let rounds = || std::fs::read_to_string(user.path("out/rounds.jsonl")).unwrap_or_default();
    while !rounds().contains("\"line\":\"round\"") {
        assert!(run.try_wait().unwrap().is_none(), "it ended before it was to");
        std::thread::sleep(Duration::from_millis(5));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let json = user.json(&["lab", "resume", "out", "--overwrite", "x.img", "--json"]);
    for cell in json["cells"].as_array().unwrap() {
        assert_eq!(cell["ending"], "complete", "{cell}");
    }
}

#[test]
fn a_file_beside_the_user_is_measured_by_fio_and_by_this_program() {
    if headpond_testkit::tool("fio").is_none() {
        skip!("a_file_beside_the_user_is_measured_by_fio_and_by_this_program", "no fio");
    }
    let user = User::new();
    let plan = |load: &str| {
        let text = format!(
            "name = \"file\"\n[[target]]\nname = \"it\"\nfile = \"x.img\"\nsize = \"8M\"\nload = \"{load}\"\n\
             [matrix]\nrw = [\"write\", \"randread\"]\nbs = [\"64K\"]\ndepth = [4]\n\
             [rounds]\nwarm_up = 0\ncount = 1\nseconds = 0.3\nwindows = 3\n"
        );
        write(&user, &format!("{load}.toml"), &text)
    };
    for load in ["fio", "in-process"] {
        let run = ["lab", "run", &plan(load), "--out", load, "--overwrite", "x.img", "--json"];
        let json = user.json(&run);
        let cells = json["cells"].as_array().unwrap();
        assert!(cells.iter().all(|cell| cell["summary"]["errors"] == 0), "{json}");
        assert!(user.path("x.img").metadata().unwrap().len() == 8 << 20, "{load}");
    }
}

#[test]
fn a_run_that_is_ended_by_a_signal_takes_fio_with_it_and_can_be_gone_on_with() {
    if headpond_testkit::tool("fio").is_none() {
        skip!(
            "a_run_that_is_ended_by_a_signal_takes_fio_with_it_and_can_be_gone_on_with",
            "no fio"
        );
    }
    let user = User::new();
    let text = "name = \"long\"\n[[target]]\nname = \"it\"\nfile = \"x.img\"\nsize = \"8M\"\n\
                load = \"fio\"\n[matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\njobs = [2]\nrate = [100]\n\
                [rounds]\nwarm_up = 0\ncount = 1\nseconds = 120\n";
    let plan = write(&user, "plan.toml", text);
    for signal in [Signal::TERM, Signal::INT] {
        let out = format!("out-{signal:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mut run = user.start(&["lab", "run", &plan, "--out", &out]);
        let raw = std::fs::canonicalize(user.path("")).unwrap().join(&out).join("raw");
        while running_in(&raw).is_empty() {
            assert!(run.try_wait().unwrap().is_none(), "it ended before it was to");
            std::thread::sleep(Duration::from_millis(20));
        }
        kill_process(Pid::from_child(&run), signal).unwrap();
        let ended = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(
            ended.status.code() == Some(130) && said.contains("continue with: headpond lab resume")
        );
        assert_eq!(running_in(&raw), Vec::<u32>::new());
        let json = user.json(&["lab", "report", &out, "--json"]);
        assert!(json["cells"][0]["ending"].is_null(), "{json}");
    }
}

#[test]
fn mistakes_are_told_with_the_way_out() {
    let user = User::new();
    for (args, code, says) in [
        (&["lab", "check", "no-such-plan"][..], 2, "there are write-policy"),
        (&["lab", "check", "missing.toml"], 1, "missing.toml"),
        (&["lab", "report", "nowhere"], 1, "holds no results"),
        (&["lab", "resume", "nowhere"], 1, "holds no results"),
        (&["lab", "check", "mixed", "--target", "x.img"], 2, "x.img:1G"),
        (&["lab", "check", "mixed", "--target", "disk="], 2, "disk=/dev/sdb"),
        (&["lab", "run", "mixed", "--out", "out", "--html", "no/x.html"], 2, "no such folder"),
        (&["lab", "plans", "none"], 2, "no plan is named none"),
    ] {
        let ended = user.run(args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.err);
        assert!(ended.err.contains(says), "{args:?}: {}", ended.err);
    }
    let plan = write(&user, "bad.toml", &MODEL.replace("depth", "depht"));
    let ended = user.run(&["lab", "check", &plan]);
    assert!(ended.err.contains("unknown field `depht`") && ended.err.contains("bad.toml"));
    let nowhere = format!("x={}:1M", user.path("nowhere/x.img").display());
    for (target, says) in
        [("x=nbd+unix:///?socket=none.sock", "none.sock"), (&nowhere, "no folder")]
    {
        let check = user.ok(&["lab", "check", "snia-iops", "--target", target]);
        let mut refused =
            check.lines().filter_map(|line| line.strip_prefix("It will be refused: "));
        assert!(refused.any(|why| why.contains(says)), "{check}");
    }
}

#[test]
fn where_fio_is_missing_that_is_told_before_anything_is_begun() {
    let user = User::new();
    let plan = write(&user, "plan.toml", &SMALL.replace("in-process", "fio"));
    let without_fio = |args: &[&str]| {
        let mut command = std::process::Command::new(common::PROGRAM);
        command.args(args).current_dir(user.path("")).env("PATH", "/nonexistent");
        let output = command.output().unwrap();
        let [out, err] = [output.stdout, output.stderr];
        (output.status.code(), String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    };
    let (code, out, err) = without_fio(&["lab", "check", &plan]);
    assert!(code == Some(0) && out.contains("It will be refused: fio was not found"), "{out}{err}");
    let run = ["lab", "run", &plan, "--out", "out", "--overwrite", "x.img"];
    let (code, _, err) = without_fio(&run);
    assert!(code == Some(1) && err.contains("apt install fio"), "{err}");
    assert!(!user.path("out").exists(), "the same command may be given again");
}

#[test]
fn every_plan_of_the_program_can_be_printed_and_used_as_a_file() {
    let user = User::new();
    let listed = user.ok(&["lab", "plans"]);
    for name in ["write-policy", "sync-write", "array", "snia-iops", "lustre"] {
        assert!(listed.contains(name), "{name}");
        let plan = write(&user, "mine.toml", &user.ok(&["lab", "plans", name]));
        assert!(user.ok(&["lab", "check", &plan]).contains(name));
    }
}
