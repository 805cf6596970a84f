//! `headpond analyze` and `merge`: from the command line, with traces that are made here.

use crate::common::User;
use parquet::file::reader::SerializedFileReader;
use serde_json::{Value, json};
use std::fs::{self, File};

/// An Alibaba table of so many writes of 4 KiB, one each 100 us, all over `blocks` blocks.
fn writes(count: u64, blocks: u64) -> String {
    let line = |n: u64| {
        let block = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        format!("7,W,{},4096,{}\n", block % blocks * 4096, 1_577_808_000_000_046 + n * 100)
    };
    (0..count).map(line).collect()
}

/// A user with a file of these bytes; its path.
fn user_with(name: &str, bytes: impl AsRef<[u8]>) -> (User, String) {
    let user = User::new();
    let path = user.path(name);
    fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (user, path)
}

fn analyzed(bytes: impl AsRef<[u8]>) -> Value {
    let (user, trace) = user_with("trace", bytes);
    let text = user.ok(&["analyze", &trace]);
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    let page = user.path("page.html");
    let args = ["analyze", &trace, "--json", "--html", page.to_str().unwrap()];
    let told = user.json(&args);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && !page.contains("NaN"), "{page}");
    told
}

fn refused(bytes: impl AsRef<[u8]>) -> String {
    let (user, trace) = user_with("trace", bytes);
    let ended = user.run(&["analyze", &trace]);
    assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{}", ended.err);
    assert!(ended.err.starts_with("headpond: error: "), "{}", ended.err);
    ended.err
}

#[test]
fn everything_of_a_signature_is_told_in_words_in_json_and_as_a_page() {
    let (user, trace) = user_with("volumes.csv", writes(20_000, 4000));
    let text = user.ok(&["analyze", &trace]);
    for words in ["written again", "working set", "burstiness", "busiest extent", "least with"] {
        assert!(text.contains(words), "{words} is missing in:\n{text}");
    }
    let told = analyzed(writes(20_000, 4000));
    let volume = &told["volume"];
    assert_eq!(volume["footprint_bytes"], json!(4000 * 4096));
    assert_eq!(volume["overwrite_share"], json!(0.8));
    let parts = ["curve", "policies", "working_set", "hot_writes", "seeks", "heat_map", "arrivals"];
    for part in parts {
        let part = &volume[part];
        let is_empty = part.as_array().is_some_and(Vec::is_empty) || part.is_null();
        assert!(!is_empty, "{part}");
    }
}

#[test]
fn traces_without_content_and_of_no_format_are_errors() {
    assert!(refused("").contains("empty"));
    assert!(refused("Dear diary,\nnothing happened.\n").contains("not a known trace format"));
    assert!(refused([0xff; 4096]).contains("not a known trace format"));
}

#[test]
fn a_trace_that_ends_in_the_middle_is_an_error_with_its_place_and_lenient_takes_the_rest() {
    let whole = writes(50, 100);
    let (user, trace) = user_with("cut.csv", &whole[..whole.len() - 25]);
    let ended = user.run(&["analyze", &trace]);
    assert!(ended.code == 1 && ended.err.contains("line 50"), "{}", ended.err);
    let told = user.run(&["analyze", &trace, "--lenient", "--json"]);
    assert!(told.code == 0 && told.err.contains("1 damaged"), "{}", told.err);
    let told: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told["requests"], json!(49));
}

#[test]
fn addresses_up_to_the_last_are_counted_and_beyond_it_are_errors() {
    let last = u64::MAX - 4095;
    let told = analyzed(format!("7,R,0,4096,1000\n7,W,{last},4095,1001\n"));
    assert_eq!(told["volume"]["range_bytes"], json!([0, u64::MAX]));
    assert_eq!(told["volume"]["footprint_bytes"], json!(8192));
    assert!(refused(format!("7,R,0,4096,1000\n7,W,{last},8192,1001\n")).contains("line 2"));
}

#[test]
fn time_that_goes_back_does_no_harm() {
    let lines: Vec<String> = writes(2000, 500).lines().map(|line| format!("{line}\n")).collect();
    let (early, late) = lines.split_at(1000);
    let told = analyzed([late, early].concat().concat());
    assert_eq!(told["requests"], json!(2000));
}

#[test]
fn a_trace_without_completions_and_one_of_one_request_have_a_signature() {
    let told = analyzed(writes(500, 100));
    assert_eq!((&told["depth"], &told["streams"][0]["depth"]), (&Value::Null, &Value::Null));
    let told = analyzed("7,W,4096,4096,1577808000000046\n");
    assert_eq!((&told["requests"], &told["duration_ns"]), (&json!(1), &json!(0)));
    assert_eq!(told["volume"]["footprint_bytes"], json!(4096));
}

#[test]
fn a_rate_of_sampling_is_taken_as_told() {
    let (user, trace) = user_with("volumes.csv", writes(50_000, 40_000));
    let told = user.json(&["analyze", &trace, "--json", "--sample", "0.01"]);
    assert_eq!(told["volume"]["sampling_rate"], json!(0.01));
    for rate in ["0", "2", "fast"] {
        assert_eq!(user.run(&["analyze", &trace, "--sample", rate]).code, 2, "{rate}");
    }
}

#[test]
fn partial_signatures_of_a_fleet_are_merged_in_any_order() {
    let user = User::new();
    let paths = ["one.csv", "two.csv", "one.hpsig", "two.hpsig", "a.hpsig", "b.hpsig"];
    let paths = paths.map(|name| user.path(name).to_str().unwrap().to_owned());
    let [one, two, one_counted, two_counted, a, b] = &paths;
    fs::write(one, writes(3000, 1000)).unwrap();
    fs::write(two, writes(1000, 500)).unwrap();
    assert_eq!(user.ok(&["analyze", one, "--partial", one_counted, "--source", "one"]), "");
    user.ok(&["analyze", two, "--partial", two_counted, "--source", "two"]);
    user.ok(&["merge", one_counted, two_counted, "--partial", a]);
    user.ok(&["merge", two_counted, one_counted, "--partial", b]);
    assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
    let told = user.json(&["merge", a, "--json"]);
    assert_eq!(told["requests"], json!(4000));
    let footprint = |path| {
        let told = user.json(&["analyze", path, "--json"]);
        told["volume"]["footprint_bytes"].as_u64().unwrap()
    };
    assert_eq!(told["volume"]["footprint_bytes"], json!(footprint(one) + footprint(two)));
    assert_eq!(told["streams"][0]["source"], json!("one"));
    let text = user.ok(&["merge", one_counted, two_counted]);
    assert!(text.contains("4,000 requests") && text.contains("two"), "{text}");
}

#[test]
fn every_figure_is_a_row_of_a_table_for_other_engines() {
    let (user, trace) = user_with("volumes.csv", writes(3000, 1000));
    let table = user.path("volumes.parquet");
    let told = user.json(&[
        "analyze",
        &trace,
        "--json",
        "--parquet",
        table.to_str().unwrap(),
        "--source",
        "host3/hv0",
    ]);
    let rows = SerializedFileReader::new(File::open(&table).unwrap()).unwrap();
    let rows: Vec<_> = rows.into_iter().map(|row| row.unwrap().to_string()).collect();
    let row = |of: &str, item: &str, point: &str, number: &str, word: &str| {
        let place = format!("item: {item}, point: {point}");
        format!(
            "{{trace: \"host3/hv0\", figure: \"{of}\", {place}, number: {number}, word: {word}}}"
        )
    };
    let footprint = told["volume"]["footprint_bytes"].as_f64().unwrap();
    let end = told["volume"]["range_bytes"][1].as_f64().unwrap();
    let smallest = told["volume"]["policies"][1]["points"][0]["cache_bytes"].as_f64().unwrap();
    for expected in [
        row("requests", "null", "null", "3000.0", "null"),
        row("volume.footprint_bytes", "null", "null", &format!("{footprint:?}"), "null"),
        row("volume.range_bytes", "1", "null", &format!("{end:?}"), "null"),
        row("streams.mix.write", "0", "null", "1.0", "null"),
        row("streams.pattern", "0", "null", "null", "\"random\""),
        row("volume.policies.points.cache_bytes", "1", "0", &format!("{smallest:?}"), "null"),
    ] {
        assert!(rows.contains(&expected), "{expected} is missing in\n{}", rows.join("\n"));
    }
    let counted = user.path("counted.hpsig");
    user.ok(&["analyze", &trace, "--partial", counted.to_str().unwrap(), "--source", "host3/hv0"]);
    let merged = user.path("merged.parquet");
    user.ok(&["merge", counted.to_str().unwrap(), "--parquet", merged.to_str().unwrap()]);
    let merged = SerializedFileReader::new(File::open(&merged).unwrap()).unwrap();
    assert!(merged.into_iter().any(|row| row.unwrap().to_string() == rows[0]));
}

#[test]
fn what_is_no_partial_signature_is_refused_by_name() {
    let (user, trace) = user_with("volumes.csv", writes(500, 100));
    let ended = user.run(&["merge", &trace]);
    assert!(ended.code == 1 && ended.err.contains("volumes.csv"), "{}", ended.err);
    assert!(ended.err.contains("is no partial signature"), "{}", ended.err);
    let counted = user.path("cut.hpsig");
    user.ok(&["analyze", &trace, "--partial", counted.to_str().unwrap()]);
    let bytes = fs::read(&counted).unwrap();
    fs::write(&counted, &bytes[..bytes.len() - 7]).unwrap();
    let ended = user.run(&["merge", counted.to_str().unwrap()]);
    assert!(ended.code == 1 && ended.err.contains("ends at byte"), "{}", ended.err);
}

/// 4,000 accesses to 500 blocks in ARC's form: first block, blocks, anything, number.
fn references() -> String {
    let line = |n: u64| format!("{} 8 0 {n}\n", n * 7919 % 500 * 8);
    (0..4000).map(line).collect()
}

#[test]
fn of_a_trace_without_operations_and_times_reuse_is_told_and_what_cannot_be() {
    let (user, trace) = user_with("p1.lis", references());
    let page = user.path("page.html");
    let args = ["analyze", &trace, "--html", page.to_str().unwrap()];
    let text = user.ok(&args);
    for part in ["footprint", "used again", "88 %", "misses", "does not tell:", "when: no rates"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("written again"), "{text}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Miss ratio by size of the cache") && !page.contains("Queue depth"));
    let told = user.json(&["analyze", &trace, "--json"]);
    let last = told["curve"].as_array().unwrap().last().unwrap();
    assert_eq!(last["misses"], 0.125);
    assert_eq!(
        (&told["working_set"], told["footprint_bytes"].as_u64()),
        (&Value::Null, Some(500 * 4096))
    );
    let counted = user.run(&["analyze", &trace, "--partial", "x.hpsig"]);
    assert!(
        counted.code == 2 && counted.err.contains("neither operations nor times"),
        "{}",
        counted.err
    );
    let advised = user.run(&["advise", &trace]);
    assert!(advised.code != 0, "{}", advised.out);
    assert!(advised.err.contains("`headpond analyze` reports their reuse"), "{}", advised.err);
}

#[test]
fn of_a_trace_with_times_there_is_a_working_set() {
    let record = |n: u64| {
        let next = if n + 500 < 4000 { (n + 501) as i64 } else { -1 };
        let mut bytes = (n as u32 / 10).to_le_bytes().to_vec();
        bytes.extend((n % 500 * 8).to_le_bytes());
        bytes.extend(4096_u32.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        bytes
    };
    let bytes: Vec<u8> = (0..4000).flat_map(record).collect();
    let (user, trace) = user_with("w.oracleGeneral", bytes);
    let text = user.ok(&["analyze", &trace]);
    assert!(text.contains("working set") && !text.contains("when: no rates"), "{text}");
}

#[test]
fn nothing_is_written_over_what_is_read() {
    let (user, trace) = user_with("trace", writes(2000, 1000));
    let (before, folder) = (fs::read(&trace).unwrap(), user.path("."));
    let partial = user.path("part.hpsig").display().to_string();
    user.ok(&["analyze", &trace, "--partial", &partial]);
    let kept = fs::read(&partial).unwrap();
    let detour = folder.join("trace").display().to_string();
    let (linked, symbolic) = (folder.join("linked"), folder.join("symbolic"));
    fs::hard_link(&trace, &linked).unwrap();
    std::os::unix::fs::symlink(&trace, &symbolic).unwrap();
    let (linked, symbolic) = (linked.display().to_string(), symbolic.display().to_string());
    let commands: [&[&str]; 8] = [
        &["analyze", &trace, "--html", &linked],
        &["advise", &symbolic, "--html", &trace],
        &["analyze", &trace, "--html", &trace],
        &["analyze", &trace, "--parquet", &detour],
        &["analyze", &trace, "--partial", &trace],
        &["advise", &trace, "--html", &detour],
        &["merge", &partial, "--partial", &partial],
        &["simulate", &partial, "--trace", &trace, "--html", &trace],
    ];
    for command in commands {
        let ended = user.run(command);
        assert!(
            ended.code == 2 && ended.err.contains("would be overwritten"),
            "{command:?}: {}",
            ended.err
        );
    }
    assert_eq!((fs::read(&trace).unwrap(), fs::read(&partial).unwrap()), (before, kept));
}
