//! The model against published cells: the direction of every comparison, and its size roughly.

use super::*;
use crate::facts::{CacheFacts, CoreFacts, CoreLevel, MemberFacts};
use crate::settings::{CacheMode, Cleaning};

const TERABYTE: f64 = 1e12;

fn array() -> CoreFacts {
    CoreFacts::array(CoreLevel::Raid60, 40, 4, 64 << 10, MemberFacts::DISK_7200)
}

fn rows(name: &str) -> Option<Vec<Vec<String>>> {
    let path = headpond_testkit::shared(format!("reference/{name}.csv"))?;
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    Some(lines.map(|line| line.split(',').map(str::to_owned).collect()).collect())
}

fn cached(load: &Load, core: &CoreFacts) -> f64 {
    let cache = CacheFacts::ram(29_200_000_000);
    predict_cached(load, core, &cache, CacheMode::WriteBack, Cleaning::Stripe).sustained
}

#[test]
fn random_writes_of_the_array_are_met_within_a_quarter() {
    let Some(rows) = rows("raid60_random_write") else {
        headpond_testkit::skip!("random writes are met", "the reference is absent");
    };
    for row in rows {
        let core = CoreFacts { strip_bytes: row[0].parse::<u64>().unwrap() << 10, ..array() };
        for (column, depth) in [32.0, 16.0, 8.0, 4.0, 1.0].into_iter().enumerate() {
            let published: f64 = row[column + 1].parse().unwrap();
            let load = Load::random(0.0, 4096, depth, 118.0 * TERABYTE);
            let predicted = CoreModel::new(&core).requests_per_second(&load);
            let ratio = predicted / published;
            assert!((0.75..1.25).contains(&ratio), "depth {depth}: {predicted} for {published}");
        }
    }
}

#[test]
fn cache_pays_for_every_mix_as_published() {
    let Some(rows) = rows("raid60_mixed_cached") else {
        headpond_testkit::skip!("the cache pays for every mix", "the reference is absent");
    };
    for row in rows.iter().filter(|row| row[0] == "none") {
        let share: f64 = row[3].parse::<f64>().unwrap() / 100.0;
        let published = row[4].parse::<f64>().unwrap() + row[5].parse::<f64>().unwrap();
        let load = Load::random(share, 4096, 32.0, 118.0 * TERABYTE);
        let plain = CoreModel::new(&array()).requests_per_second(&load);
        assert!((0.75..1.33).contains(&(plain / published)), "{share}: {plain} for {published}");
        assert!(cached(&load, &array()) > 1.2 * plain, "{share}");
    }
}

#[test]
fn sequential_cells_are_won_and_lost_as_published() {
    let plain = rows("raid60_sequential_write");
    let (Some(plain), Some(behind)) = (plain, rows("raid60_sequential_write_cached")) else {
        headpond_testkit::skip!("sequential cells agree", "the reference is absent");
    };
    let core = CoreFacts { merges_sequential: true, ..array() };
    let (mut agree, mut cells) = (0, 0);
    for (plain, behind) in plain.iter().zip(&behind) {
        let bytes = plain[0].parse::<u64>().unwrap() << 10;
        for (column, depth) in [1.0, 4.0, 8.0, 16.0, 32.0].into_iter().enumerate() {
            let value = |row: &[String]| row[column + 1].parse::<f64>().unwrap();
            let load = Load::sequential(0.0, bytes, depth);
            let predicted = CoreModel::new(&core).requests_per_second(&load);
            let wins = value(behind) > value(plain);
            cells += 1;
            agree += u32::from(wins == (cached(&load, &core) > predicted));
        }
    }
    assert!(agree + 2 >= cells, "{agree} of {cells} cells");
}

#[test]
fn more_depth_is_never_slower_without_a_cache() {
    for member in [MemberFacts::DISK_7200, MemberFacts::SATA_SSD, MemberFacts::NVME] {
        for level in [CoreLevel::Raid0, CoreLevel::Raid10, CoreLevel::Raid6] {
            let core = CoreFacts::array(level, 8, 1, 64 << 10, member);
            for share in [0.0, 0.5, 1.0] {
                let rate = |depth| {
                    let load = Load::random(share, 4096, depth, TERABYTE);
                    CoreModel::new(&core).requests_per_second(&load)
                };
                let rates: Vec<f64> = (0..7).map(|n| rate(f64::from(1 << n))).collect();
                let rises = rates.windows(2).all(|pair| pair[1] >= pair[0] * 0.999);
                assert!(rises && rates[0] > 0.0, "{level} {share}: {rates:?}");
            }
        }
    }
}

#[test]
fn published_expectation_of_small_arrays_is_met_within_a_third() {
    // From one drive: n reads, n/2 mirrored writes, at depth.
    let one = MemberFacts { random_iops: 82.0, ..MemberFacts::DISK_7200 };
    let rate = |core: &CoreFacts, share, depth| {
        CoreModel::new(core).requests_per_second(&Load::random(share, 4096, depth, TERABYTE))
    };
    let single = CoreFacts::single(one);
    let four = CoreFacts::array(CoreLevel::Raid10, 4, 1, 64 << 10, one);
    for (share, factor) in [(1.0, 4.0), (0.0, 2.0)] {
        let ratio = rate(&four, share, 128.0) / rate(&single, share, 128.0) / factor;
        assert!((0.67..1.34).contains(&ratio), "{share}: {ratio}");
    }
}
