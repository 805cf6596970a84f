//! A crate that needs no unsafe code forbids it, so that the first line of it is a decision.

use super::Offence;
use super::source::SourceFile;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// Lint levels that name the lint are not a use of it.
const FORBIDS: &str = "#![forbid(unsafe_code)]";

/// Every library without unsafe code that does not forbid it.
pub fn check(sources: &[SourceFile]) -> Vec<Offence> {
    let mut roots: BTreeMap<&str, &SourceFile> = BTreeMap::new();
    let mut with_unsafe: BTreeSet<&str> = BTreeSet::new();
    for source in sources {
        let Some(folder) = source.crate_folder() else { continue };
        let Some(place) = source.path.strip_prefix(&format!("crates/{folder}/src/")[..]) else {
            continue;
        };
        if place == "lib.rs" {
            roots.insert(folder, source);
        }
        if source.text.parse().is_ok_and(has_unsafe) {
            with_unsafe.insert(folder);
        }
    }
    let lax = roots
        .iter()
        .filter(|(folder, root)| !with_unsafe.contains(*folder) && !root.text.contains(FORBIDS));
    let offence = |(_, root): (&&str, &&SourceFile)| {
        Offence::new(&root.path, format!("the crate needs no unsafe code: say {FORBIDS}"))
    };
    lax.map(offence).collect()
}

fn has_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "unsafe",
        TokenTree::Group(group) => has_unsafe(group.stream()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(files: &[(&str, &str)]) -> usize {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        check(&files.iter().map(file).collect::<Vec<_>>()).len()
    }

    #[test]
    fn a_crate_without_unsafe_code_has_to_forbid_it_and_another_need_not() {
        let root = "crates/a/src/lib.rs";
        assert_eq!(offences(&[(root, "mod b;")]), 1);
        assert_eq!(offences(&[(root, "#![forbid(unsafe_code)]\nmod b;")]), 0);
        let with = ("crates/a/src/b.rs", "fn f() { unsafe { g() } }");
        assert_eq!(offences(&[(root, "mod b;"), with]), 0);
        let talks = ("crates/a/src/b.rs", "/// unsafe\nfn f() { \"unsafe\"; }");
        assert_eq!(offences(&[(root, "mod b;"), talks]), 1);
    }
}
