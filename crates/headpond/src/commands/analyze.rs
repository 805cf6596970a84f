//! `headpond analyze`, and reading traces for the other commands.

use crate::args::{AnalyzeArgs, TellingArgs};
use crate::outcome::Exit;
use anyhow::{Context, Result};
use headpond_advise::picture::render_page;
use headpond_advise::render::render_signature;
use headpond_advise::{Partial, Signature, SignatureBuilder};
use headpond_trace::{Damage, ReadOptions, Tally, TraceReader};
use std::fs;
use std::path::Path;

/// Finds the signature.
///
/// # Errors
/// Where the trace cannot be read, and what is wrong with it where; where a file cannot be written.
pub fn run(args: &AnalyzeArgs) -> Result<Exit> {
    let mut reader = open(Path::new(&args.file), args.lenient)?;
    let source = match &args.partial {
        Some(_) => args.source.as_deref().unwrap_or(&args.file),
        None => "",
    };
    let mut builder = SignatureBuilder::of_source(source, args.sample).on_two_threads();
    while let Some(record) = reader.next_record()? {
        builder.add(&record);
    }
    let partial = builder.count(reader.names());
    match &args.partial {
        Some(path) => store(&partial, path)?,
        None => show(&partial.signature(), &args.file, &args.telling)?,
    }
    warn_of_damage(reader.tally());
    Ok(Exit::Ok)
}

/// Prints a signature, and draws it where that is asked for.
///
/// # Errors
/// Where the page cannot be written.
pub fn show(signature: &Signature, title: &str, telling: &TellingArgs) -> Result<()> {
    if let Some(path) = &telling.html {
        write(path, render_page(title, signature).as_bytes())?;
    }
    if telling.json {
        println!("{}", serde_json::to_string_pretty(signature)?);
    } else {
        print!("{}", render_signature(signature));
    }
    Ok(())
}

/// Writes what was counted.
///
/// # Errors
/// Where the file cannot be written.
pub fn store(partial: &Partial, path: &Path) -> Result<()> {
    write(path, &partial.to_bytes()?)
}

/// Writes a file.
///
/// # Errors
/// Where that cannot be done; the text names the file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
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
