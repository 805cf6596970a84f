//! `headpond analyze`, and how a signature is shown.

use super::reading::{read_through, spare_inputs, warn_of_damage};
use crate::args::{AnalyzeArgs, TellingArgs};
use crate::telling::print_json;
use anyhow::{Context, Result, ensure};
use headpond_advise::picture::{render_page, render_reuse_page};
use headpond_advise::render::{render_reuse, render_signature};
use headpond_advise::{Partial, Reuse, Signature, SignatureBuilder};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_trace::{Demand, TraceReader};
use std::fs;
use std::path::Path;

/// Finds the signature.
///
/// # Errors
/// If the trace cannot be read, with the place of the error; if a file cannot be written.
pub fn run(args: &AnalyzeArgs) -> Result<Exit> {
    let trace = Path::new(&args.file);
    spare_inputs([trace], args.telling.files().chain(&args.partial))?;
    let mut reader = TraceReader::open(trace, args.read.options(Demand::References))?;
    let lacks = reader.lacks();
    let is_counted = args.partial.is_some() || args.telling.parquet.is_some();
    ensure!(
        lacks.is_empty() || !is_counted,
        Failure {
            exit: Exit::Usage,
            message: format!(
                "{} has {}: only reuse can be analysed, as text, --json or --html",
                args.file,
                lacks.words()
            ),
        }
    );
    let name = args.source.as_deref().unwrap_or(&args.file);
    let source = if args.partial.is_some() { name } else { "" };
    let mut builder = SignatureBuilder::of_source(source, args.sample).on_two_threads();
    read_through(&mut reader, |record| builder.add(record))?;
    let partial = builder.count(reader.names());
    match &args.partial {
        Some(path) => store(&partial, path)?,
        None if !lacks.is_empty() => {
            show_reuse(&Reuse::of(&partial.signature(), lacks), name, &args.telling)?;
        }
        None => show(&partial.signature(), name, &args.telling)?,
    }
    warn_of_damage(reader.tally());
    Ok(Exit::Ok)
}

/// Prints a signature, and writes it as a page and as a table where that is asked for.
///
/// # Errors
/// Where a file cannot be written.
pub fn show(signature: &Signature, title: &str, telling: &TellingArgs) -> Result<()> {
    if let Some(path) = &telling.html {
        write(path, render_page(title, signature).as_bytes())?;
    }
    if let Some(path) = &telling.parquet {
        let mut bytes = Vec::new();
        signature.write_parquet(title, &mut bytes)?;
        write(path, &bytes)?;
    }
    if telling.json {
        print_json(&Versioned::new(signature))?;
    } else {
        print!("{}", render_signature(signature));
    }
    Ok(())
}

/// The same for a trace that allows an analysis of reuse only.
fn show_reuse(reuse: &Reuse, title: &str, telling: &TellingArgs) -> Result<()> {
    if let Some(path) = &telling.html {
        write(path, render_reuse_page(title, reuse).as_bytes())?;
    }
    match telling.json {
        true => print_json(&Versioned::new(reuse))?,
        false => print!("{}", render_reuse(reuse)),
    }
    Ok(())
}

/// Writes the partial result.
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
