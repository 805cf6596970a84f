//! The pages in a browser: nothing leaves the screen, and what they say first is where their
//! figures come from. `make test-web` installs the browser. The page of the demo is looked at in
//! its own test.

use crate::common::User;
use headpond_testkit::{skip, tool};
use std::fs;
use std::path::Path;
use std::process::Command;

const WIDTHS: [u32; 2] = [1400, 700];

/// A name as long as they get, without a place to break it.
const LONG_NAME: &str = "exports_of_the_storage_server_with_a_long_name_2026_11_30_0930_until_1145";

/// Two streams, and blocks all over: a table of Alibaba's.
fn trace(user: &User) -> String {
    let line = |n: u64| {
        let block = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let (kind, offset) = match n % 4 {
            0 => ('R', n * 65_536),
            1 => ('W', (1 << 40) + n * 131_072),
            _ => ('W', block % 5000 * 4096),
        };
        format!("7,{kind},{offset},4096,{}\n", 1_577_808_000_000_046 + n * 700)
    };
    let path = user.path(&format!("{LONG_NAME}.csv"));
    fs::write(&path, (0..4000).map(line).collect::<String>()).unwrap();
    path.display().to_string()
}

fn written(user: &User, name: &str, text: &str) -> String {
    fs::write(user.path(name), text).unwrap();
    user.path(name).display().to_string()
}

/// What leaves the screen of a page, as the script in it tells.
fn beyond(user: &User, browser: &Path, page: &Path, width: u32) -> String {
    let script = include_str!("pages/beyond.js");
    let text = fs::read_to_string(page).unwrap();
    let probe = user.path("probe.html");
    let with_script = format!("<script>{script}</script></body>");
    fs::write(&probe, text.replace("</body>", &with_script)).unwrap();
    let profile = user.path("browser");
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args([format!("--window-size={width},900"), "--dump-dom".to_owned()])
        .arg(format!("file://{}", probe.display()))
        .output()
        .unwrap();
    let dump = String::from_utf8_lossy(&output.stdout).into_owned();
    let begin = format!("beyond {width}\n");
    let told = dump.rsplit_once(&begin).and_then(|(_, rest)| rest.split_once("end of beyond"));
    let Some((told, _)) = told else {
        panic!("{}: no answer: {}", page.display(), String::from_utf8_lossy(&output.stderr))
    };
    told.to_owned()
}

/// What is wrong with a page: what it says first is checked on any machine, and how it looks where
/// there is a browser.
pub fn wrong_with(user: &User, page: &Path, command: &[&str], origin: &str) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let head = text.split_once("class=\"origin\"").expect("it says where its figures come from").1;
    let head = &head[..head.find("</p>").unwrap()];
    let version = format!("headpond {}: ", env!("CARGO_PKG_VERSION"));
    for says in [origin, &version, "<code>headpond ", command[0]] {
        assert!(head.contains(says), "{command:?}: {says} in {head}");
    }
    let Some(browser) = tool("chromium") else { return Vec::new() };
    let wrong = |&width: &u32| {
        let found = beyond(user, &browser, page, width);
        (!found.is_empty()).then(|| format!("{command:?} at {width} pixels:\n{found}"))
    };
    WIDTHS.iter().filter_map(wrong).collect()
}

fn made_with(user: &User, command: &[&str], origin: &str) -> Vec<String> {
    let page = user.path("page.html");
    user.ok(&[command, &["--html", page.to_str().unwrap()]].concat());
    wrong_with(user, &page, command, origin)
}

/// Says so where there is no browser; else nothing of these may be beyond the screen.
fn judge(found: Vec<String>) {
    if tool("chromium").is_none() {
        skip!("pages in a browser", "no chromium: only what the pages say first was checked");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn pages_of_traces_fit_the_screen() {
    let user = User::new();
    let trace = trace(&user);
    let part = user.path(&format!("{LONG_NAME}.hpsig")).display().to_string();
    user.ok(&["analyze", &trace, "--partial", &part]);
    let line = |n: u64| format!("{} 8 0 {n}\n", n * 7919 % 500 * 8);
    let references =
        written(&user, &format!("{LONG_NAME}.lis"), &(0..4000).map(line).collect::<String>());
    let machine = ["--raid", "60", "--members", "16", "--cache-size", "64M"];
    let shown = ["--effort", "quick", "--signature"];
    let advise = [&["advise", &trace][..], &machine, &shown].concat();
    let mut found = Vec::new();
    for (command, origin) in [
        (&["analyze", &trace][..], "Counted in the trace"),
        (&["analyze", &references], "Counted in the trace"),
        (&["merge", &part], "Counted in the trace"),
        (&advise, "Modelled"),
    ] {
        found.extend(made_with(&user, command, origin));
    }
    judge(found);
}

#[test]
fn pages_of_models_fit_the_screen() {
    let user = User::new();
    let stack = |name: &str, cache: &str| {
        let text = format!(
            "name = \"{name}\"\n[core]\nraid = 60\ngroups = 4\nstrip = \"64K\"\n\
             drive = \"hdd-7k2-4t\"\ndrives = 40\n{cache}"
        );
        written(&user, &format!("{name}.toml"), &text)
    };
    let plain = stack("plain", "");
    let cached =
        stack(LONG_NAME, "[cache]\nsize = \"64M\"\nmode = \"write-back\"\nwrite_us = 20\n");
    let load = ["--rw", "randrw", "--rwmixread", "70", "--iodepth", "4", "--runtime", "2"];
    let simulate = [&["simulate", &plain, &cached][..], &load].concat();
    let compare = ["array", "plan", "--compare", "--members", "24", "--drive", "hdd-14t"];
    let level = ["array", "plan", "--level", "60", "--members", "24", "--groups", "2"];
    let level = [&level[..], &["--drive", "hdd-14t", "--cache", "nvme-dc-2t"]].concat();
    let mut found = Vec::new();
    for command in [&simulate[..], &compare, &level] {
        found.extend(made_with(&user, command, "Modelled"));
    }
    judge(found);
}

#[test]
fn pages_of_measurements_fit_the_screen() {
    let user = User::new();
    let targets = ["disk", "flash", LONG_NAME].map(|name| {
        let drive = if name == "disk" { "hdd-7k2-4t" } else { "ssd-dc-960g" };
        let machine = format!("{{ core = {{ raid = 0, drives = 1, drive = \"{drive}\" }} }}");
        format!("[[target]]\nname = \"{name}\"\nmachine = {machine}\n")
    });
    let answer = |second: &str| {
        format!(
            "[[answer]]\nkind = \"versus\"\naxis = \"target\"\nfirst = \"disk\"\n\
             second = \"{second}\"\n"
        )
    };
    let plan = format!(
        "name = \"{LONG_NAME}\"\nquestion = \"Is flash faster than a disk?\"\n{}\
         [matrix]\nrw = [\"randread\", \"randwrite\"]\nbs = [\"4K\", \"64K\", \"1M\"]\n\
         depth = [1, 4, 16]\n[rounds]\nwarm_up = 1\ncount = 3\nseconds = 0.2\n{}{}",
        targets.concat(),
        answer("flash"),
        answer(LONG_NAME),
    );
    let modelled = written(&user, "plan.toml", &plan);
    let metal = format!(
        "name = \"metal\"\n[[target]]\nname = \"{LONG_NAME}\"\nfile = \"x.img\"\nsize = \"8M\"\n\
         load = \"in-process\"\n[matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\n\
         [rounds]\nwarm_up = 1\ncount = 2\nseconds = 0.1\nwindows = 2\n"
    );
    let metal = written(&user, "metal.toml", &metal);
    user.ok(&["lab", "run", &modelled, "--out", "modelled"]);
    user.ok(&["lab", "run", &metal, "--out", "measured"]);
    let mut found = made_with(&user, &["lab", "report", "modelled"], "Modelled");
    found.extend(made_with(&user, &["lab", "report", "measured"], "Measured"));
    judge(found);
}
