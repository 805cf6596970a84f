//! `headpond class test`: the classes of a trace's requests.

use super::{TestArgs, load};
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::Exit;
use headpond_cache::classes::{CLASSES_MAX, Class, ClassId, Classes, Facts, Rule};
use headpond_report::{Align, Table, count, percent, size};
use headpond_trace::{Damage, Op, ReadOptions, RecordFlags, TraceReader, TraceRecord};
use serde::Serialize;
use serde_json::json;

/// Requests of one class, each counted once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ClassTally {
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
}

/// The totals of a trace.
struct Trial {
    classes: [ClassTally; CLASSES_MAX],
    /// Flushes and discards, which have no class.
    unclassed: u64,
}

pub fn run(args: &TestArgs) -> Result<Exit> {
    let classes = load(&args.rules, args.strictness.unknown())?;
    let damage = if args.lenient { Damage::Skip } else { Damage::Fail };
    let options = ReadOptions { damage, format: args.format, ..ReadOptions::default() };
    let mut reader = TraceReader::open(&args.trace, options)?;
    let mut listed = Vec::new();
    let trial = try_all(&classes, &mut reader, |record, class| match (args.requests, args.json) {
        (true, true) => listed.push(entry(record, class)),
        (true, false) => println!("{}", line(record, class)),
        _ => {}
    })?;
    if args.json {
        let mut answer = trial.as_json(&classes);
        if args.requests {
            answer["requests"] = listed.into();
        }
        print_json(&Versioned::new(answer))?;
    } else {
        trial.print(&classes);
    }
    crate::commands::reading::warn_of_damage(reader.tally());
    Ok(Exit::Ok)
}

fn try_all(
    classes: &Classes,
    reader: &mut TraceReader,
    mut each: impl FnMut(&TraceRecord, Option<ClassId>),
) -> Result<Trial> {
    let mut trial = Trial { classes: [ClassTally::default(); CLASSES_MAX], unclassed: 0 };
    while let Some(record) = reader.next_record()? {
        // Its completion counts.
        if record.flags.contains(RecordFlags::RETRIED) {
            continue;
        }
        let class = facts(&record).map(|facts| classes.classify(&facts));
        trial.count(&record, class);
        each(&record, class);
    }
    Ok(trial)
}

/// The request as the volume sees it; `None` for those without a class.
fn facts(record: &TraceRecord) -> Option<Facts> {
    let is_write = match record.op {
        Op::Read => false,
        Op::Write | Op::WriteZeroes => true,
        Op::Flush | Op::Discard => return None,
    };
    Some(Facts {
        size_bytes: record.length_bytes,
        lba: record.offset_bytes / 512,
        is_write,
        is_metadata: record.flags.contains(RecordFlags::METADATA),
        core_id: 1,
    })
}

impl Trial {
    fn count(&mut self, record: &TraceRecord, class: Option<ClassId>) {
        let Some(class) = class else {
            self.unclassed += 1;
            return;
        };
        let tally = &mut self.classes[class.index()];
        match record.op {
            Op::Read => {
                (tally.reads, tally.read_bytes) =
                    (tally.reads + 1, tally.read_bytes + record.length_bytes)
            }
            _ => {
                (tally.writes, tally.write_bytes) =
                    (tally.writes + 1, tally.write_bytes + record.length_bytes)
            }
        }
    }

    fn as_json(&self, classes: &Classes) -> serde_json::Value {
        let of = |class: &Class| {
            let mut answer = super::as_json(class);
            answer["taken"] = json!(self.classes[class.id.index()]);
            answer
        };
        let classes: Vec<_> = classes.iter().map(of).collect();
        json!({ "classes": classes, "without_class": self.unclassed })
    }

    fn print(&self, classes: &Classes) {
        let right = |name| (name, Align::Right);
        let mut table = Table::new([
            right("id"),
            ("rule", Align::Left),
            right("reads"),
            right("writes"),
            right("read"),
            right("written"),
            right("of requests"),
            right("share"),
        ]);
        let all: u64 = self.classes.iter().map(|tally| tally.reads + tally.writes).sum();
        for class in classes.iter() {
            let tally = self.classes[class.id.index()];
            let taken = (tally.reads + tally.writes) as f64 / all.max(1) as f64;
            table.row([
                class.id.to_string(),
                class.rule.as_ref().map_or("(no rule)".into(), Rule::to_string),
                count(tally.reads),
                count(tally.writes),
                size(tally.read_bytes),
                size(tally.write_bytes),
                percent(taken),
                super::share(class),
            ]);
        }
        print!("{}", table.render());
        if self.unclassed > 0 {
            println!("{} flushes and discards have no class", count(self.unclassed));
        }
    }
}

fn line(record: &TraceRecord, class: Option<ClassId>) -> String {
    let class = class.map_or("-".into(), |class| class.to_string());
    let seconds = record.issued_ns as f64 / 1e9;
    let (op, metadata) = (name(record.op), record.flags.contains(RecordFlags::METADATA));
    format!(
        "{seconds:12.6} {op:<12} {:>16} + {:>10} class {class}{}",
        record.offset_bytes,
        record.length_bytes,
        if metadata { " metadata" } else { "" }
    )
}

fn entry(record: &TraceRecord, class: Option<ClassId>) -> serde_json::Value {
    json!({
        "issued_ns": record.issued_ns,
        "op": record.op,
        "offset_bytes": record.offset_bytes,
        "length_bytes": record.length_bytes,
        "metadata": record.flags.contains(RecordFlags::METADATA),
        "class": class,
    })
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::WriteZeroes => "write-zeroes",
    }
}
