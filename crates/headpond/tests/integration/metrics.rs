//! Metrics as monitoring systems read them: the text, the rules and the board.

mod board;
mod listening;
mod rules;
mod scrape;

use crate::common::work::{WRITES, work};
use crate::common::{Daemon, User};
use headpond_testkit::skip;
use scrape::Scrape;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Far more than it should take.
const PATIENCE: Duration = Duration::from_secs(60);
const CLASSES: &str = "[[class]]\nid = 2\nname = \"small \\\"\\\\ \\nones\"\n\
                       when = \"request_size:le:8192\"\n";

fn tree(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Metrics of the document, with their kinds.
fn documented() -> BTreeMap<String, String> {
    let text = fs::read_to_string(tree("docs/metrics.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `headpond_"));
    let row = |row: &str| {
        let cells: Vec<&str> = row.split(" | ").collect();
        (format!("headpond_{}", cells[0].trim_end_matches('`')), cells[1].to_owned())
    };
    let rows: BTreeMap<String, String> = rows.map(row).collect();
    assert!(rows.len() > 80, "{}", rows.len());
    rows
}

/// A volume with much of what there is: RAID 5 with checksums and a stripe journal, a cache with
/// classes, a tier.
fn create_rich(user: &User) {
    let classes = user.path("classes");
    fs::write(&classes, CLASSES).unwrap();
    let mut args: Vec<String> =
        ["create", "v", "--raid", "5", "--zeroed", "--integrity"].map(Into::into).into();
    args.extend((0..3).map(|at| user.file(&format!("{at}.img"), 40 * MIB)));
    args.extend(["--cache".into(), user.file("cache.img", 32 * MIB)]);
    args.extend(["--journal".into(), user.file("journal.img", 40 * MIB)]);
    args.extend(["--tier", "ram:32M", "--heartbeat-ms", "1000"].map(Into::into));
    args.extend(["--set".into(), format!("classes={}", classes.display())]);
    user.ok(&args);
}

fn scrape(user: &User, args: &[&str]) -> Scrape {
    Scrape::of(&user.ok(&[&["metrics"], args].concat()))
}

/// Runs promtool with this input; what it said, where it found something.
fn promtool(program: &Path, args: &[&str], input: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(tree("monitoring"));
    let pipe = || Stdio::piped();
    let mut child = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    // It may end before it has read all of it.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    if output.status.success() { Ok(()) } else { Err(told) }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A scrub of each kind that has ended.
fn scrub(user: &User) {
    user.ok(&["cache", "scrub", "v"]);
    user.ok(&["array", "scrub", "v"]);
    let ended = |status: headpond_api::answers::Status| {
        status.array().unwrap().last_scrub.as_ref().is_some_and(|scrub| scrub.ended_at.is_some())
    };
    until("a scrub", || ended(user.status("v")));
}

/// One of the array that does not end.
fn scrub_slowly(user: &User) {
    user.ok(&["array", "rate", "v", "--min", "16K", "--max", "16K"]);
    user.ok(&["array", "scrub", "v"]);
    until("a scrub in progress", || !user.status("v").jobs.is_empty());
}

fn serve_rich(user: &User) -> Daemon {
    create_rich(user);
    let daemon = user.serve("v");
    work(user, "v");
    daemon
}

#[test]
fn a_scrape_says_what_status_and_stats_say() {
    let user = User::new();
    let _daemon = serve_rich(&user);
    let scrape = scrape(&user, &["v"]);
    let (status, stats) = (user.status("v"), user.stats(&["v"]));
    let of = |name: &str, labels: &[(&str, &str)]| scrape.value(name, labels);
    let requests = |op| of("headpond_core_requests_total", &[("core", "v"), ("op", op)]);
    assert_eq!((requests("read"), requests("write")), (41.0, 41.0));
    let tier = &[("cache", "tier"), ("op", "read")][..];
    let hits = of("headpond_cache_requests_total", &[tier, &[("result", "hit")]].concat());
    assert_eq!(hits, WRITES as f64);
    assert_eq!(of("headpond_cache_requests_total", tier), 41.0);
    let live = status.live_cache().unwrap();
    let cache = &[("cache", "cache")][..];
    assert_eq!(of("headpond_cache_capacity_bytes", cache), live.capacity_bytes as f64);
    assert_eq!(of("headpond_cache_dirty_limit_bytes", cache), live.dirty_bytes_max as f64);
    let written = of("headpond_cache_device_written_bytes_total", cache);
    assert!(written > 0.0 && written <= live.wear.counted.written_bytes as f64, "{written}");
    assert_eq!(of("headpond_array_members", &[("core", "v"), ("state", "active")]), 3.0);
    let small = ("class", "small \"\\ \nones");
    // Hits of the tier do not reach it.
    assert_eq!(of("headpond_class_requests_total", &[small]), 41.0);
    assert_eq!(of("headpond_scrape_success", &[("volume", "v")]), 1.0);
    let took = of("headpond_snapshot_duration_seconds", &[]);
    assert!(took > 0.0);
    let timed = stats.report.tier.unwrap().latency;
    let flushes = timed.iter().find(|it| it.way == headpond_cache::Way::Flush).unwrap();
    let flush = &[("way", "flush")][..];
    assert_eq!(of("headpond_request_duration_seconds_count", flush), flushes.timed as f64);
    let hit = &[("way", "read_hit")][..];
    let counted = of("headpond_request_duration_seconds_count", hit);
    assert_eq!(counted % 32.0, 0.0, "a sample counts for those that it represents");
    user.ok(&["stats", "v", "--reset"]);
    assert_eq!(self::scrape(&user, &["v"]).value("headpond_core_requests_total", &[]), 0.0);
}

#[test]
fn each_metric_of_the_document_is_in_a_scrape_and_each_of_a_scrape_in_the_document() {
    /// What this machine cannot be brought to, or not at once.
    const ELSEWHERE: [&str; 8] = [
        // A kernel with ublk.
        "headpond_block_device_requests_total",
        "headpond_block_device_request_bytes_total",
        "headpond_block_device_errors_total",
        // A volume that loads a long log.
        "headpond_volume_loaded_ratio",
        // Members that are not in memory.
        "headpond_member_typical_read_seconds",
        // Written once a run, by scrubs of damaged data.
        "headpond_array_last_scrub_unexplained_bytes",
        "headpond_array_last_scrub_unreadable_stripes",
        "headpond_array_last_scrub_repaired_bytes",
    ];
    let user = User::new();
    let _daemon = serve_rich(&user);
    scrub(&user);
    scrub_slowly(&user);
    let device = user.file("plain.img", 16 * MIB);
    let args = ["create", "s", "--raid", "0", &device, "--cache", &user.file("s.img", 32 * MIB)];
    user.ok(&args);
    let documented = documented();
    let scrape = scrape(&user, &[]);
    assert_eq!(
        scrape.value("headpond_volume_state", &[("volume", "s"), ("state", "stopped")]),
        1.0
    );
    for (name, kind) in &scrape.kinds {
        assert_eq!(documented.get(name), Some(kind), "{name}");
    }
    for name in documented.keys().filter(|name| !ELSEWHERE.contains(&name.as_str())) {
        assert!(scrape.kinds.contains_key(name), "{name} is documented and not scraped");
    }
}

#[test]
fn the_text_is_valid_for_prometheus() {
    let name = "the_text_is_valid_for_prometheus";
    let Some(program) = headpond_testkit::tool("promtool") else { skip!(name, "no promtool") };
    let user = User::new();
    let _daemon = serve_rich(&user);
    scrub(&user);
    scrub_slowly(&user);
    let text = user.ok(&["metrics"]);
    promtool(&program, &["check", "metrics"], &text).unwrap();
    let broken = text.replacen("\"} 0\n", "\" 0\n", 1);
    assert!(promtool(&program, &["check", "metrics"], &broken).is_err(), "it finds mistakes");
}

#[test]
fn one_scrape_is_of_one_moment() {
    let user = User::new();
    let _daemon = serve_rich(&user);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                work(&user, "v");
            }
        });
        for _ in 0..20 {
            let scrape = scrape(&user, &["v"]);
            for cache in ["cache", "tier"] {
                let of = [("cache", cache)];
                let past = [("cache", cache), ("result", "pass_through")];
                assert_eq!(
                    scrape.value("headpond_cache_requests_total", &past),
                    scrape.value("headpond_cache_bypassed_requests_total", &of)
                );
            }
            scrape.check_histograms();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        worker.join().unwrap();
    });
}

#[test]
fn hostile_names_of_devices_stay_in_their_labels() {
    let user = User::new();
    let names = ["a\"} 1\n# HELP headpond_x y.img", "b\\\",c=\"\u{1b}[2J.img", "c\n\n.img"];
    let [one, two, cache] = names.map(|name| user.file(name, 32 * MIB));
    user.ok(&["create", "v", "--raid", "1", "--zeroed", &one, &two, "--cache", &cache]);
    let _daemon = user.serve("v");
    let text = user.ok(&["metrics", "v"]);
    let scrape = Scrape::of(&text);
    assert!(!scrape.kinds.contains_key("headpond_x"), "{text}");
    for (role, device) in [("0", &one), ("1", &two)] {
        let device = device.replace('\u{1b}', "\u{fffd}");
        let labels = [("member", role), ("device", &*device)];
        assert_eq!(scrape.value("headpond_member_info", &labels), 1.0, "{text}");
    }
    assert_eq!(scrape.value("headpond_cache_info", &[("device", &cache)]), 1.0, "{text}");
    if let Some(program) = headpond_testkit::tool("promtool") {
        promtool(&program, &["check", "metrics"], &text).unwrap();
    }
}

#[test]
fn a_volume_without_a_daemon_has_its_state_and_alerts() {
    let user = User::new();
    let daemon = serve_rich(&user);
    daemon.kill();
    let device = user.file("plain.img", 16 * MIB);
    user.ok(&["create", "w", "--raid", "0", &device]);
    let served = user.serve("w");
    fs::write(user.path("x.toml"), "no description").unwrap();
    let ended = user.run(&["metrics"]);
    assert_ne!(ended.code, 0, "one is not known");
    assert!(ended.err.contains("no metrics of x"), "{}", ended.err);
    let scrape = Scrape::of(&ended.out);
    let of = |name: &str, volume: &str, label: &str, value: &str| {
        scrape.value(name, &[("volume", volume), (label, value)])
    };
    assert_eq!(of("headpond_alerts", "v", "kind", "daemon_ended"), 1.0);
    assert_eq!(of("headpond_volume_state", "v", "state", "stopped"), 1.0);
    assert_eq!(of("headpond_volume_state", "w", "state", "serving"), 1.0);
    assert_eq!(scrape.value("headpond_scrape_success", &[("volume", "x")]), 0.0);
    let ended = user.run(&["metrics", "nothing"]);
    assert!(ended.code != 0 && ended.err.contains("no volume nothing"), "{}", ended.err);
    drop(served);
}

#[test]
fn a_file_for_a_collector_is_replaced_as_a_whole() {
    use std::os::unix::fs::PermissionsExt;
    let user = User::new();
    let device = user.file("plain.img", 16 * MIB);
    user.ok(&["create", "v", "--raid", "0", &device]);
    let path = user.path("headpond.prom");
    let shown = path.display().to_string();
    for _ in 0..2 {
        assert_eq!(user.ok(&["metrics", "--output", &shown]), "");
        let scrape = Scrape::of(&fs::read_to_string(&path).unwrap());
        assert_eq!(scrape.value("headpond_volume_state", &[("state", "stopped")]), 1.0);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    }
    let missing = user.path("missing/headpond.prom").display().to_string();
    assert_ne!(user.run(&["metrics", "--output", &missing]).code, 0);
}
