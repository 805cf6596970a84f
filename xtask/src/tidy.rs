//! The rules of the house that no compiler checks.
//!
//! Each rule is one file here, with a made-up offence that its tests must find: a check that
//! cannot fail is a defect.
//!
//! **Invariants**: an exception stands in a table with its reason, and one that no longer excuses
//! anything is an offence itself.
//!
//! **Not here**: what rustfmt and clippy check. `cargo deny` (`deny.toml`) goes further than
//! [`licences`] where it is installed; `.ci/run` calls it then.

mod arrows;
mod calls;
mod circles;
mod data_thread;
mod decisions;
mod fields;
mod guide;
mod leftovers;
mod licences;
mod product;
mod size;
mod source;
mod syntax;
mod unsafe_code;

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::metadata::{self, Metadata};
use source::SourceFile;

/// Something that a rule forbids, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offence {
    /// A file with its line, or a crate.
    pub place: String,
    pub what: String,
}

impl Offence {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Offence {
        Offence { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Checks every rule and prints what offends; true when nothing does.
///
/// # Errors
/// When the tree or the dependency graph cannot be read.
pub fn run(workspace: &Path) -> Result<bool> {
    let sources = source::all(workspace)?;
    let mut offences = tree_offences(workspace, &sources)?;
    offences.extend(graph_offences(&metadata::read(workspace)?));
    offences.sort();
    for offence in &offences {
        println!("{offence}");
    }
    println!("tidy: {} source files, {} offences", sources.len(), offences.len());
    Ok(offences.is_empty())
}

fn tree_offences(workspace: &Path, sources: &[SourceFile]) -> Result<Vec<Offence>> {
    let root = source::listed(workspace)?;
    let mut offences = Vec::new();
    for source in sources {
        offences.extend(size::check(source));
        offences.extend(leftovers::check(source));
        offences.extend(leftovers::check_documents(source, &root));
    }
    for document in source::documents(workspace)? {
        offences.extend(size::check_document(&document));
        if document.path == guide::PATH {
            offences.extend(guide::check(&document, workspace, &root));
        }
    }
    offences.extend(calls::check(sources));
    offences.extend(data_thread::check(sources));
    match product::crates(sources) {
        Ok(crates) => {
            offences.extend(circles::check(&crates));
            offences.extend(fields::check(&crates));
        }
        Err(offence) => offences.push(offence),
    }
    offences.extend(unsafe_code::check(sources));
    offences.extend(leftovers::check_machine_paths(workspace)?);
    offences.extend(decisions::check(&workspace.join("docs/decisions"))?);
    Ok(offences)
}

fn graph_offences(metadata: &Metadata) -> Vec<Offence> {
    let mut offences = arrows::check(metadata);
    offences.extend(licences::check(metadata));
    offences
}
