//! `headpond drive show`.

use super::args::ShowArgs;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::Exit;
use headpond_drive::{CacheState, Fact, Facts, KernelFacts, OwnFacts};
use headpond_report::{Align, Table};

pub fn run(args: &ShowArgs) -> Result<Exit> {
    let facts = Facts::of(&super::drive(&args.device)?);
    match args.json {
        true => print_json(&Versioned::new(&facts))?,
        false => print!("{}", text(&facts)),
    }
    Ok(Exit::Ok)
}

fn text(facts: &Facts) -> String {
    let left = |name| (name, Align::Left);
    let mut table = Table::new([left("drive"), left(""), left("source")]);
    table.row(["device".into(), facts.path.display().to_string(), String::new()]);
    for row in what(&facts.kernel).into_iter().chain(queue(&facts.kernel)) {
        table.row(row);
    }
    for row in caches(&facts.kernel, &facts.own) {
        table.row(row);
    }
    table.row([
        "power-loss protection".into(),
        facts.protection.verdict.to_string(),
        if facts.protection.hints.is_empty() { "no evidence" } else { "see the hints" }.into(),
    ]);
    let mut out = table.render();
    for hint in &facts.protection.hints {
        out.push_str(&format!("hint: {} ({})\n", hint.says, hint.evidence));
    }
    for told in &facts.disagreements {
        out.push_str(&format!("disagreement: {told}\n"));
    }
    out
}

type Row = [String; 3];

fn what(kernel: &KernelFacts) -> Vec<Row> {
    let mut rows = vec![
        row("model", &kernel.model, Clone::clone),
        row("vendor", &kernel.vendor, Clone::clone),
        row("firmware", &kernel.firmware, Clone::clone),
        row("serial number", &kernel.serial, Clone::clone),
        row("size", &kernel.size_bytes, |bytes| format!("{bytes} bytes")),
        row("protocol", &kernel.protocol, ToString::to_string),
        row("driver", &kernel.driver, Clone::clone),
        row("rotational", &kernel.rotational, yes_or_no),
        row("rotations per minute", &kernel.rotations_per_minute, ToString::to_string),
        row("NUMA node", &kernel.numa_node, ToString::to_string),
    ];
    // Only SCSI reports the vendor.
    rows.retain(|[name, ..]| name != "vendor" || kernel.vendor.value().is_some());
    rows
}

fn queue(kernel: &KernelFacts) -> [Row; 6] {
    let bytes = |bytes: &u64| format!("{bytes} bytes");
    [
        row("scheduler", &kernel.scheduler, Clone::clone),
        row("logical block", &kernel.logical_block_bytes, bytes),
        row("physical block", &kernel.physical_block_bytes, bytes),
        row("largest request", &kernel.request_bytes_max, bytes),
        row("queue depth", &kernel.queue_depth, ToString::to_string),
        row("requests in a queue", &kernel.requests_max, ToString::to_string),
    ]
}

fn caches(kernel: &KernelFacts, own: &OwnFacts) -> [Row; 7] {
    let believed = |on: &bool| match on {
        true => "write back: flushes are sent".to_owned(),
        false => "write through: no flushes are sent".to_owned(),
    };
    [
        row("write cache (kernel)", &kernel.write_cache, believed),
        row("FUA sent by the kernel", &kernel.fua, yes_or_no),
        row("write cache (drive)", &own.write_cache, CacheState::to_string),
        row("read cache (drive)", &own.read_cache, on_or_off),
        row("setting can be saved", &own.can_save, yes_or_no),
        row("volatile cache", &own.volatile_cache, yes_or_no),
        row("non-volatile cache", &own.non_volatile_cache, yes_or_no),
    ]
}

fn row<T>(name: &str, fact: &Fact<T>, tell: impl FnOnce(&T) -> String) -> Row {
    match fact {
        Fact::Known { value, source } => [name.into(), tell(value), source.clone()],
        Fact::Unknown { unknown } => [name.into(), "unknown".into(), unknown.clone()],
    }
}

fn yes_or_no(is: &bool) -> String {
    if *is { "yes".into() } else { "no".into() }
}

fn on_or_off(is: &bool) -> String {
    if *is { "on".into() } else { "off".into() }
}
