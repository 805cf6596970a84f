//! Instructions for one operation, counted by callgrind: it shows what noise hides from a clock.
//!
//! 1. This program runs again under valgrind, once with few operations and once with many; the
//!    difference belongs to the operations.
//! 2. What the C library's copy functions took in it is told apart: that is the payload, and the
//!    rival's figures are without it.
//! 3. Checksums are told apart too: valgrind shows the program a processor without AVX-512, where
//!    they are computed in several times more instructions.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

/// A run of few operations, and one of many.
pub const FEW: u64 = 512;
pub const MANY: u64 = 3 * FEW;

/// Instructions, of one operation or of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Instructions {
    /// All but the two others.
    pub engine: f64,
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
    let one = |part: fn(&Instructions) -> f64| (part(&many) - part(&few)) / (MANY - FEW) as f64;
    Ok(Some(Instructions {
        engine: one(|all| all.engine),
        checksums: one(|all| all.checksums),
        copies: one(|all| all.copies),
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
/// in short `fn=(1)`; a name may first come with `cfn=`; the line behind `calls=` is what the call
/// took in all, which its functions say themselves.
fn parse(profile: &str) -> Result<Instructions, Box<dyn Error>> {
    let mut functions = BTreeMap::new();
    let mut instructions = Instructions::default();
    let (mut current, mut total) = ("", None);
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some((key @ ("fn" | "cfn"), function)) = line.split_once('=') {
            let (id, name) = function.split_once(' ').unwrap_or((function, ""));
            functions.entry(id).or_insert(name);
            current = if key == "fn" { id } else { current };
        } else if line.starts_with("calls=") {
            lines.next();
        } else if let Some(count) = line.strip_prefix("totals: ") {
            total = Some(count.parse::<f64>()?);
        } else if line.starts_with(|first: char| "+-*".contains(first) || first.is_ascii_digit()) {
            let (_position, cost) = line.split_once(' ').ok_or("a position without a cost")?;
            let name = functions.get(current).ok_or("a cost without a function")?;
            *instructions.part_of(name) += cost.parse::<f64>()?;
        }
    }
    let sum = instructions.engine + instructions.checksums + instructions.copies;
    if total == Some(sum) {
        return Ok(instructions);
    }
    Err(format!("callgrind counted {total:?} in all, its functions {sum}").into())
}

impl Instructions {
    /// Where the instructions of a function count. The C library has several functions that copy,
    /// one for each kind of processor.
    fn part_of(&mut self, function: &str) -> &mut f64 {
        if function.contains("memcpy") || function.contains("memmove") {
            &mut self.copies
        } else if function.contains("crc_fast") {
            &mut self.checksums
        } else {
            &mut self.engine
        }
    }
}
