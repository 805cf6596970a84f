//! `headpond stats`.

use crate::args::StatsArgs;
use crate::client::Client;
use crate::outcome::Exit;
use crate::place::Places;
use anyhow::Result;
use headpond_advise::render::{Align, Table, count, percent, size};
use serde_json::Value;
use std::collections::BTreeMap;

/// Shows what a served volume has done since it was opened.
///
/// # Errors
/// Where it is not served.
pub fn run(places: &Places, args: &StatsArgs) -> Result<Exit> {
    let stats: Value = Client::of(places, &args.name)?.get("/v1/stats")?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&stats)?);
        return Ok(Exit::Ok);
    }
    let sums = Sums(stats["slices"].as_array().map_or(&[][..], Vec::as_slice));
    if sums.0.is_empty() {
        println!("no cache");
    } else {
        print!("{}", requests(&sums).render());
        print_classes(&sums);
        print_bypasses(&sums);
        print_cache(&sums);
    }
    print_array(&stats["array"]);
    Ok(Exit::Ok)
}

/// Figures added up over the slices.
struct Sums<'a>(&'a [Value]);

impl Sums<'_> {
    fn of(&self, pointer: &str) -> u64 {
        self.0.iter().filter_map(|slice| slice.pointer(pointer)?.as_u64()).sum()
    }
}

fn requests(sums: &Sums) -> Table {
    let right = |name| (name, Align::Right);
    let mut table = Table::new([
        ("requests", Align::Left),
        right("all"),
        right("hits"),
        right("partial"),
        right("misses"),
        right("past the cache"),
        right("hit ratio"),
        right("bytes"),
    ]);
    for direction in ["read", "write"] {
        let of = |field: &str| sums.of(&format!("/counters/{direction}/{field}"));
        let (hits, all) = (of("hits"), of("requests"));
        table.row([
            direction.to_owned(),
            count(all),
            count(hits),
            count(of("partial_hits")),
            count(of("misses")),
            count(of("pass_through")),
            percent(hits as f64 / all.max(1) as f64),
            size(of("bytes")),
        ]);
    }
    table
}

/// The classes that have had requests, where there are others than class 0.
fn print_classes(sums: &Sums) {
    let mut by_class: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    let all = sums.0.iter().filter_map(|slice| slice["classes"].as_array()).flatten();
    for class in all {
        by_class.entry(class["id"].as_u64().unwrap_or(0)).or_default().push(class.clone());
    }
    if by_class.keys().all(|id| *id == 0) {
        return;
    }
    let right = |name| (name, Align::Right);
    let mut table = Table::new([
        right("class"),
        right("reads"),
        right("read hits"),
        right("writes"),
        right("write hits"),
        right("past the cache"),
        right("bytes"),
    ]);
    for (id, slices) in by_class {
        let of = |pointer: &str| Sums(&slices).of(pointer);
        table.row([
            id.to_string(),
            count(of("/read/requests")),
            count(of("/read/hits")),
            count(of("/write/requests")),
            count(of("/write/hits")),
            count(of("/read/pass_through") + of("/write/pass_through")),
            size(of("/read/bytes") + of("/write/bytes")),
        ]);
    }
    print!("{}", table.render());
}

fn print_bypasses(sums: &Sums) {
    let Some(reasons) = sums.0[0].pointer("/counters/bypass").and_then(Value::as_object) else {
        return;
    };
    let all = reasons.keys().map(|reason| {
        let times = sums.of(&format!("/counters/bypass/{reason}"));
        format!("{} {}", count(times), reason.replace('_', " "))
    });
    println!("past the cache, by reason: {}", all.collect::<Vec<_>>().join(", "));
}

fn print_cache(sums: &Sums) {
    let (dirty, most) = (sums.of("/dirty_bytes"), sums.of("/dirty_bytes_max"));
    println!(
        "cache: {} of {} dirty ({}), {} clean; {} segments free of {}",
        size(dirty),
        size(most),
        percent(dirty as f64 / most.max(1) as f64),
        size(sums.of("/clean_bytes")),
        sums.of("/segments_free"),
        sums.of("/segments"),
    );
    let replayed = sums.of("/replayed_blocks");
    if replayed > 0 {
        println!("recovery: {} blocks replayed and not yet cleaned", count(replayed));
    }
    let asked = sums.of("/counters/write/bytes");
    println!(
        "log: {} records, {} written ({:.2} bytes a byte asked), {} blocks carried on by reclaim",
        count(sums.of("/counters/records")),
        size(sums.of("/counters/log_bytes")),
        sums.of("/counters/log_bytes") as f64 / asked.max(1) as f64,
        count(sums.of("/counters/reinserted_blocks")),
    );
    println!(
        "cleaning: {} blocks in {} writes ({} full stripes), {} core flushes, {} writes waited",
        count(sums.of("/counters/cleaned_blocks")),
        count(sums.of("/counters/cleaning_writes")),
        count(sums.of("/counters/full_stripe_writes")),
        count(sums.of("/counters/cleaning_flushes")),
        count(sums.of("/counters/throttled")),
    );
}

fn print_array(array: &Value) {
    let Some(counts) = array.as_object() else { return };
    let all = counts.iter().map(|(name, times)| {
        format!("{} {}", count(times.as_u64().unwrap_or(0)), name.replace('_', " "))
    });
    println!("array: {}", all.collect::<Vec<_>>().join(", "));
}
