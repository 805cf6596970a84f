//! `headpond trace`: from the command line, with traces that are made here.

use crate::common;
use crate::common::User;
use serde_json::json;
use std::fs;

const ALIBABA: &str = "419,W,8792731648,16384,1577808000000046\n\
                       725,R,59110326272,360448,1577808000000049\n\
                       nonsense\n\
                       419,R,4096,4096,1577808000000050\n";

fn user_with(name: &str, text: &str) -> (User, String) {
    let user = User::new();
    let path = user.path(name);
    fs::write(&path, text).unwrap();
    (user, path.to_str().unwrap().to_owned())
}

#[test]
fn damage_ends_stats_with_its_line_and_lenient_stats_count_it() {
    let (user, trace) = user_with("volumes.csv", ALIBABA);
    let refused = user.run(&["trace", "stats", &trace]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("damaged Alibaba CSV at line 3"), "{}", refused.err);
    let stats = user.json(&["trace", "stats", &trace, "--lenient", "--json"]);
    assert_eq!((&stats["format"], &stats["requests"]), (&json!("alibaba"), &json!(3)));
    let damage = &stats["tally"]["damage"]["unreadable"];
    assert_eq!(damage, &json!({"places": 1, "skipped_bytes": 9, "first": {"line": 3}}));
    let text = user.ok(&["trace", "stats", &trace, "--lenient"]);
    assert!(text.contains("unreadable records") && text.contains("line 3"), "{text}");
}

#[test]
fn a_trace_is_converted_there_and_back() {
    let (user, trace) = user_with("volumes.csv", &ALIBABA.replace("nonsense\n", ""));
    let recording = user.path("volumes.hptrace");
    let recording = recording.to_str().unwrap();
    let told = user.json(&["trace", "convert", &trace, recording, "--json"]);
    assert_eq!((&told["records"], &told["to"]), (&json!(3), &json!("recording")));
    let again = user.run(&["trace", "convert", &trace, recording]);
    assert!(again.code == 1 && again.err.contains("volumes.hptrace"), "is not overwritten");
    let log = user.ok(&["trace", "convert", recording, "-", "--to", "fio-iolog"]);
    assert!(log.starts_with("fio version 3 iolog\n0 419 add\n0 419 open\n0 419 write"), "{log}");
    assert!(log.contains("\n3 725 read 59110326272 360448\n"), "{log}");
}

#[test]
fn a_failed_conversion_leaves_nothing_behind() {
    let (user, trace) = user_with("volumes.csv", ALIBABA);
    let output = user.path("out.hptrace");
    let ended = user.run(&["trace", "convert", &trace, output.to_str().unwrap()]);
    assert_eq!(ended.code, 1);
    assert!(!output.exists());
}

#[test]
fn what_fits_two_formats_is_asked_about_and_taken_as_told() {
    let (user, trace) = user_with("either.txt", "0.000 0 4096 4096 0\n1.000 0 8192 4096 1\n");
    let asked = user.run(&["trace", "stats", &trace]);
    assert!(asked.err.contains("MSR window (msr-window) or DiskSim"), "{}", asked.err);
    let stats = user.json(&["trace", "stats", &trace, "--format", "disksim", "--json"]);
    assert_eq!(stats["range_bytes"], json!([4096 * 512, (8192 + 4096) * 512]));
    let signature = user.json(&["analyze", &trace, "--format", "disksim", "--json"]);
    assert_eq!(signature["volume"]["range_bytes"], stats["range_bytes"]);
    let tested = user.ok(&["class", "test", "lustre", &trace, "--format", "disksim"]);
    assert!(tested.contains("2"), "{tested}");
    let unknown = user.run(&["trace", "stats", &trace, "--format", "csv"]);
    assert!(unknown.code == 2 && unknown.err.contains("msr-cambridge"), "{}", unknown.err);
}

#[test]
fn a_trace_without_operations_has_stats_and_tells_its_reuse_alone() {
    let (user, trace) = user_with("p3.lis", "230027 8 3 0\n1842745 64 9 1\n");
    let stats = user.json(&["trace", "stats", &trace, "--json"]);
    assert_eq!((&stats["tells_operations"], &stats["tells_times"]), (&json!(false), &json!(false)));
    let told = user.ok(&["analyze", &trace]);
    assert!(told.contains("used again") && told.contains("does not tell"), "{told}");
    let refused = user.run(&["advise", &trace]);
    assert!(refused.code != 0 && refused.err.contains("analyze"), "{}", refused.err);
}

#[test]
fn the_kernels_tracer_is_asked_of_block_devices_only() {
    let (user, file) = user_with("image", "no device");
    let ended = user.run(&["trace", "record", &file]);
    assert!(ended.code == 2 && ended.err.contains("is not a block device"), "{}", ended.err);
    let ended = user.run(&["trace", "record", "/dev/no-such-device"]);
    assert!(ended.code == 2 && ended.err.contains("/dev/no-such-device"), "{}", ended.err);
}

/// A `blktrace` that has traced what is in a file.
#[test]
fn what_the_kernels_tracer_sends_becomes_a_recording() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    const CLAIM: &str = "what the kernel's tracer sends becomes a recording";
    let Some(capture) = headpond_testkit::shared("traces/headpond-vm/vda.bin") else {
        headpond_testkit::skip!(CLAIM, "no sample traces");
    };
    let devices = fs::read_dir("/dev").unwrap().filter_map(Result::ok);
    let is_device = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_block_device());
    let Some(device) = devices.filter(is_device).map(|entry| entry.path()).next() else {
        headpond_testkit::skip!(CLAIM, "no block device");
    };
    let user = User::new();
    let program = user.path("blktrace");
    fs::write(&program, format!("#!/bin/sh\ncat {}\n", capture.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = user.path("vda.hptrace");
    let ended = std::process::Command::new(common::PROGRAM)
        .args(["trace", "record", "--json", "--seconds", "1", "--output"])
        .args([&output, &device])
        .env("PATH", format!("{}:/usr/bin:/bin", user.path("").display()))
        .env("HEADPOND_STATE", user.path("state"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    if said.contains("requires root") || said.contains("CONFIG_BLK_DEV_IO_TRACE") {
        headpond_testkit::skip!(CLAIM, "{said}");
    }
    assert!(ended.status.success(), "{said}");
    let stats = user.json(&["trace", "stats", output.to_str().unwrap(), "--json"]);
    assert_eq!((&stats["format"], &stats["requests"]), (&json!("recording"), &json!(2254)));
    assert_eq!(stats["retried"], json!(42));
}
