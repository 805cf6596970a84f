//! `docs/decisions/NNNN-title.md`: numbered without a gap, each with the four parts that make a
//! decision worth reading.

use std::path::Path;

use anyhow::{Context, Result};

use super::Offence;

const PARTS: [&str; 4] = ["## Context", "## Choice", "## Price", "## What would change our mind"];

/// Every decision that is misnumbered or lacks a part.
///
/// # Errors
/// When the folder cannot be read.
pub fn check(folder: &Path) -> Result<Vec<Offence>> {
    let entries = folder.read_dir().with_context(|| format!("listing {}", folder.display()))?;
    let mut files: Vec<(String, String)> = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push((name, std::fs::read_to_string(&path)?));
    }
    files.sort();
    Ok(offences(&files))
}

fn offences(files: &[(String, String)]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (at, (name, text)) in files.iter().enumerate() {
        let number = format!("{:04}", at + 1);
        let place = format!("docs/decisions/{name}");
        if !name.starts_with(&format!("{number}-")) || !name.ends_with(".md") {
            offences.push(Offence::new(&place, format!("should be named {number}-title.md")));
        }
        if !text.starts_with(&format!("# {number}. ")) {
            offences.push(Offence::new(&place, format!("should begin with `# {number}. Title`")));
        }
        for part in PARTS.iter().filter(|part| !text.lines().any(|line| line == **part)) {
            offences.push(Offence::new(&place, format!("has no part `{part}`")));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(number: &str) -> (String, String) {
        let text = format!("# {number}. Title\n\n{}\n", PARTS.join("\n\n"));
        (format!("{number}-title.md"), text)
    }

    #[test]
    fn well_formed_decisions_pass() {
        assert_eq!(offences(&[decision("0001"), decision("0002")]), []);
    }

    #[test]
    fn a_gap_a_foreign_file_and_a_missing_part_are_offences() {
        assert!(!offences(&[decision("0001"), decision("0003")]).is_empty());
        assert!(!offences(&[decision("0001"), ("notes.md".to_owned(), String::new())]).is_empty());
        let (name, text) = decision("0001");
        assert_eq!(offences(&[(name, text.replace("## Price", "## Cost"))]).len(), 1);
    }
}
