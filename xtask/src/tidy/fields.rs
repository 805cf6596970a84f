//! Structs of at most 24 named fields: one with more is several things.
//!
//! **Not here**: tests, and variants of enums.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use super::Offence;
use super::product::Crate;
use super::syntax::{attributes, is_for_tests};

const FIELDS_MAX: usize = 24;

/// A struct that still has more.
struct Still {
    /// Its file and its name.
    name: (&'static str, &'static str),
    fields: usize,
    why: &'static str,
}

/// Only ever lowered.
const STILL: [Still; 11] = [
    Still {
        name: ("crates/advise/src/signature/stream.rs", "StreamSignature"),
        fields: 29,
        why: "a table of figures that is printed as it stands",
    },
    Still {
        name: ("crates/advise/src/signature/volume.rs", "VolumeSignature"),
        fields: 26,
        why: "a table of figures that is printed as it stands",
    },
    Still {
        name: ("crates/cache/src/cleaner.rs", "Progress"),
        fields: 28,
        why: "the state of one cleaner",
    },
    Still {
        name: ("crates/cache/src/engine.rs", "Engine"),
        fields: 50,
        why: "the state of all paths",
    },
    Still {
        name: ("crates/cache/src/log.rs", "Log"),
        fields: 41,
        why: "the state of all segments",
    },
    Still {
        name: ("crates/cache/src/stats.rs", "Counters"),
        fields: 29,
        why: "a table of counters",
    },
    Still {
        name: ("crates/cache/src/stats.rs", "SliceStats"),
        fields: 33,
        why: "a table of counters",
    },
    Still {
        name: ("crates/raid/src/array.rs", "Array"),
        fields: 34,
        why: "the state of one array",
    },
    Still {
        name: ("crates/raid/src/superblock.rs", "ArrayRecord"),
        fields: 27,
        why: "a record on disk, field by field",
    },
    Still {
        name: ("crates/sim/src/ssd/drive.rs", "SsdDrive"),
        fields: 27,
        why: "the state of one drive",
    },
    Still {
        name: ("crates/swarm/src/machine.rs", "Machine"),
        fields: 25,
        why: "what all steps act on",
    },
];

/// Every struct with too many fields that the table does not know, and every number of it that is
/// too high.
pub fn check(crates: &[Crate]) -> Vec<Offence> {
    check_but(&STILL, crates)
}

fn check_but(still: &[Still], crates: &[Crate]) -> Vec<Offence> {
    let mut structs = BTreeMap::new();
    for file in crates.iter().flat_map(|one| &one.files) {
        let mut finder = Finder { path: &file.path, structs: &mut structs };
        finder.visit_file(&file.syntax);
    }
    let large = structs.iter().filter(|(name, found)| {
        let known = still.iter().find(|it| it.name == (&*name.0, &*name.1));
        found.fields > known.map_or(FIELDS_MAX, |it| it.fields)
    });
    let mut offences: Vec<Offence> = large.map(|(name, found)| offence(name, found)).collect();
    for Still { name: (path, name), fields, why } in still {
        let now = structs.get(&((*path).to_owned(), (*name).to_owned())).map_or(0, |it| it.fields);
        if now < *fields {
            let what = format!(
                "{name} has {now} named fields: lower the number {fields} in `fields` ({why})"
            );
            offences.push(Offence::new(*path, what));
        }
    }
    offences
}

fn offence((path, name): &(String, String), found: &Found) -> Offence {
    let Found { line, fields } = found;
    let what = format!("{name} has {fields} named fields; a struct has at most {FIELDS_MAX}");
    Offence::new(format!("{path}:{line}"), what)
}

struct Found {
    line: usize,
    fields: usize,
}

struct Finder<'a> {
    path: &'a str,
    structs: &'a mut BTreeMap<(String, String), Found>,
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if let syn::Fields::Named(fields) = &item.fields {
            let fields = fields.named.iter().filter(|it| !is_for_tests(&it.attrs)).count();
            let line = item.ident.span().start().line;
            let name = (self.path.to_owned(), item.ident.to_string());
            self.structs.insert(name, Found { line, fields });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::product;
    use super::super::source::samples::file;
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    fn offences(still: &[Still], text: &str) -> Vec<Offence> {
        let crates = product::crates(&[file(PATH, text)]).expect("it is Rust");
        check_but(still, &crates)
    }

    fn of(fields: usize) -> String {
        let fields: Vec<String> = (0..fields).map(|at| format!("f{at}: u8")).collect();
        format!("pub struct Large {{ {} }}", fields.join(", "))
    }

    #[test]
    fn a_struct_of_25_fields_is_too_large() {
        assert_eq!(offences(&[], &of(24)), []);
        assert_eq!(offences(&[], &of(25)).len(), 1);
        assert_eq!(offences(&[], &format!("fn f() {{ {} }}", of(25))).len(), 1);
    }

    #[test]
    fn a_struct_for_tests_may_be_large() {
        assert_eq!(offences(&[], &format!("#[cfg(test)] {}", of(25))), []);
        assert_eq!(offences(&[], &format!("#[cfg(test)] mod tests {{ {} }}", of(25))), []);
    }

    #[test]
    fn a_known_number_may_neither_rise_nor_stay_too_high() {
        let still = [Still { name: (PATH, "Large"), fields: 30, why: "a test" }];
        assert_eq!(offences(&still, &of(30)), []);
        assert_eq!(offences(&still, &of(31)).len(), 1);
        assert_eq!(offences(&still, &of(29)).len(), 1);
        assert_eq!(offences(&still, "").len(), 1);
    }
}
