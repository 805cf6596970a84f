//! `headpond stats` as its users meet it.

use crate::common::User;
use crate::common::work::{WRITES, work};
use headpond_api::answers::Versioned;
use headpond_cache::Way;
use headpond_volume::{CacheReport, ClassReport, Row};

const MIB: u64 = 1 << 20;
const CLASSES: &str = "[[class]]\nid = 0\npass_through = true\n\n\
                       [[class]]\nid = 2\nname = \"small\"\nwhen = \"request_size:le:8192\"\n";

/// A RAID 5 behind a cache file where only small requests are cached.
fn create(user: &User) {
    let mut args: Vec<String> = ["create", "v", "--raid", "5", "--zeroed"].map(Into::into).into();
    args.extend((0..3).map(|at| user.file(&format!("{at}.img"), 40 * MIB)));
    args.extend(["--cache".into(), user.file("cache.img", 32 * MIB)]);
    let classes = user.path("classes.toml");
    std::fs::write(&classes, CLASSES).unwrap();
    args.extend(["--set".into(), format!("classes={}", classes.display())]);
    args.extend(["--set", "cleaning=nop"].map(Into::into));
    user.ok(&args);
}

fn cache_of(user: &User) -> CacheReport {
    user.stats(&["v"]).report.cache.unwrap()
}

fn row<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    let found = rows.iter().find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("{name} in {rows:?}"))
}

fn count(rows: &[Row], name: &str) -> u64 {
    row(rows, name).count
}

#[test]
fn statistics_are_those_of_casadm_and_what_it_lacks() {
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    work(&user, "v");
    let stats = cache_of(&user);
    let (requests, blocks) = (&stats.groups.requests, &stats.groups.blocks);
    assert_eq!(count(requests, "Write full misses"), WRITES);
    assert_eq!(count(requests, "Read hits"), WRITES);
    assert_eq!(count(requests, "Read full misses"), 1);
    assert_eq!(count(requests, "Pass-Through writes"), 1);
    assert_eq!(count(requests, "Total requests"), 2 * WRITES + 2);
    assert_eq!(row(requests, "Total requests").unit, "Requests");
    assert_eq!(count(&stats.groups.usage, "Dirty"), WRITES);
    assert_eq!(count(blocks, "Reads from core(s)"), 1);
    assert_eq!(count(blocks, "Writes to core(s)"), 64);
    assert_eq!(count(blocks, "Reads from cache"), WRITES);
    assert_eq!(count(blocks, "Reads from exported object(s)"), WRITES + 1);
    assert_eq!(count(&stats.groups.errors, "Total errors"), 0);
    assert_eq!((count(&stats.bypasses, "class"), count(&stats.bypasses, "mode")), (1, 0));
    assert!(stats.write_amplification > Some(1.0));
    let ways: Vec<Way> = stats.latency.iter().map(|it| it.way).collect();
    let expected =
        [Way::ReadHit, Way::ReadMiss, Way::WriteToCache, Way::WritePastCache, Way::Flush];
    assert_eq!(ways, expected);
    assert!(stats.latency[0].buckets[0].1 > 0);
    let text = user.ok(&["stats", "v"]);
    for part in [
        "counted since 20",
        "Occupancy",
        "p99.9",
        "one request of 32",
        "bytes written per byte inserted",
        " the map, ",
        " checksums",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn each_class_has_its_requests_and_csv_has_the_columns_of_casadm() {
    let user = User::new();
    create(&user);
    let _daemon = user.serve("v");
    work(&user, "v");
    let classes = |how: &[&str]| {
        let shown = user.ok(&[&["stats", "v", "--json"], how].concat());
        serde_json::from_str::<Vec<Versioned<ClassReport>>>(&shown).expect(&shown)
    };
    let small = &classes(&["--class", "2"])[0].answer;
    assert_eq!((small.name.as_deref(), small.id), (Some("small"), 2));
    assert_eq!(count(&small.requests, "Total requests"), 2 * WRITES + 1);
    assert_eq!(count(&small.usage, "Dirty"), WRITES);
    let blocks = ["Reads from core(s)", "Writes to core(s)", "Reads from cache"];
    assert_eq!(blocks.map(|name| count(&small.blocks, name)), [1, 0, WRITES]);
    let resident = count(&small.usage, "Resident");
    assert!((WRITES..=WRITES + 1).contains(&resident), "what was only read enters later");
    let past = &classes(&["--by-class"])[0].answer;
    assert_eq!(count(&past.usage, "Occupancy"), 0, "it went past");
    assert_eq!(count(&past.requests, "Pass-Through writes"), 1, "the large one");
    assert_eq!(count(&past.bypasses, "class"), 1);
    assert_eq!(count(&past.errors, "Total errors"), 0);
    let blocks = ["Writes to core(s)", "Total to/from cache"];
    assert_eq!(blocks.map(|name| count(&past.blocks, name)), [64, 0]);
    assert!(user.ok(&["stats", "v", "--by-class"]).contains("class 2 (small)"));
    assert_eq!(user.run(&["stats", "v", "--class", "9"]).code, 2);
    let csv = user.ok(&["stats", "v", "--csv"]);
    let [names, values] = csv.lines().collect::<Vec<_>>()[..] else { panic!("two lines: {csv}") };
    assert!(names.starts_with("Occupancy [4KiB Blocks],Occupancy [%],Free [4KiB Blocks],Free [%]"));
    let (names, values): (Vec<_>, Vec<_>) =
        (names.split(',').collect(), values.split(',').collect());
    assert_eq!(names.len(), values.len());
    let at = names.iter().position(|name| *name == "Total requests [Requests]").unwrap();
    assert_eq!(values[at], (2 * WRITES + 2).to_string());
    let by_class = user.ok(&["stats", "v", "--by-class", "--csv"]);
    assert_eq!(by_class.lines().count(), 3, "names and two classes: {by_class}");
}

#[test]
fn reset_answers_with_what_was_counted_and_begins_at_zero() {
    let user = User::new();
    create(&user);
    let _daemon = user.serve("v");
    work(&user, "v");
    for cannot in [["--class", "9"], ["--core", "x"]] {
        assert_eq!(user.run(&[&["stats", "v", "--reset"], &cannot[..]].concat()).code, 2);
    }
    assert_eq!(user.run(&["stats", "v", "--reset", "--tier"]).code, 2);
    let before = user.stats(&["v", "--reset"]).report.cache.unwrap();
    assert_eq!(count(&before.groups.requests, "Total requests"), 2 * WRITES + 2);
    let report = user.stats(&["v"]).report;
    assert_eq!(report.cores[0].array.full_stripe_writes, 0);
    let after = report.cache.unwrap();
    assert_eq!(count(&after.groups.requests, "Total requests"), 0);
    assert_eq!(count(&after.groups.usage, "Dirty"), WRITES, "usage is no counter");
    assert!(after.counted_s < before.counted_s);
    assert!(after.latency.is_empty() && after.write_amplification.is_none());
    assert!(user.ok(&["stats", "v"]).contains("cache device: nothing inserted: 0"));
    work(&user, "v");
    assert_eq!(count(&cache_of(&user).groups.requests, "Write hits"), WRITES);
}
