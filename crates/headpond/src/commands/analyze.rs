//! `headpond analyze`, and reading traces for the other commands.

use crate::args::AnalyzeArgs;
use crate::outcome::Exit;
use anyhow::Result;
use headpond_advise::Signature;
use headpond_advise::render::render_signature;
use headpond_trace::{Damage, ReadOptions, Tally, TraceReader};
use std::path::Path;

/// Finds the signature.
///
/// # Errors
/// Where the trace cannot be read, and what is wrong with it where.
pub fn run(args: &AnalyzeArgs) -> Result<Exit> {
    let mut reader = open(Path::new(&args.file), args.lenient)?;
    let signature = Signature::of(&mut reader)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&signature)?);
    } else {
        print!("{}", render_signature(&signature));
    }
    warn_of_damage(reader.tally());
    Ok(Exit::Ok)
}

/// Opens a trace.
///
/// # Errors
/// Where it cannot be read, or is of no known format.
pub fn open(path: &Path, lenient: bool) -> Result<TraceReader> {
    let damage = if lenient { Damage::Skip } else { Damage::Fail };
    Ok(TraceReader::open(path, ReadOptions { damage, ..ReadOptions::default() })?)
}

/// Says what was skipped, where something was.
pub fn warn_of_damage(tally: Tally) {
    if tally.damaged > 0 {
        eprintln!("headpond: note: {} damaged records were skipped", tally.damaged);
    }
}
