//! `headpond array plan` as a user meets it.

use crate::common::User;
use headpond_testkit::{shared, skip};

const TWELVE: [&str; 8] =
    ["array", "plan", "--level", "6", "--members", "12", "--drive", "hdd-14t"];

#[test]
fn an_array_is_planned_by_formulas() {
    let user = User::new();
    let text = user.ok(&TWELVE);
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{start} in {text}")).to_owned()
    };
    assert!(line("random write IOPS ").ends_with(" 534"), "{text}");
    assert!(line("sequential write MB/s ").ends_with(" 2,680"), "{text}");
    assert!(line("capacity").ends_with("127 TiB"), "{text}");
    assert!(line("rebuild, idle").ends_with(" 19.5 h"), "{text}");
    assert!(line("rebuild, at the minimum rate under client load").ends_with(" 370.9 h"), "{text}");
    assert!(line("from a failure to full redundancy, idle").ends_with(" 43.5 h (formula)"));
    let json = user.json(&[&TWELVE[..], &["--strip", "128K", "--depth", "1,8", "--json"]].concat());
    let array = &json["arrays"][0];
    let conditions = ["healthy", "uninitialised", "degraded", "rebuilding"];
    for (expected, condition) in array["expected"].as_array().unwrap().iter().zip(conditions) {
        assert_eq!(expected["condition"], condition);
        assert_eq!(expected["by_depth"][1]["depth"], 8);
    }
    assert_eq!(array["expected"][0]["random_write_iops"], 534.0);
    assert_eq!(array["expected"][1]["random_write_accesses"]["reads"], 9.0);
    assert_eq!(array["strip_bytes"], 128 << 10);
    assert!(array["simulated"].is_null(), "nobody asked");
}

#[test]
fn the_forty_drives_of_the_tables_stand_side_by_side_grouped_and_declustered() {
    let user = User::new();
    let preset = ["array", "plan", "--preset", "reference-40", "--drive", "hdd-14t"];
    let text = user.ok(&preset);
    assert!(text.contains("RAID 60 4x10  RAID 6 8+2/40, 2 spares"), "{text}");
    let json = user.json(&[&preset[..], &["--json"]].concat());
    let [grouped, spread] = [0, 1].map(|index| &json["arrays"][index]);
    let hours = |array: &serde_json::Value, field: &str| array[field].as_f64().unwrap();
    let ratio = hours(grouped, "rebuild_idle_hours") / hours(spread, "spread_rebuild_idle_hours");
    assert!((4.5..4.6).contains(&ratio), "{ratio}");
    let wide = [&TWELVE[..6], &["--width", "11", "--distributed-spares", "2"]].concat();
    let refused = user.run(&[&wide[..], &["--drive", "hdd-14t"]].concat());
    assert!(refused.code == 2 && refused.err.contains("need 13 to 255"), "{}", refused.err);
}

#[test]
fn layouts_are_compared_and_those_that_cannot_be_are_refused() {
    let user = User::new();
    let all = ["array", "plan", "--compare", "--members", "8", "--drive", "hdd-14t"];
    let page = user.path("arrays.html");
    let chart = ["--html", page.to_str().unwrap()];
    let text = user.ok(&[&all[..], &chart].concat());
    let head = text.lines().find(|line| line.contains("RAID 60")).expect("a head").to_owned();
    for name in ["RAID 0", "RAID 1", "RAID 10 4x2", "RAID 5", "RAID 6", "RAID 50 2x4"] {
        assert!(head.contains(name), "{name}: {head}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.matches("<svg").count() == 8 && page.contains("RAID 60 2x4"));
    assert!(!page.contains("src=") && !page.contains("@import"), "needs nothing else");
    let three = [&all[..4], &["3"], &all[5..], &["--json"]].concat();
    let fitting = user.json(&three);
    assert_eq!(fitting["arrays"].as_array().unwrap().len(), 3, "0, 1 and 5");
    let few = ["array", "plan", "--level", "10,60", "--members", "16", "--groups", "4"];
    let text = user.ok(&[&few[..], &["--drive", "hdd-14t"]].concat());
    assert!(text.contains("RAID 10 8x2  RAID 60 4x4"), "{text}");
    let none = user.run(&[&three[..], &["--strip", "3000"]].concat());
    assert!(none.code == 2 && none.err.contains("power of two"), "{}", none.err);
    for (change, says) in [
        (["--members", "3"], "RAID 6 fits --members 4"),
        (["--simulate-rebuild", "1K"], "--simulate-rebuild 1K: at least 16M"),
        (["--drive", "floppy"], "there are hdd-14t, hdd-7k2-4t"),
        (["--drive", "net-10g"], "kind network"),
        (["--strip", "3000"], "power of two"),
        (["--afr", "100"], "below 100"),
    ] {
        let mut args = TWELVE.to_vec();
        match args.iter().position(|arg| *arg == change[0]) {
            Some(at) => args[at + 1] = change[1],
            None => args.extend(change),
        }
        let ended = user.run(&args);
        assert_eq!(ended.code, 2, "{change:?}: {}", ended.err);
        assert!(ended.err.contains(says), "{change:?}: {}", ended.err);
    }
}

#[test]
fn an_older_drive_and_a_slower_rebuild_lose_more() {
    let user = User::new();
    let loss = |more: &[&str]| {
        let json = user.json(&[&TWELVE[..], &["--json"], more].concat());
        json["arrays"][0]["safety"]["loss_in_a_year"].as_f64().unwrap()
    };
    let usual = loss(&[]);
    for more in [["--afr", "5"], ["--ure", "1e14"], ["--rate-min", "1M"], ["--replace", "240"]] {
        assert!(loss(&more) > 1.2 * usual, "{more:?}");
    }
    assert!(loss(&["--replace", "0"]) < usual, "a spare is in place");
    let cached = [&TWELVE[..], &["--cache", "nvme-dc-2t"]].concat();
    let json = user.json(&[&cached[..], &["--json"]].concat());
    let losses: Vec<f64> = json["arrays"][0]["safety_with_cache"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["loss_in_a_year"].as_f64().unwrap())
        .collect();
    let [through, one, two] = losses[..] else { panic!("{losses:?}") };
    assert!(one > two && two > through && through == usual, "{losses:?} {usual}");
    assert!(user.ok(&cached).contains("behind a write-back cache on two devices"));
}

#[test]
fn a_cache_makes_what_it_holds_fast_and_says_how_much_that_is() {
    let user = User::new();
    let sheet = user.path("fast.toml");
    let fast = include_str!("../../../whatif/drives/hdd-14t.toml")
        .replace("random_read_iops = 197", "random_read_iops = 300_000")
        .replace("lone_read_ms = 11.7", "lone_read_ms = 0.1");
    std::fs::write(&sheet, fast).unwrap();
    let cached = [&TWELVE[..], &["--cache", sheet.to_str().unwrap()]].concat();
    let reads = |more: &[&str]| {
        let json = user.json(&[&cached[..], more, &["--json", "--depth", "1"]].concat());
        let speeds = &json["arrays"][0]["behind_cache"][0];
        assert_eq!(json["assumptions"]["cache"]["hit_share"], speeds["read_hit_share"]);
        ["read_hit_share", "random_read_iops"].map(|field| speeds[field].as_f64().unwrap())
    };
    let [usual, few, none] = [&[][..], &["--hit-ratio", "50"], &["--hit-ratio", "0"]].map(&reads);
    assert_eq!([usual[0], few[0], none[0]], [0.8, 0.5, 0.0]);
    assert!(usual[1] > 2.0 * few[1] && few[1] > 1.8 * none[1], "{usual:?} {few:?} {none:?}");
    let set = reads(&["--cache-size", "100G", "--working-set", "200G"]);
    assert_eq!(set, few, "half of the working set fits");
    let all = reads(&["--cache-size", "100G", "--working-set", "50G"]);
    assert!(all[0] == 1.0 && all[1] > 5000.0, "{all:?}");
    let text = user.ok(&cached);
    assert!(text.contains("hit ratio of random requests 80 %"), "{text}");
    for (more, says) in [
        (&["--cache-size", "30T"][..], "fast.toml has 64M to"),
        (&["--cache-size", "1M"], "fast.toml has 64M to"),
        (&["--working-set", "0"], "nothing is asked for"),
        (&["--hit-ratio", "101"], "a percentage from 0 to 100"),
        (&["--hit-ratio", "50", "--working-set", "1T"], "cannot be used with"),
    ] {
        let refused = user.run(&[&cached[..], more].concat());
        assert!(refused.code == 2 && refused.err.contains(says), "{more:?}: {}", refused.err);
    }
    let without = user.run(&[&TWELVE[..], &["--hit-ratio", "50"]].concat());
    assert!(without.code == 2 && without.err.contains("--cache"), "{}", without.err);
}

#[test]
fn a_simulated_rebuild_takes_the_place_of_the_formula_in_the_probability_of_loss() {
    let user = User::new();
    let four = ["array", "plan", "--level", "5", "--members", "4", "--drive", "nvme-dc-2t"];
    let rebuilt = [&four[..], &["--simulate-rebuild", "32M"]].concat();
    let safety = |args: &[&str]| {
        let json = user.json(&[args, &["--json", "--replace", "0"]].concat());
        json["arrays"][0]["safety_idle"].clone()
    };
    let (formula, simulated) = (safety(&four), safety(&rebuilt));
    assert_eq!([&formula["repair_from"], &simulated["repair_from"]], ["formula", "simulation"]);
    let longer =
        |field: &str| simulated[field].as_f64().unwrap() / formula[field].as_f64().unwrap();
    let (hours, years) = (longer("repair_hours"), longer("mttdl_of_whole_drives_years"));
    assert!((hours - 1.0).abs() > 0.001 && (hours * years - 1.0).abs() < 0.01, "{hours} {years}");
    assert!(user.ok(&rebuilt).contains("h (simulation)"));
    assert!(user.ok(&four).contains("h (formula)"));
}

#[test]
fn the_published_expectations_are_printed_beside_the_formulas() {
    let Some(folder) = shared("reference") else {
        skip!("the_published_expectations_are_printed_beside_the_formulas", "no published tables");
    };
    let user = User::new();
    let text = user.ok(&["array", "plan", "--reference", folder.to_str().unwrap()]);
    assert!(text.contains("36 of 36 cells match the formulas"), "{text}");
    let missing = user.run(&["array", "plan", "--reference", "/nowhere"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("/nowhere/hdd_raid_expected.csv"), "{}", missing.err);
}

#[test]
fn drives_that_differ_are_planned_with_what_a_plain_stripe_would_lose() {
    let user = User::new();
    let two = ["array", "plan", "--level", "0", "--drive", "hdd-14t"];
    let text = user.ok(&[&two[..], &["--drive", "nvme-dc-2t"]].concat());
    let lost = text.lines().last().expect("a sentence").to_owned();
    assert!(lost.starts_with("A plain stripe loses ") && !lost.contains(" 0 %"), "{text}");
    let json = user.json(&[&two[..5], &["hdd-14t,nvme-dc-2t", "--json"]].concat());
    let [plain, capacity, speed] = [0, 1, 2].map(|index| &json["striping"][index]);
    assert_eq!(plain["weights"], serde_json::json!([1, 1]));
    let more = |field: &str, way: &serde_json::Value| {
        way[field].as_f64().unwrap() / plain[field].as_f64().unwrap()
    };
    assert!(more("capacity_bytes", capacity) > 3.5, "{json}");
    assert!(more("sequential_read_mb_per_s", speed) > 5.0, "{json}");
    for (change, says) in [
        (&["--level", "6", "--drive", "hdd-14t,nvme-dc-2t"][..], "for --level 0"),
        (&["--level", "0", "--drive", "hdd-14t,nvme-dc-2t", "--members", "2"], "each --drive"),
        (&["--level", "0", "--drive", "hdd-14t"], "how many such drives"),
    ] {
        let refused = user.run(&[&two[..2], change].concat());
        assert!(refused.code == 2 && refused.err.contains(says), "{}", refused.err);
    }
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn the_simulator_stands_beside_the_formulas() {
        let user = User::new();
        let args = [
            "array",
            "plan",
            "--level",
            "5",
            "--members",
            "4",
            "--drive",
            "nvme-dc-2t",
            "--simulate",
        ];
        let args = [&args[..], &["--depth", "8"]].concat();
        let text = user.ok(&args);
        // Four healthy, one uninitialised, four with a drive lost, four while it is rebuilt.
        assert_eq!(
            text.lines().filter(|line| line.starts_with("  simulated")).count(),
            13,
            "{text}"
        );
        assert!(text.contains("rebuild under random writes, depth 8"), "{text}");
        let json = user.json(&[&args[..], &["--json"]].concat());
        let array = &json["arrays"][0];
        for speed in ["random_read_iops", "random_write_iops"] {
            let of = |it: &serde_json::Value| it["by_depth"][0][speed].as_f64().unwrap();
            for condition in 0..4 {
                let [expected, simulated] =
                    ["expected", "simulated"].map(|which| &array[which][condition]);
                assert_eq!(expected["condition"], simulated["condition"]);
                let ratio = of(expected) / of(simulated);
                assert!((0.3..3.0).contains(&ratio), "{condition} {speed}: {array}");
            }
        }
    }

    #[test]
    fn the_published_expectations_are_simulated() {
        let Some(folder) = shared("reference") else {
            skip!("the_published_expectations_are_simulated", "no published tables");
        };
        let args =
            ["array", "plan", "--reference", folder.to_str().unwrap(), "--simulate", "--json"];
        let cells = User::new().json(&args);
        let simulated = cells.as_array().unwrap().iter().filter_map(|it| it["simulated"].as_f64());
        assert!(
            simulated.clone().count() >= 31 && simulated.clone().all(|it| it > 100.0),
            "{cells}"
        );
    }
}
