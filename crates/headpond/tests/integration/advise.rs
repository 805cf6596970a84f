//! `headpond advise`: what is written beside the answer, from the command line.

use crate::common::User;
use std::fs;
use std::process::Command;

/// Writes of 4 KiB, one each 100 us, all over 4 MB: a table of Alibaba's.
fn user_with_writes() -> (User, String) {
    let user = User::new();
    let line = |n: u64| {
        let block = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        format!("7,W,{},4096,{}\n", block % 1000 * 4096, 1_577_808_000_000_046 + n * 100)
    };
    let path = user.path("writes.csv");
    fs::write(&path, (0..1500).map(line).collect::<String>()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (user, path)
}

const MACHINE: [&str; 8] =
    ["--raid", "6", "--members", "8", "--cache-size", "64M", "--effort", "quick"];

fn args<'a>(trace: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    ["advise", trace].iter().chain(&MACHINE).chain(more).copied().collect()
}

#[test]
fn advice_is_printed_as_a_script_alone_and_drawn_beside_it() {
    let (user, trace) = user_with_writes();
    let page = user.path("page.html");
    let html = ["--emit", "bcache", "--html", page.to_str().unwrap()];
    let script = user.ok(&args(&trace, &html));
    assert!(
        script.starts_with("#!/bin/sh\n# Advice of headpond advise, for bcache.\n"),
        "{script}"
    );
    assert!(script.contains("make-bcache") && script.contains("# mode="), "{script}");
    let path = user.path("cache.sh");
    fs::write(&path, &script).unwrap();
    assert!(Command::new("sh").arg("-n").arg(&path).status().unwrap().success());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<h1>Use the cache</h1>"));
    for outside in ["http", "<script", "@import", "NaN", "inf%"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_file_of_classes_is_printed_alone_and_is_one_that_headpond_reads() {
    let (user, trace) = user_with_writes();
    let ended = user.run(&args(&trace, &["--emit", "opencas-io-class"]));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("mode=write-back: classes say which"), "{}", ended.err);
    let path = user.path("classes.csv");
    fs::write(&path, &ended.out).unwrap();
    user.ok(&["class", "check", path.to_str().unwrap()]);
}

#[test]
fn a_cache_that_nothing_is_written_for_is_refused_with_those_that_there_are() {
    let (user, trace) = user_with_writes();
    let ended = user.run(&args(&trace, &["--emit", "flashcache"]));
    assert_eq!(ended.code, 2);
    assert!(
        ended.err.contains("nothing is written for flashcache; there are headpond"),
        "{}",
        ended.err
    );
    assert_eq!(user.run(&args(&trace, &["--emit", "bcache", "--json"])).code, 2);
}

#[test]
fn a_served_volume_gets_the_commands_that_set_it() {
    let (user, trace) = user_with_writes();
    let members: Vec<String> = (0..4).map(|n| user.file(&format!("m{n}"), 64 << 20)).collect();
    let cache = user.file("cache", 64 << 20);
    let mut create = vec!["create", "toy", "--raid", "5", "--zeroed", "--cache", &cache];
    create.extend(members.iter().map(String::as_str));
    user.ok(&create);
    let _daemon = user.serve("toy");
    let advise = ["advise", &trace, "--volume", "toy", "--effort", "quick", "--emit"];
    let told = |target| user.ok(&[&advise[..], &[target]].concat());
    let script = told("headpond");
    let set: Vec<&str> =
        script.lines().filter_map(|line| line.strip_prefix("headpond set toy ")).collect();
    assert!(set.len() == 1 && set[0].contains("mode="), "{script}");
    user.ok(&[&["set", "toy"], &set[0].split(' ').collect::<Vec<_>>()[..]].concat());
    let again = told("headpond");
    assert!(!again.contains("\nheadpond set") && again.contains("nothing is changed"), "{again}");
    assert!(
        told("casadm").contains(&format!("# toy has its cache on {cache}: headpond cache detach"))
    );
}

#[test]
fn a_fitted_model_of_remote_storage_is_a_core_of_its_own() {
    let (user, trace) = user_with_writes();
    let (device, model) = (user.path("image"), user.path("image.toml"));
    fs::write(&device, vec![0x5a; 80 << 20]).unwrap();
    let (device, model) = (device.to_str().unwrap(), model.to_str().unwrap());
    user.ok(&["model", "fit", "--device", device, "--kind", "remote", "-o", model]);
    assert!(fs::read_to_string(model).unwrap().contains("kind = \"remote\""));
    let advise = ["advise", &trace, "--core", model, "--cache-size", "64M", "--effort", "quick"];
    let advice = user.json(&[&advise[..], &["--json"]].concat());
    let assumed = advice["advice"]["assumptions"].to_string();
    assert!(assumed.contains(&format!("one {model}")) && !assumed.contains("--raid"), "{assumed}");
    let both = user.run(&[&advise[..], &["--raid", "6", "--members", "8"]].concat());
    assert!(both.code == 2 && both.err.contains("--core"), "{}", both.err);
}

#[test]
fn modelled_members_of_a_served_volume_are_played_as_what_they_are_models_of() {
    let (user, trace) = user_with_writes();
    let model = |name: &str| format!("model:nvme-optane-375g?store={}", user.path(name).display());
    let (one, two, cache) = (model("one"), model("two"), user.file("cache", 64 << 20));
    user.ok(&["create", "fast", "--raid", "0", "--cache", &cache, &one, &two]);
    let _daemon = user.serve("fast");
    let assumed = |more: &[&str]| {
        let advise = ["advise", &trace, "--volume", "fast", "--effort", "quick", "--json"];
        user.json(&[&advise[..], more].concat())["advice"]["assumptions"].to_string()
    };
    let told = assumed(&[]);
    assert!(told.contains("RAID 0 of 2 nvme-optane-375g in 1 groups"), "{told}");
    assert!(!told.contains("members are assumed") && told.contains("with --cache-drive"), "{told}");
    let told = assumed(&["--drive", "hdd-7k2-4t", "--cache-drive", "nvme-dc-2t"]);
    assert!(told.contains("RAID 0 of 2 hdd-7k2-4t") && !told.contains("assumed to be"), "{told}");
}
