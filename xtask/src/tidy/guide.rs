//! ARCHITECTURE.md names what is there: the paths of its code map, and in the answers to *Where do
//! I add ...?* each file and the items that are defined in it.
//!
//! A step of an answer has the form `path` · `item`, `item`. An item is a name, or one with its
//! type (`Policy::hits`, `Mode::WriteBack`, `Row::count`); of a document it is a heading.
//!
//! **Not here**: whether an answer is complete, which only somebody who follows it can say.

use super::Offence;
use super::source::SourceFile;
use std::collections::BTreeSet;
use std::path::Path;
use syn::visit::{self, Visit};

pub const PATH: &str = "ARCHITECTURE.md";

/// What stands between a path and its items, and between two items.
const OF: &str = "·";
const AND: &str = ",";

/// What the guide names and is not there; `files` is the whole tree.
pub fn check(guide: &SourceFile, workspace: &Path, files: &[String]) -> Vec<Offence> {
    check_against(guide, files, |path| std::fs::read_to_string(workspace.join(path)).ok())
}

fn check_against(
    guide: &SourceFile,
    files: &[String],
    read: impl Fn(&str) -> Option<String>,
) -> Vec<Offence> {
    let spans = spans(&guide.text);
    let mut offences = Vec::new();
    let steps = steps(&spans);
    if steps.is_empty() {
        offences.push(Offence::new(&guide.path, format!("has no step `path` {OF} `item`")));
    }
    for step in &steps {
        let place = format!("{}:{}", guide.path, step.line);
        let Some(text) = read(step.path) else {
            offences.push(Offence::new(place, format!("{} is not there", step.path)));
            continue;
        };
        let defined = defined(step.path, &text);
        let missing = step.items.iter().filter(|item| !defined.contains(**item));
        offences.extend(
            missing.map(|item| {
                Offence::new(&place, format!("{item} is not defined in {}", step.path))
            }),
        );
    }
    let missing = spans.iter().filter(|span| !span.is_there(files));
    offences.extend(missing.map(|span| {
        Offence::new(format!("{}:{}", guide.path, span.line), format!("{} is not there", span.text))
    }));
    offences
}

/// One `code span`.
struct Span<'a> {
    line: usize,
    text: &'a str,
    /// What stands between it and the next one.
    gap: String,
    /// The crates that its part of the map is about.
    crates: Vec<&'a str>,
}

/// The code spans of a document; not what stands in blocks of code.
fn spans(text: &str) -> Vec<Span<'_>> {
    let mut spans: Vec<Span<'_>> = Vec::new();
    let (mut is_code, mut crates) = (false, Vec::new());
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence {
            continue;
        }
        if line.starts_with('#') {
            crates = crates_of(line);
        }
        for (number, piece) in line.split('`').enumerate() {
            if number % 2 == 1 {
                let crates = crates.clone();
                spans.push(Span { line: at + 1, text: piece, gap: String::new(), crates });
            } else if let Some(last) = spans.last_mut() {
                last.gap.push_str(piece);
            }
        }
    }
    spans
}

/// Of a heading such as `### `crates/trace` and `crates/advise``.
fn crates_of(heading: &str) -> Vec<&str> {
    let words = heading.split('`').skip(1).step_by(2);
    words.map(|word| word.strip_prefix("crates/").unwrap_or(word)).collect()
}

impl Span<'_> {
    /// Whether it names no file or folder, or one of its crate: by its end, as the map does, or one
    /// of the tree by its whole path.
    fn is_there(&self, files: &[String]) -> bool {
        let is_path = self.text.ends_with(".rs") || self.text.ends_with('/');
        if !is_path || self.text.contains(char::is_whitespace) {
            return true;
        }
        let inner = format!("/{}", self.text);
        files.iter().any(|file| {
            let of_crate = |name: &&str| {
                let folder = file.strip_prefix("crates/").unwrap_or(file);
                folder.strip_prefix(*name).is_some_and(|rest| rest.starts_with('/'))
            };
            let is_it = match self.text.ends_with('/') {
                true => file.contains(&inner),
                false => file.ends_with(&inner),
            };
            file.starts_with(self.text) || is_it && self.crates.iter().any(of_crate)
        })
    }
}

/// One path of an answer, with what is to be found there.
struct Step<'a> {
    line: usize,
    path: &'a str,
    items: Vec<&'a str>,
}

fn steps<'a>(spans: &[Span<'a>]) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for (at, span) in spans.iter().enumerate().filter(|(_, span)| span.gap.trim() == OF) {
        let mut items = Vec::new();
        // Behind a comma another path may begin, with items of its own.
        for item in spans[at + 1..].iter().take_while(|item| item.gap.trim() != OF) {
            items.push(item.text);
            if item.gap.trim() != AND {
                break;
            }
        }
        steps.push(Step { line: span.line, path: span.text, items });
    }
    steps
}

/// What a file defines: items, and what belongs to them; headings of a document.
fn defined(path: &str, text: &str) -> BTreeSet<String> {
    if path.ends_with(".md") {
        let headings = text.lines().filter(|line| line.starts_with('#'));
        return headings.map(|line| line.trim_start_matches('#').trim().to_owned()).collect();
    }
    let mut found = Found::default();
    if let Ok(syntax) = syn::parse_file(text) {
        found.visit_file(&syntax);
    }
    found.names
}

#[derive(Default)]
struct Found {
    names: BTreeSet<String>,
    /// The type or trait that is being looked through.
    owner: String,
}

impl Found {
    fn note(&mut self, name: &syn::Ident) {
        self.names.insert(name.to_string());
    }

    fn note_part(&mut self, name: &syn::Ident) {
        self.names.insert(format!("{}::{name}", self.owner));
    }

    fn enter(&mut self, name: &syn::Ident) {
        self.note(name);
        self.owner = name.to_string();
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Fn(item) => self.note(&item.sig.ident),
            syn::Item::Const(item) => self.note(&item.ident),
            syn::Item::Static(item) => self.note(&item.ident),
            syn::Item::Type(item) => self.note(&item.ident),
            syn::Item::Mod(item) => self.note(&item.ident),
            syn::Item::Macro(item) => item.ident.iter().for_each(|name| self.note(name)),
            syn::Item::Struct(item) => self.enter(&item.ident),
            syn::Item::Enum(item) => self.enter(&item.ident),
            syn::Item::Trait(item) => self.enter(&item.ident),
            syn::Item::Impl(item) => self.owner = type_name(&item.self_ty),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        field.ident.iter().for_each(|name| self.note_part(name));
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.note_part(&variant.ident);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note_part(&item.sig.ident);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.note_part(&item.ident);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.note_part(&item.sig.ident);
    }

    fn visit_block(&mut self, _: &'ast syn::Block) {}
}

fn type_name(of: &syn::Type) -> String {
    match of {
        syn::Type::Path(path) => {
            path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::file;
    use super::*;

    const CODE: &str = "pub struct Row { pub count: u64 }\nimpl Row { fn sum(&self) {} }\n\
                        enum Mode { Back }\ntrait Policy { fn hits(&self); }\nconst KNOWN: u8 = 1;\n";

    fn offences(text: &str) -> Vec<Offence> {
        let files = ["crates/a/src/lib.rs", "crates/a/src/paths/read.rs", "docs/b.md"];
        let read = |path: &str| match path {
            "crates/a/src/lib.rs" => Some(CODE.to_owned()),
            "docs/b.md" => Some("# B\n\n## Rows and columns\n".to_owned()),
            _ => None,
        };
        check_against(&file("guide.md", text), &files.map(str::to_owned), read)
    }

    #[test]
    fn what_is_there_is_no_offence() {
        let items = "`Row`, `Row::count`, `Row::sum`, `Mode::Back`,\n`Policy::hits`, `KNOWN`";
        let steps =
            format!("1. `crates/a/src/lib.rs` · {items}: why\n2. `docs/b.md` · `Rows and columns`");
        let map = "\n### `crates/a`\n\n`lib.rs`, `paths/` and `paths/read.rs`; `a b/`; `Row`.\n";
        assert_eq!(offences(&format!("{steps}{map}```\n`gone.rs`\n```\n")), []);
    }

    #[test]
    fn a_path_and_an_item_that_are_gone_are_offences() {
        let found = offences("\n`crates/a/src/lib.rs` · `Row`,\n`Column`, `Row::len`: why");
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].place, "guide.md:2");
        assert_eq!(offences("`crates/a/src/gone.rs` · `Row`").len(), 2);
        assert_eq!(offences("`docs/b.md` · `Cells`").len(), 1);
    }

    #[test]
    fn a_guide_without_steps_is_an_offence() {
        assert_eq!(offences("`crates/a/src/lib.rs`: `Row`").len(), 1);
    }

    #[test]
    fn the_map_names_what_its_crate_has() {
        let step = "`crates/a/src/lib.rs` · `Row`\n\n### ";
        assert_eq!(offences(&format!("{step}`crates/a`\n\n`gone.rs`, `paths/write.rs`")).len(), 2);
        assert_eq!(offences(&format!("{step}`crates/b`\n\n`paths/`")).len(), 1);
        assert_eq!(offences(&format!("{step}`crates/b` and `crates/a`\n\n`paths/`")), []);
    }
}
