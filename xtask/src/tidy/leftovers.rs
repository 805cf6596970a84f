//! What is left behind by haste: unfinished code, tests that do not run, paths of one machine,
//! documents that are named but not there, files that do not say what they are.

use std::path::Path;

use anyhow::Result;

use super::Offence;
use super::source::{self, SourceFile};

/// Written in two halves, so that this file does not offend itself.
const UNFINISHED: [&str; 7] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("#[ign", "ore"),
];

/// Folders of people, not of systems.
const HOMES: [&str; 3] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// Folders that any machine has, in which a clone may lie without its path being of one machine.
const COMMON_FOLDERS: [&str; 7] = ["/", "/tmp", "/var/tmp", "/srv", "/opt", "/mnt", "/src"];

/// Leftovers in one file.
pub fn check(source: &SourceFile) -> Vec<Offence> {
    let mut offences = find(&source.path, &source.text, &UNFINISHED, "is a leftover");
    offences.extend(examples(source));
    if source.is_in_src() && !source.text.trim_start().starts_with("//!") {
        offences.push(Offence::new(&source.path, "has no `//!` that says what it is"));
    }
    offences
}

/// Examples in comments, which no run compiles: a test says the same and is run.
fn examples(source: &SourceFile) -> impl Iterator<Item = Offence> {
    let mut is_open = false;
    source.text.lines().enumerate().filter_map(move |(at, line)| {
        let comment = line.trim_start();
        let text = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"))?;
        let language = text.trim_start().strip_prefix("```")?;
        is_open = !is_open;
        let is_code = is_open && (language.is_empty() || language.starts_with("rust"));
        let place = format!("{}:{}", source.path, at + 1);
        is_code.then(|| Offence::new(place, "is an example: make it a test, or say `text`"))
    })
}

/// Documents such as `CHANGELOG.md` that a file names and that are not at the root of the tree.
pub fn check_documents(source: &SourceFile, root: &[String]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        for name in documents(line).filter(|name| !root.iter().any(|file| file == name)) {
            let place = format!("{}:{}", source.path, at + 1);
            offences.push(Offence::new(place, format!("names {name}, which is not in the tree")));
        }
    }
    offences
}

/// Names in capitals that end in `.md` and stand in no folder.
fn documents(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !(c.is_alphanumeric() || "._-/".contains(c)));
    words.filter(|word| {
        let stem = word.trim_end_matches('.').strip_suffix(".md");
        stem.is_some_and(|stem| !stem.is_empty() && stem.chars().all(|c| c.is_ascii_uppercase()))
    })
}

/// Paths of one machine in any text file of the tree.
///
/// # Errors
/// When the tree cannot be listed or read.
pub fn check_machine_paths(workspace: &Path) -> Result<Vec<Offence>> {
    let places = machine_paths(workspace);
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    let mut offences = Vec::new();
    for path in source::listed(workspace)? {
        if let Ok(text) = String::from_utf8(std::fs::read(workspace.join(&path))?) {
            offences.extend(find(&path, &text, &places, "is a path of one machine"));
        }
    }
    Ok(offences)
}

/// Where people and this clone live.
fn machine_paths(workspace: &Path) -> Vec<String> {
    let mut paths: Vec<String> = HOMES.map(str::to_owned).into();
    let around = [Some(workspace), workspace.parent()].into_iter().flatten();
    let around = around.map(|folder| folder.to_string_lossy().into_owned());
    paths.extend(around.filter(|path| !COMMON_FOLDERS.contains(&path.as_str())).map(|p| p + "/"));
    paths
}

fn find(path: &str, text: &str, patterns: &[&str], what: &str) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for pattern in patterns.iter().filter(|pattern| line.contains(**pattern)) {
            offences.push(Offence::new(format!("{path}:{}", at + 1), format!("{pattern} {what}")));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::file;
    use super::*;

    #[test]
    fn each_leftover_is_found_where_it_stands() {
        for leftover in UNFINISHED {
            let offences = check(&file("a/tests/b.rs", &format!("fine\nx {leftover} y")));
            assert_eq!(offences.len(), 1, "{leftover}");
            assert_eq!(offences[0].place, "a/tests/b.rs:2");
        }
    }

    #[test]
    fn a_module_says_what_it_is_and_a_test_file_need_not() {
        assert_eq!(check(&file("crates/raid/src/lib.rs", "pub mod plan;")).len(), 1);
        assert_eq!(check(&file("crates/raid/src/lib.rs", "//! Arrays.\npub mod plan;")), []);
        assert_eq!(check(&file("crates/raid/tests/integration/model.rs", "use raid;")), []);
    }

    #[test]
    fn an_example_that_nobody_compiles_is_an_offence_and_text_is_none() {
        let example = "//! A.\n/// ```\n/// f();\n/// ```\n/// ```text\n/// 1\n/// ```\n";
        let offences = check(&file("a.rs", example));
        assert_eq!(offences.len(), 1);
        assert_eq!(offences[0].place, "a.rs:2");
    }

    #[test]
    fn a_document_that_is_not_there_is_an_offence() {
        let root = ["CHANGELOG.md".to_owned()];
        let missing = format!("// see {}.md, row 4", "RULES");
        assert_eq!(check_documents(&file("a.rs", &missing), &root).len(), 1);
        let fine = "// CHANGELOG.md, docs/format.md, the NBD project's doc/proto.md";
        assert_eq!(check_documents(&file("a.rs", fine), &root), []);
    }

    #[test]
    fn homes_and_the_place_of_the_clone_are_paths_of_one_machine() {
        let places = machine_paths(Path::new("/data/ann/headpond"));
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        for line in
            [concat!("cd /ho", "me/ann/x"), "cd /data/ann/headpond/crates", "see /data/ann/samples"]
        {
            assert!(!find("a.md", line, &places, "").is_empty(), "{line}");
        }
        assert_eq!(find("a.md", "/run/headpond/hv0.sock /dev/vda /tmp/x", &places, ""), []);
    }

    #[test]
    fn a_clone_in_a_common_folder_makes_that_folder_no_offence() {
        assert!(!machine_paths(Path::new("/tmp/headpond")).contains(&"/tmp/".to_owned()));
    }
}
