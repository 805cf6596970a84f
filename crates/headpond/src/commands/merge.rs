//! `headpond merge`: merges partial signatures of several traces.

use super::analyze::{show, store};
use super::reading::spare_inputs;
use crate::args::MergeArgs;
use anyhow::{Context, Result};
use headpond_advise::Partial;
use headpond_api::outcome::Exit;
use std::fs;
use std::path::{Path, PathBuf};

/// Merges partial signatures.
///
/// # Errors
/// Where a file cannot be read or is no partial signature, or where one cannot be written.
pub fn run(args: &MergeArgs) -> Result<Exit> {
    let outputs = args.telling.files().chain(&args.partial);
    spare_inputs(args.files.iter().map(PathBuf::as_path), outputs)?;
    let (first, others) = args.files.split_first().context("there is at least one file")?;
    let mut merged = load(first)?;
    for path in others {
        merged.merge(&load(path)?);
    }
    match &args.partial {
        Some(path) => store(&merged, path)?,
        None => {
            let title = title(merged.sources());
            show(&merged.signature(), &title, &args.telling)?;
        }
    }
    Ok(Exit::Ok)
}

fn load(path: &Path) -> Result<Partial> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Partial::from_bytes(&bytes).with_context(|| path.display().to_string())
}

fn title(sources: &[String]) -> String {
    match sources {
        [only] => only.clone(),
        [first, .., last] => format!("{} traces, {first} to {last}", sources.len()),
        [] => String::new(),
    }
}
