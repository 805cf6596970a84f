//! What serving costs, against the measurements that the costs follow from.

use headpond_testkit::{shared, skip, tempdir};
use headpond_whatif::{EngineCost, EngineModel, Experiment, Load, Stack, job, simulate};

/// The cache is memory that costs nothing itself: its copying is in the engine's file.
fn mb_per_s(engine: &str, block_kib: u64, depth: u32) -> f64 {
    let stack = format!(
        "name = \"fill\"\nengine = \"{engine}\"\n[core]\nraid = 0\ndrive = \"hdd-7k2-4t\"\n\
         drives = 2\n[cache]\nsize = \"2G\"\ncleaning = \"nop\"\nmb_per_s = 1e6\n"
    );
    let jobs = format!(
        "[fill]\nrw=randwrite\nbs={block_kib}k\niodepth={depth}\nruntime=20ms\nramp_time=2ms\n\
         time_based\n"
    );
    let load = Load::Jobs(job::parse(&jobs).unwrap());
    let stack = Stack::parse(&stack).unwrap();
    let outcome = simulate(&Experiment { stack, load, seed: 1 }).unwrap();
    assert!(outcome.engine.expect("the stack names one").busy > 0.5);
    outcome.jobs[0].measured.write.mb_per_s
}

/// What was measured, block size, depth, MB/s.
fn rows() -> Option<Vec<(String, u64, u32, f64)>> {
    let text = std::fs::read_to_string(shared("reference/opencas_limits.csv")?).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let depths: Vec<u32> =
        lines.next()?.split(',').skip(2).map(|depth| depth[2..].parse().unwrap()).collect();
    let cells = lines.flat_map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let (what, block) = (cells[0].to_owned(), cells[1].parse::<u64>().unwrap());
        let figures = cells[2..].iter().zip(&depths).filter(|(cell, _)| !cell.is_empty());
        let row = |(cell, depth): (&&str, &u32)| {
            (what.clone(), block, *depth, cell.parse::<f64>().unwrap())
        };
        figures.map(row).collect::<Vec<_>>()
    });
    Some(cells.collect())
}

#[test]
fn open_cas_is_as_fast_as_it_was_measured_at_every_depth_and_block_size() {
    let Some(rows) = rows() else {
        skip!("open_cas_is_as_fast_as_it_was_measured", "opencas_limits.csv is absent");
    };
    let dir = tempdir();
    let bare = dir.path().join("ram-disk.toml");
    let whole = EngineModel::find("opencas-22.06").unwrap();
    let alone = EngineModel { engine: EngineCost::default(), ..whole };
    std::fs::write(&bare, toml::to_string(&alone).unwrap()).unwrap();
    let mut errors = Vec::new();
    for (what, block, depth, published) in rows {
        let engine = if what == "fill" { "opencas-22.06" } else { bare.to_str().unwrap() };
        let simulated = mb_per_s(engine, block, depth);
        let error = simulated / published - 1.0;
        // The engine's file says of these two why they are not met.
        let is_odd = what == "fill" && block == 32 && (depth == 4 || depth == 8);
        let most = if is_odd { 0.11 } else { 0.055 };
        assert!(error.abs() < most, "{what} {block}K depth {depth}: {published} {simulated:.0}");
        errors.push(error.abs());
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() == 40 && errors[20] < 0.025, "{errors:?}");
}

#[test]
fn one_core_is_shared_and_a_handover_is_not() {
    let alone = mb_per_s("opencas-22.06", 4, 1);
    let shared = mb_per_s("opencas-22.06", 4, 32);
    let more = mb_per_s("opencas-22.06", 4, 64);
    assert!(shared / alone > 1.15 && shared / alone < 1.3, "{alone} {shared}");
    assert!((more / shared - 1.0).abs() < 0.01, "{shared} {more}");
}

#[test]
fn the_cleaner_does_not_pass_its_ceiling() {
    let cleaned = |engine: &str| {
        let stack = format!(
            "name = \"clean\"\n{engine}\n[core]\nraid = 0\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n\
             [cache]\nsize = \"128M\"\nmb_per_s = 1e6\nseq_cutoff = \"never\"\n"
        );
        let jobs = "[seq]\nrw=write\nbs=1m\niodepth=16\nruntime=1\nramp_time=1\ntime_based\n";
        let load = Load::Jobs(job::parse(jobs).unwrap());
        let stack = Stack::parse(&stack).unwrap();
        let outcome = simulate(&Experiment { stack, load, seed: 1 }).unwrap();
        outcome.cache.expect("there is one").cleaned_per_s * 4096.0 / 1e6
    };
    let dir = tempdir();
    let file = dir.path().join("slow.toml");
    let text = "name = \"slow\"\n[load]\nper_request_us = 0.0\nper_kib_us = 0.0\n[engine]\n\
                per_request_us = 0.0\nper_kib_us = 0.0\nhandover_us = 0.0\n[cleaner]\n\
                mb_per_s = 200.0\n";
    std::fs::write(&file, text).unwrap();
    let (free, held) = (cleaned(""), cleaned(&format!("engine = {file:?}")));
    assert!(free > 400.0, "{free}");
    assert!((180.0..205.0).contains(&held), "{held}");
}

/// An engine whose cleaner is slow, and which costs nothing else.
const SLOW_CLEANER: &str = "name = \"slow\"\n[load]\nper_request_us = 0.0\nper_kib_us = 0.0\n\
    [engine]\nper_request_us = 0.0\nper_kib_us = 0.0\nhandover_us = 0.0\n[cleaner]\n\
    mb_per_s = 20.0\n";

#[test]
fn what_a_cleaner_cannot_do_holds_no_client_back_whose_writes_pass_the_cache() {
    let dir = tempdir();
    let file = dir.path().join("slow.toml");
    std::fs::write(&file, SLOW_CLEANER).unwrap();
    let written = |head: &str, cache: &str, rw: &str| {
        let stack = format!(
            "name = \"past\"\n{head}\n[core]\nraid = 0\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n{cache}"
        );
        let jobs = format!("[w]\nrw={rw}\nbs=64k\niodepth=8\nruntime=1\nramp_time=1\ntime_based\n");
        let load = Load::Jobs(job::parse(&jobs).unwrap());
        let stack = Stack::parse(&stack).unwrap();
        let outcome = simulate(&Experiment { stack, load, seed: 1 }).unwrap();
        outcome.jobs[0].measured.write.mb_per_s
    };
    let cache =
        |mode: &str| format!("[cache]\nsize = \"128M\"\nmb_per_s = 1e6\nmode = \"{mode}\"\n");
    let slow = format!("engine = {file:?}");
    for rw in ["write", "randwrite"] {
        let alone = written("", "", rw);
        assert!(alone > 25.0, "{rw}: {alone}");
        for (what, it) in [
            ("no cache", written(&slow, "", rw)),
            ("pass-through", written(&slow, &cache("pass-through"), rw)),
        ] {
            assert!((it / alone - 1.0).abs() < 0.05, "{rw}, {what}: {it:.1} of {alone:.1}");
        }
        let through = written("", &cache("write-through"), rw);
        let held = written(&slow, &cache("write-through"), rw);
        assert!((held / through - 1.0).abs() < 0.05, "{rw}: {held:.1} of {through:.1}");
    }
}
