//! `headpond try`: the whole of it, as short as it can be.

use crate::common::User;
use crate::pages::wrong_with;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// Forty sparse files of four terabytes: in memory where that is possible, for file systems have
/// refused writes that are scattered so far though there was room.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[test]
fn the_demo_goes_from_an_array_to_advice_and_its_measurement() {
    let user = User::new();
    let (page, kept) = (user.path("page.html"), folder());
    let [page, folder] = [&page, kept.path()].map(|path| path.to_str().unwrap());
    let short = ["try", "--seconds", "1", "--cache", "16M", "--own-load", "--json"];
    let out = user.ok(&[&short[..], &["--report", page, "--folder", folder]].concat());
    let outcome: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(outcome["rows"].as_array().unwrap().len(), 4, "{out}");
    for row in outcome["rows"].as_array().unwrap() {
        for part in ["before", "burst", "sustained"] {
            let (reads, writes) = (&row[part]["read_iops"], &row[part]["write_iops"]);
            assert!(reads.as_f64().unwrap() + writes.as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let applied = outcome["applied"][0].as_str().unwrap();
    assert!(applied.starts_with("mode="), "{applied}");
    assert!(outcome["advice"].as_str().unwrap().contains("replays of up to"), "{out}");
    let wrong = wrong_with(&user, Path::new(page), &["try"], "Measured");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && !page.contains("NaN") && !page.contains(">inf"));
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "what was made is removed");
}
