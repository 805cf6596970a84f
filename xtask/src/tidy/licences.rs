//! Every crate that we link has a licence that ours may be combined with, and comes from the public
//! registry.
//!
//! **Not here**: security advisories, which need a database of their own (`cargo deny`).

use super::Offence;
use crate::metadata::{Metadata, Package};

/// SPDX names that we accept; the same list stands in `deny.toml`.
const ACCEPTED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Every package whose licence or origin is not accepted.
pub fn check(metadata: &Metadata) -> Vec<Offence> {
    metadata.packages.iter().flat_map(package_offences).collect()
}

fn package_offences(package: &Package) -> Vec<Offence> {
    let place = format!("{} {}", package.name, package.version);
    let mut offences = Vec::new();
    match &package.license {
        None => offences.push(Offence::new(&place, "names no licence")),
        Some(license) if !is_accepted(license) => {
            offences.push(Offence::new(&place, format!("licence {license} is not accepted")));
        }
        Some(_) => {}
    }
    if let Some(source) = package.source.as_deref().filter(|source| *source != REGISTRY) {
        offences.push(Offence::new(&place, format!("comes from {source}, not from crates.io")));
    }
    offences
}

/// Whether an SPDX expression leaves a choice that we accept. `OR` binds weaker than `AND`; the
/// old form `A/B` means `OR`.
fn is_accepted(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    match_paren(&expression)
}

fn match_paren(expression: &str) -> bool {
    split_outside_parens(expression, " OR ").into_iter().any(|choice| {
        split_outside_parens(choice, " AND ").into_iter().all(|part| match part.strip_prefix('(') {
            Some(inner) => inner.strip_suffix(')').is_some_and(match_paren),
            None => ACCEPTED.contains(&part),
        })
    })
}

/// The trimmed parts of `text` between `separator`s that stand outside of parentheses.
fn split_outside_parens<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && at >= start && text[at..].starts_with(separator) => {
                parts.push(text[start..at].trim());
                start = at + separator.len();
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::samples::{foreign, workspace};

    #[test]
    fn a_choice_is_enough_and_a_conjunction_needs_all() {
        assert!(is_accepted("GPL-3.0-only OR MIT"));
        assert!(is_accepted("MIT/Apache-2.0"));
        assert!(is_accepted("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(is_accepted("Apache-2.0 WITH LLVM-exception OR GPL-2.0"));
        assert!(!is_accepted("MIT AND GPL-3.0-only"));
        assert!(!is_accepted("(GPL-2.0 OR GPL-3.0-only) AND MIT"));
        assert!(!is_accepted(""));
    }

    #[test]
    fn a_viral_licence_a_missing_one_and_a_git_source_are_offences() {
        let mut metadata = workspace(&[]);
        metadata.packages = vec![foreign("viral", "AGPL-3.0"), foreign("bare", "MIT")];
        metadata.packages[1].license = None;
        metadata.packages.push(foreign("forked", "MIT"));
        metadata.packages[2].source = Some("git+https://example.org/forked".to_owned());
        assert_eq!(check(&metadata).len(), 3);
    }
}
