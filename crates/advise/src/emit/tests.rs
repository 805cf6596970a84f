//! Advice in every mode for every cache, and what it becomes there.

use super::*;
use crate::testing::{advice, situation};
use headpond_cache::Mode;
use proptest::prelude::*;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn flash() -> Situation {
    situation("size = \"64G\"\nmodel = \"nvme-dc-2t\"\n")
}

fn occasion() -> Occasion {
    Occasion { trace: "monday.hptrace".to_owned(), ..Occasion::default() }
}

fn emitted(settings: &str, target: Target) -> String {
    emit(&advice(settings), &flash(), target, &occasion()).text
}

/// The commands alone.
fn commands(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

fn shell(args: &[&str], text: &str) -> Output {
    let mut shell = Command::new("/bin/sh");
    shell.args(args).env("PATH", "/nonexistent").stdin(Stdio::piped());
    let mut shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    shell.wait_with_output().unwrap()
}

fn scripts() -> impl Iterator<Item = Target> {
    Target::ALL.into_iter().map(|(_, it)| it).filter(|it| *it != Target::OpencasIoClass)
}

#[test]
fn each_mode_has_its_name_in_each_cache_or_the_nearest() {
    let of_mode = |mode: Mode| match mode {
        Mode::WriteBack => ["wb", "--cachemode writeback", "echo writeback"],
        Mode::WriteThrough => ["wt", "--cachemode writethrough", "echo writethrough"],
        Mode::WriteAround => ["wa", "--cachemode writethrough", "echo writearound"],
        Mode::WriteInvalidate => ["wa", "--cachemode writethrough", "echo writearound"],
        Mode::WriteOnly => ["wo", "--type writecache", "echo writeback"],
        Mode::PassThrough => unreachable!("it is no advice to use a cache"),
    };
    for mode in Mode::ALL.into_iter().filter(|mode| *mode != Mode::PassThrough) {
        let settings = format!("mode={} cleaning=stripe seq-cutoff=full", mode.name());
        let [casadm, lvm, bcache] = of_mode(mode);
        let casadm = format!("--cache-mode {casadm} --cache-line-size 4\n");
        has(&emitted(&settings, Target::Casadm), &[&casadm]);
        has(&emitted(&settings, Target::Lvmcache), &[lvm]);
        has(
            &emitted(&settings, Target::Bcache),
            &[&format!("{bcache} > \"$SETTINGS/cache_mode\"")],
        );
        let headpond = format!("--set mode={} --set cleaning=stripe", mode.name());
        has(&emitted(&settings, Target::Headpond), &[&headpond]);
        let writecache = emitted(&settings, Target::DmWritecache);
        assert_eq!(
            writecache.contains("writecache s $CORE_DEVICE"),
            mode.is_write_back(),
            "{mode:?}"
        );
        assert_eq!(writecache.contains("this is a read cache"), !mode.is_write_back(), "{mode:?}");
    }
}

#[test]
fn what_differs_from_a_mode_is_said() {
    for (mode, target, words) in [
        ("write-invalidate", Target::Casadm, "mode=write-invalidate, nearly: wa"),
        ("write-around", Target::Bcache, "mode=write-around, nearly: writearound"),
        ("write-only", Target::Bcache, "mode=write-only, nearly: writeback"),
        ("write-back", Target::DmWritecache, "mode=write-back, nearly: what is read"),
        ("write-through", Target::DmWritecache, "not expressed here: mode=write-through"),
    ] {
        has(&emitted(&format!("mode={mode}"), target), &[&format!("# {words}")]);
    }
    has(&emitted("mode=write-invalidate", Target::Bcache), &["# mode=write-invalidate: as"]);
}

#[test]
fn every_script_is_one_for_the_shell_and_stops_where_a_device_is_not_named() {
    for mode in Mode::ALL {
        for cleaning in ["stripe", "alru", "acp", "nop", "ordered"] {
            let settings = format!("mode={} cleaning={cleaning} seq-cutoff=never", mode.name());
            for target in scripts() {
                let text = emitted(&settings, target);
                let checked = shell(&["-n"], &text);
                assert!(checked.status.success(), "{target}: {checked:?}\n{text}");
                let ran = shell(&[], &text);
                let told = String::from_utf8(ran.stderr).unwrap();
                let does_nothing = commands(&text) == ["exit 0"];
                assert_eq!(ran.status.success(), does_nothing, "{target}: {told}\n{text}");
                let asks = ["CACHE_DEVICE", "MEMBERS"].iter().any(|name| told.contains(name));
                assert!(asks || does_nothing, "{target}: {told}");
            }
        }
    }
}

#[test]
fn shellcheck_finds_nothing_in_a_script() {
    let Some(shellcheck) = headpond_testkit::tool("shellcheck") else {
        headpond_testkit::skip!("scripts are checked", "shellcheck is not installed");
    };
    let folder = headpond_testkit::tempdir();
    let settings = [
        "mode=write-back preset=alru-very-aggressive seq-cutoff=1M promotion=nhit line=64K",
        "mode=write-only cleaning=nop bypass=adaptive",
        "mode=write-around strip=32K",
        "mode=pass-through",
    ];
    let mut paths = Vec::new();
    for (number, settings) in settings.iter().enumerate() {
        for target in scripts() {
            let path = folder.path().join(format!("{target}-{number}.sh"));
            std::fs::write(&path, emitted(settings, target)).unwrap();
            paths.push(path);
        }
    }
    let told = Command::new(shellcheck).args(paths).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stdout));
}

#[test]
fn where_no_cache_is_advised_nothing_is_done_and_that_is_said() {
    for target in scripts() {
        let text = emitted("mode=pass-through", target);
        assert_eq!(commands(&text), ["exit 0"], "{target}");
        has(
            &text,
            &["# Do not cache: nothing is set up here.", "# mode=pass-through: there is no"],
        );
    }
    let file = emit(&advice("mode=pass-through"), &flash(), Target::OpencasIoClass, &occasion());
    let csv = "IO class id,IO class name,Eviction priority,Allocation\n0,unclassified,255,0.00\n";
    assert_eq!(file.text, csv);
    assert!(file.remarks.iter().any(|remark| remark.starts_with("do not cache")));
}

#[test]
fn where_what_is_set_does_nearly_as_much_nothing_is_changed_and_that_is_said() {
    use crate::advice::Standing;
    use crate::search::{Expected, Gain};
    let standing = |gain| Some(Standing { expected: Expected::NOTHING, gain });
    let chance = Gain { factor: 1.06, low: 0.93, high: 1.22 };
    let clear = Gain { factor: 1.5, low: 1.4, high: 1.6 };
    for target in scripts() {
        let of = |gain| {
            let advice = Advice { standing: standing(gain), ..advice("mode=write-back") };
            emit(&advice, &flash(), target, &occasion()).text
        };
        for gain in [None, Some(chance)] {
            let text = of(gain);
            let is_own = target == Target::Headpond;
            assert_eq!(commands(&text) == ["exit 0"], is_own, "{target}");
            assert_eq!(text.contains("nothing is changed here."), is_own, "{target}");
        }
        assert_ne!(commands(&of(Some(clear))), ["exit 0"], "{target}");
    }
}

#[test]
fn a_script_says_where_it_is_from_and_what_it_is_not() {
    let text = emitted("mode=write-back", Target::Bcache);
    has(
        &text,
        &[
            "#!/bin/sh\n# Advice of headpond advise, for bcache.\n# Trace: monday.hptrace; goal: throughput.\n",
            "# 2.5x (2.2x to 2.8x) of throughput without a cache is what Headpond's models give",
            "# What bcache makes of these settings was not modelled.",
            "# - a cache of 64 GiB on nvme-dc-2t\n",
        ],
    );
    let from = Occasion { trace: "a\nrm -rf /".to_owned(), ..occasion() };
    let text = emit(&advice("mode=write-back"), &flash(), Target::Bcache, &from).text;
    has(&text, &["# Trace: a?rm -rf /;"]);
}

#[test]
fn open_cas_gets_its_own_parameters_in_its_own_units() {
    let text = emitted(
        "mode=write-back preset=alru-very-aggressive seq-cutoff=4M promotion=nhit line=32K eviction=lru",
        Target::Casadm,
    );
    let id = "--cache-id \"$CACHE_ID\"";
    let set = |rest: &str| format!("casadm --set-param --name {rest}");
    assert_eq!(
        commands(&text)[4..],
        [
            format!(
                "casadm --start-cache --cache-device \"$CACHE_DEVICE\" {id} --cache-mode wb \
                 --cache-line-size 32"
            ),
            format!("casadm --add-core {id} --core-device \"$CORE_DEVICE\" --core-id 1"),
            set(&format!(
                "seq-cutoff {id} --core-id 1 --policy always --threshold 4096 --promotion-count 8"
            )),
            set(&format!("cleaning {id} --policy alru")),
            set(&format!(
                "cleaning-alru {id} --wake-up 0 --staleness-time 1 --flush-max-buffers 8192 \
                 --activity-threshold 0"
            )),
            set(&format!("promotion {id} --policy nhit")),
            set(&format!("promotion-nhit {id} --threshold 3 --trigger 80")),
        ]
    );
    let acp = emitted("mode=write-back preset=acp-very-aggressive line=1M", Target::Casadm);
    let acp_set = set(&format!("cleaning-acp {id} --wake-up 1 --flush-max-buffers 8192"));
    has(&acp, &[&acp_set, "--cache-line-size 64\n", "# line=1M, nearly: 64 KiB is the longest"]);
    let clean = emitted("mode=write-through cleaning=stripe", Target::Casadm);
    assert!(!clean.contains("--name cleaning"), "{clean}");
}

#[test]
fn classes_keep_long_requests_out_where_the_cutoff_does() {
    let header = "IO class id,IO class name,Eviction priority,Allocation\n";
    for (cutoff, lines) in [
        ("1M", "0,unclassified,255,0.00\n1,request_size:le:1048576&done,1,1.00\n"),
        ("never", "0,unclassified,255,1.00\n"),
        ("full", "0,unclassified,255,1.00\n"),
    ] {
        let settings = format!("mode=write-back seq-cutoff={cutoff}");
        let text = emitted(&settings, Target::OpencasIoClass);
        assert_eq!(text, format!("{header}{lines}"), "{cutoff}");
        let unknown = headpond_cache::classes::Unknown::Refuse;
        headpond_cache::classes::Classes::from_csv(&text, unknown).unwrap();
    }
    let text = emitted("mode=write-back preset=lustre", Target::OpencasIoClass);
    has(&text, &["metadata&done", "request_size:le:128000&done"]);
    let past = "mode=write-back classes=past:request_size:ge:8192&io_direction:read";
    has(
        &emitted(past, Target::OpencasIoClass),
        &["0,unclassified,255,1.00\n1,request_size:ge:8192&io_direction:read,255,0.00\n"],
    );
    has(
        &emitted(past, Target::Headpond),
        &["--set 'classes=past:request_size:ge:8192&io_direction:read'"],
    );
    let line = advice(past).settings_line();
    assert_eq!(line, "mode=write-back 'classes=past:request_size:ge:8192&io_direction:read'");
    for (_, target) in Target::ALL {
        let Emission { text, remarks } =
            emit(&advice("mode=write-back classes=none"), &flash(), target, &occasion());
        let told = format!("{text}{}", remarks.join("\n"));
        assert!(!told.contains("not expressed here: classes=none"), "{target}: {told}");
    }
}

#[test]
fn lvm_caches_writes_alone_where_reads_gain_nothing_and_chunks_fit_its_limits() {
    let text = emitted("mode=write-back line=64K", Target::Lvmcache);
    has(
        &text,
        &["--size 64g ", "--type cache --cachemode writeback --cachepolicy smq --chunksize 96k "],
    );
    let small = situation("size = \"1G\"\nmodel = \"nvme-dc-2t\"\n");
    let text = emit(&advice("mode=write-back"), &small, Target::Lvmcache, &occasion()).text;
    has(&text, &["--size 1g ", "--chunksize 32k "]);
    let mut of_writes = advice("mode=write-back cleaning=stripe");
    of_writes.with_advice.read_hit_ratio = 0.1;
    let text = emit(&of_writes, &flash(), Target::Lvmcache, &occasion()).text;
    let settings = "'block_size=4096 high_watermark=40 low_watermark=10 writeback_jobs=1024'";
    has(&text, &[&format!("lvconvert --type writecache --cachesettings {settings} ")]);
}

#[test]
fn bcache_gets_bytes_seconds_and_no_more_per_cent_than_it_takes() {
    let text = emitted(
        "mode=write-back cleaning=stripe seq-cutoff=256K cleaning.stripe.target-percent=60 bypass=adaptive",
        Target::Bcache,
    );
    has(
        &text,
        &[
            "-C \"$CACHE_DEVICE\" -B \"$CORE_DEVICE\"",
            "echo 262144 > \"$SETTINGS/sequential_cutoff\"",
            "# writeback_percent takes 0 to 40: 60 becomes 40.\necho 40 > ",
            "echo 2000 > \"$SETTINGS/cache/congested_read_threshold_us\"",
        ],
    );
    let text = emitted("mode=write-back cleaning=alru seq-cutoff=never", Target::Bcache);
    has(
        &text,
        &[
            "echo 0 > \"$SETTINGS/sequential_cutoff\"",
            "echo 0 > \"$SETTINGS/writeback_percent\"\necho 120 > \"$SETTINGS/writeback_delay\"",
            "echo 0 > \"$SETTINGS/cache/congested_write_threshold_us\"",
        ],
    );
    has(
        &emitted("mode=write-back cleaning=nop", Target::Bcache),
        &["echo 0 > \"$SETTINGS/writeback_running\""],
    );
    has(&emitted("mode=write-back eviction=fifo", Target::Bcache), &["_policy=fifo "]);
}

#[test]
fn a_table_for_dm_writecache_counts_its_parameters() {
    for (settings, parameters) in [
        ("cleaning=stripe", "6 high_watermark 40 low_watermark 10 writeback_jobs 1024"),
        ("cleaning=acp", "6 high_watermark 0 low_watermark 0 writeback_jobs 1024"),
        ("cleaning=nop", "6 high_watermark 100 low_watermark 100 writeback_jobs 1024"),
        (
            "cleaning=alru cleaning.alru.dirty-ratio-threshold-percent=30 cleaning.in-flight-max=64",
            "8 high_watermark 30 low_watermark 30 writeback_jobs 64 max_age 120000",
        ),
    ] {
        let text = emitted(&format!("mode=write-only {settings}"), Target::DmWritecache);
        let table = "\"0 $SECTORS writecache s $CORE_DEVICE $CACHE_DEVICE 4096";
        has(&text, &[&format!("--table {table} {parameters}\"\n")]);
    }
}

#[test]
fn headpond_creates_the_machine_that_was_modelled() {
    let settings =
        "mode=write-back cleaning=stripe seq-cutoff=1M line=64K strip=256K merge-wait-us=off";
    let text = emitted(settings, Target::Headpond);
    has(
        &text,
        &["headpond create \"$VOLUME\" --raid 60 --groups 2 --strip 256K --set merge-wait-us=off \
           --cache \"$CACHE_DEVICE\" --cache-size 64G --line 64K --set mode=write-back \
           --set cleaning=stripe --set seq-cutoff=1M $MEMBERS\n"],
    );
    let memory = situation("size = \"2G\"\n");
    let text = emit(&advice("mode=write-back"), &memory, Target::Headpond, &occasion()).text;
    has(&text, &["--cache ram:2G --line 4K --force --set mode=write-back $MEMBERS"]);
}

#[test]
fn an_array_without_a_cache_is_made_as_it_was_advised() {
    let text = emitted("mode=pass-through strip=32K merge-wait-us=off", Target::Headpond);
    let create = "headpond create \"$VOLUME\" --raid 60 --groups 2 --strip 32K \
                  --set merge-wait-us=off $MEMBERS\n";
    has(&text, &["# Do not cache: the array alone is set up here.", create]);
    let text = emitted("mode=pass-through strip=32K", Target::Casadm);
    assert_eq!(commands(&text), ["exit 0"]);
    has(&text, &["# not expressed here: strip=32K: the array is not the cache's"]);
}

#[test]
fn a_served_volume_is_set_and_one_without_a_cache_gets_one() {
    let with = Occasion {
        volume: Some("hv0".to_owned()),
        volume_has_cache: true,
        cache_device: Some("/dev/my disk".to_owned()),
        ..occasion()
    };
    let settings = advice("mode=write-around seq-cutoff=1M merge-wait-us=off");
    let text = emit(&settings, &flash(), Target::Headpond, &with).text;
    assert_eq!(
        commands(&text),
        ["set -eu", "headpond set hv0 merge-wait-us=off mode=write-around seq-cutoff=1M"]
    );
    let without = Occasion { volume_has_cache: false, ..with.clone() };
    let text = emit(&settings, &flash(), Target::Headpond, &without).text;
    assert_eq!(
        commands(&text)[1..],
        [
            "CACHE_DEVICE='/dev/my disk'",
            "headpond cache attach hv0 \"$CACHE_DEVICE\" --size 64G --line 4K \
             --set mode=write-around --set seq-cutoff=1M",
            "headpond set hv0 merge-wait-us=off",
        ]
    );
    let text = emit(&settings, &flash(), Target::Bcache, &with).text;
    has(&text, &["CACHE_DEVICE=${CACHE_DEVICE:?", "# hv0 has its cache on /dev/my disk: headpond"]);
    let text = emit(&advice("mode=pass-through"), &flash(), Target::Headpond, &with).text;
    assert_eq!(commands(&text), ["exit 0"]);
    has(&text, &["headpond cache detach hv0 --flush"]);
}

#[test]
fn what_the_machine_had_set_before_is_carried_over() {
    let stack = "size = \"64G\"\nmodel = \"nvme-dc-2t\"\npromotion = { policy = 'nhit' }\nseq_cutoff = \"never\"\n";
    let settings = advice("mode=write-back seq-cutoff=1M");
    let text = emit(&settings, &situation(stack), Target::Casadm, &occasion()).text;
    has(&text, &["--policy nhit", "--threshold 1024", "# promotion=nhit: as"]);
    assert!(!text.contains("seq-cutoff=never"), "{text}");
}

#[test]
fn classes_that_the_machine_has_are_written_for_open_cas_and_to_a_file_here() {
    let classes = "[[class]]\\nid = 0\\n[[class]]\\nid = 1\\nwhen = \\\"metadata&done\\\"\\n";
    let stack = format!("size = \"64G\"\nmodel = \"nvme-dc-2t\"\nclasses = \"{classes}\"\n");
    let written =
        |target| emit(&advice("mode=write-back"), &situation(&stack), target, &occasion()).text;
    has(&written(Target::OpencasIoClass), &["\n1,metadata&done,255,1.00\n"]);
    let text = written(Target::Headpond);
    has(
        &text,
        &[
            "# classes=(2 classes): in a file that is written first",
            "\nwhen = \"metadata&done\"\n",
            "\nEND_OF_CLASSES\n",
            "--set mode=write-back --set classes=\"$CLASSES\" $MEMBERS",
        ],
    );
}

/// Keys and values, whoever advises them.
const SETTINGS: [(&str, &[&str]); 24] = [
    ("cleaning", &["stripe", "alru", "acp", "nop", "ordered"]),
    ("preset", &["acp-very-aggressive", "alru-very-aggressive", "lustre"]),
    ("cleaning.full-wait-ms", &["0", "5000"]),
    ("cleaning.in-flight-max", &["1", "65536"]),
    ("cleaning.stripe.target-percent", &["20", "75"]),
    ("cleaning.alru.staleness-s", &["1", "3600"]),
    ("cleaning.alru.wake-up-s", &["0", "3600"]),
    ("cleaning.alru.dirty-ratio-threshold-percent", &["0", "100"]),
    ("cleaning.acp.flush-max-buffers", &["1", "10000"]),
    ("classes", &["none", "lustre", "past:request_size:ge:8192&io_direction:read"]),
    ("seq-cutoff", &["full", "never", "1K", "1500", "4194181K"]),
    ("seq-cutoff.promotion-count", &["1", "65535"]),
    ("promotion", &["always", "nhit"]),
    ("promotion.insertion-threshold", &["2", "1000"]),
    ("eviction", &["s3-fifo", "lru", "arc", "fifo", "adaptive"]),
    ("bypass", &["off", "adaptive"]),
    ("readahead", &["adaptive", "off"]),
    ("readahead.degree-max", &["128K", "64M"]),
    ("line", &["4K", "64K", "1M"]),
    ("strip", &["16K", "256K"]),
    ("merge-wait-us", &["auto", "off", "1000"]),
    ("checkpoint.every", &["0", "1G"]),
    ("discard", &["true", "false"]),
    ("fallback.errors", &["0", "7"]),
];

fn any_settings() -> impl Strategy<Value = String> {
    let mode = proptest::sample::select(Mode::ALL.to_vec());
    let picks = proptest::collection::vec(any::<proptest::sample::Index>(), SETTINGS.len());
    let taken = proptest::collection::vec(any::<bool>(), SETTINGS.len());
    (mode, picks, taken).prop_map(|(mode, picks, taken)| {
        let mut text = format!("mode={}", mode.name());
        let others = SETTINGS.iter().zip(picks).zip(taken).filter(|(_, is_taken)| *is_taken);
        for (((key, values), pick), _) in others {
            text += &format!(" {key}={}", values[pick.index(values.len())]);
        }
        text
    })
}

proptest! {
    #[test]
    fn each_setting_of_any_advice_is_named_once_as_expressed_or_as_left_out(
        settings in any_settings()
    ) {
        for (_, target) in Target::ALL {
            let Emission { text, remarks } = emit(&advice(&settings), &flash(), target, &occasion());
            let lines: Vec<&str> = match remarks.is_empty() {
                true => text.lines().filter_map(|line| line.strip_prefix("# ")).collect(),
                false => remarks.iter().map(String::as_str).collect(),
            };
            for setting in settings.split(' ') {
                let forms = [
                    format!("{setting}: "),
                    format!("{setting}, nearly: "),
                    format!("not expressed here: {setting}: "),
                ];
                let named = lines.iter().filter(|line| forms.iter().any(|form| line.starts_with(form)));
                prop_assert_eq!(named.count(), 1, "{} of {} in\n{}", setting, target, lines.join("\n"));
            }
            prop_assert!(commands(&text).iter().all(|line| !line.contains("NaN")));
        }
    }
}
