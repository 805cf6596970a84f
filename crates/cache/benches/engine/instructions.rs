//! Instructions for one operation, counted by callgrind: it shows what noise hides from a clock.
//!
//! 1. This program runs again under valgrind, once with few operations and once with many; the
//!    difference belongs to the operations.
//! 2. What the copy functions took in it, the C library's and ours past the processor's cache, is
//!    told apart: that is the payload, and the rival's figures are without it.
//! 3. Checksums are told apart too: valgrind shows the program a processor without AVX-512, where
//!    they are computed in several times more instructions.
//! 4. The rest is told apart by the source that it was compiled from, inlined or not: a folder or a
//!    file of the cache, the crate of the devices and of the executor, libraries, the allocator.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

/// A run of few operations, and one of many.
pub const FEW: u64 = 512;
pub const MANY: u64 = 3 * FEW;

/// Instructions, of one operation or of a whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instructions {
    /// All but the two others, by where they come from.
    pub engine: BTreeMap<String, f64>,
    pub checksums: f64,
    pub copies: f64,
}

/// Counts one operation of `work`, a name that this program knows after `count`; `None` without
/// valgrind.
///
/// # Errors
/// Where valgrind fails, or writes what is not understood.
pub fn of_one(work: &str) -> Result<Option<Instructions>, Box<dyn Error>> {
    let Some(valgrind) = headpond_testkit::tool("valgrind") else { return Ok(None) };
    let [few, many] = [run(&valgrind, work, FEW)?, run(&valgrind, work, MANY)?];
    let one = |few: f64, many: f64| (many - few) / (MANY - FEW) as f64;
    let engine = many.engine.iter().map(|(part, many)| {
        (part.clone(), one(few.engine.get(part).copied().unwrap_or_default(), *many))
    });
    Ok(Some(Instructions {
        engine: engine.collect(),
        checksums: one(few.checksums, many.checksums),
        copies: one(few.copies, many.copies),
    }))
}

fn run(valgrind: &Path, work: &str, count: u64) -> Result<Instructions, Box<dyn Error>> {
    let folder = headpond_testkit::tempdir();
    let profile = folder.path().join("callgrind.out");
    let output = Command::new(valgrind)
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(["count", work, &count.to_string()])
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        return Err(format!("valgrind: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    parse(&std::fs::read_to_string(&profile)?)
}

/// Adds up what the functions took themselves.
///
/// Source: Callgrind Format Specification. `fn=(1) name` says whose the following costs are, later
/// in short `fn=(1)`; a name may first come with `cfn=`; so it is with the files, of the function,
/// of what was inlined into it, and of one that is called. The line behind `calls=` is what the
/// call took in all, which its functions say themselves.
fn parse(profile: &str) -> Result<Instructions, Box<dyn Error>> {
    let (mut functions, mut files) = (BTreeMap::new(), BTreeMap::new());
    let mut instructions = Instructions::default();
    let (mut current, mut file, mut total) = ("", "", None);
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some((key @ ("fn" | "cfn"), function)) = line.split_once('=') {
            let (id, name) = function.split_once(' ').unwrap_or((function, ""));
            functions.entry(id).or_insert(name);
            current = if key == "fn" { id } else { current };
        } else if let Some((key @ ("fl" | "fi" | "fe" | "cfl" | "cfi"), name)) =
            line.split_once('=')
        {
            let (id, name) = name.split_once(' ').unwrap_or((name, ""));
            files.entry(id).or_insert(name);
            file = if key.starts_with('c') { file } else { id };
        } else if line.starts_with("calls=") {
            lines.next();
        } else if let Some(count) = line.strip_prefix("totals: ") {
            total = Some(count.parse::<f64>()?);
        } else if line.starts_with(|first: char| "+-*".contains(first) || first.is_ascii_digit()) {
            let (_position, cost) = line.split_once(' ').ok_or("a position without a cost")?;
            let name = functions.get(current).ok_or("a cost without a function")?;
            let file = files.get(file).ok_or("a cost without a file")?;
            *instructions.part_of(name, file) += cost.parse::<f64>()?;
        }
    }
    let sum = instructions.work() + instructions.copies;
    if total == Some(sum) {
        return Ok(instructions);
    }
    Err(format!("callgrind counted {total:?} in all, its functions {sum}").into())
}

impl Instructions {
    /// All but the copies.
    pub fn work(&self) -> f64 {
        self.engine.values().sum::<f64>() + self.checksums
    }

    /// Parts from the largest on, in words; what is less than a fiftieth is summed up.
    pub fn spent_on(&self) -> String {
        let (mut large, small): (Vec<_>, Vec<_>) =
            self.engine.iter().partition(|(_, count)| **count * 50.0 >= self.work());
        large.sort_by(|a, b| b.1.total_cmp(a.1));
        let rest: f64 = small.iter().map(|(_, count)| **count).sum();
        let parts = large.iter().map(|(part, count)| format!("{part} {count:.0}"));
        parts.chain([format!("rest {rest:.0}")]).collect::<Vec<_>>().join(", ")
    }

    /// Where the instructions of a function count, that come from a file. There are several
    /// functions that copy, one for each kind of processor.
    fn part_of(&mut self, function: &str, file: &str) -> &mut f64 {
        if ["memcpy", "memmove", "copy_lines"].iter().any(|name| function.contains(name)) {
            &mut self.copies
        } else if function.contains("crc_fast") {
            &mut self.checksums
        } else {
            self.engine.entry(source_of(function, file)).or_default()
        }
    }
}

/// In a word, where code comes from.
fn source_of(function: &str, file: &str) -> String {
    let allocates = ["malloc", "free", "calloc", "realloc", "unlink_chunk"];
    if let Some((_, path)) = file.split_once("/crates/") {
        let mut steps = path.split('/');
        let (name, folder) = (steps.next().unwrap_or_default(), steps.next());
        let within = steps.next().unwrap_or_default().trim_end_matches(".rs");
        return match (name, folder) {
            ("cache", Some("src")) => within.to_owned(),
            ("cache", _) => "benchmark".to_owned(),
            _ => format!("{name}::{within}"),
        };
    }
    match allocates.iter().any(|name| function.contains(name)) {
        true => "allocator".to_owned(),
        false => "libraries".to_owned(),
    }
}
