//! No circle of rooms: what a room of a crate needs may not need the room.
//!
//! A room is a child of the crate's root, with all files below it; the root's own items are one as
//! well. An arrow is a path from one room to another: in a `use`, a type, an expression or a macro.
//! What the root re-exports belongs to the room where it stands.
//!
//! **Not here**: tests, and methods that a room adds to the type of another one: a call of them
//! has no path.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Offence;
use super::product::{Crate, File};
use super::syntax::{Used, attributes, is_for_tests, names_of, paths_in, paths_of_use};

/// The room of the items that stand in the root itself.
const ROOT: &str = "the root";

/// A crate that still has circles.
struct Still {
    folder: &'static str,
    /// Rooms that lie in a circle.
    rooms: usize,
    why: &'static str,
}

/// Only ever lowered.
const STILL: [Still; 2] = [
    Still {
        folder: "crates/cache",
        rooms: 9,
        why: "one engine holds the state of all paths, and they name its type",
    },
    Still {
        folder: "crates/raid",
        rooms: 5,
        why: "the superblock knows what it describes; the array makes what it creates",
    },
];

/// Every circle that the table does not know, and every number of it that is too high.
pub fn check(crates: &[Crate]) -> Vec<Offence> {
    check_but(&STILL, crates)
}

fn check_but(still: &[Still], crates: &[Crate]) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut circles: BTreeMap<&str, Vec<Circle>> = BTreeMap::new();
    for one in crates {
        let graph = Graph::of(one);
        offences.extend(graph.wholes.iter().map(|place| {
            Offence::new(place, "takes in all of a module with `*` at the root: name the items")
        }));
        circles.entry(&one.folder).or_default().extend(graph.circles());
    }
    for (folder, circles) in &circles {
        let rooms: usize = circles.iter().map(|circle| circle.rooms.len()).sum();
        let known = still.iter().find(|it| it.folder == *folder).map_or(0, |it| it.rooms);
        if rooms != known {
            let what = |circle: &Circle| Offence::new(*folder, circle.to_string());
            offences.extend(circles.iter().map(what));
        }
    }
    for Still { folder, rooms, why } in still {
        let now = circles.get(folder).map_or(0, |it| it.iter().map(|it| it.rooms.len()).sum());
        if now < *rooms {
            let what =
                format!("{now} rooms in circles: lower the number {rooms} in `circles` ({why})");
            offences.push(Offence::new(*folder, what));
        }
    }
    offences
}

/// Rooms each of which needs all others, and an example of each arrow among them.
struct Circle {
    rooms: Vec<String>,
    arrows: Vec<String>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a circle of {} rooms: {}", self.rooms.len(), self.rooms.join(", "))?;
        self.arrows.iter().try_for_each(|arrow| write!(f, "\n  {arrow}"))
    }
}

/// Which room of a crate needs which.
#[derive(Default)]
struct Graph {
    /// With the first place of each arrow, and what it names there.
    arrows: BTreeMap<(String, String), String>,
    /// Places where the root, or the root's share of a room, is imported as a whole.
    wholes: Vec<String>,
}

impl Graph {
    fn of(one: &Crate) -> Graph {
        let root = Root::of(one);
        let mut graph = Graph::default();
        for file in &one.files {
            let module = file.module.clone();
            let mut finder = Finder { root: &root, path: &file.path, module, graph: &mut graph };
            finder.visit_file(&file.syntax);
        }
        graph
    }

    fn circles(&self) -> Vec<Circle> {
        let rooms: BTreeSet<&str> = self.arrows.keys().map(|(from, _)| &**from).collect();
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            rooms.iter().map(|room| (*room, self.reached_from(room))).collect();
        let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
        for room in &rooms {
            let returns = |to: &&&str| reach.get(**to).is_some_and(|back| back.contains(room));
            let circle: Vec<&str> = reach[room].iter().filter(returns).copied().collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().map(|rooms| self.circle(&rooms)).collect()
    }

    fn reached_from<'a>(&'a self, room: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut ahead = vec![room];
        while let Some(room) = ahead.pop() {
            let next =
                self.arrows.keys().filter(move |(from, _)| from == room).map(|(_, to)| &**to);
            ahead.extend(next.filter(|to| reached.insert(*to)));
        }
        reached
    }

    fn circle(&self, rooms: &[&str]) -> Circle {
        let is_inside = |room: &str| rooms.contains(&room);
        let inside = self.arrows.iter().filter(|((from, to), _)| is_inside(from) && is_inside(to));
        Circle {
            rooms: rooms.iter().map(|room| (*room).to_owned()).collect(),
            arrows: inside.map(|((from, to), at)| format!("{from} -> {to}: {at}")).collect(),
        }
    }
}

/// What names mean at the root of a crate.
#[derive(Default)]
struct Root {
    rooms: BTreeSet<String>,
    /// Items that the root imports, and the room of each, if it is one of the crate's.
    imports: BTreeMap<String, Option<String>>,
    /// Macros that are called without a path.
    macros: BTreeMap<String, String>,
}

impl Root {
    fn of(one: &Crate) -> Root {
        let items = &one.files[0].syntax.items;
        let mut root = Root::default();
        for item in items {
            if let syn::Item::Mod(item) = item
                && !is_for_tests(&item.attrs)
            {
                root.rooms.insert(item.ident.to_string());
            }
        }
        let with_macros = rooms_with_macros(items);
        for file in one.files.iter().filter(|file| !file.module.is_empty()) {
            root.note_macros(file, with_macros.contains(&file.module[0]));
        }
        for item in items {
            if let syn::Item::Use(item) = item {
                paths_of_use(&item.tree).iter().for_each(|used| root.note_import(used));
            }
        }
        root
    }

    fn note_macros(&mut self, file: &File, is_macro_use: bool) {
        for item in &file.syntax.items {
            if let syn::Item::Macro(item) = item
                && let Some(name) = &item.ident
                && (is_macro_use || has_attribute(&item.attrs, "macro_export"))
            {
                self.macros.insert(name.to_string(), file.module[0].clone());
            }
        }
    }

    fn note_import(&mut self, used: &Used) {
        let first = used.names.iter().find(|name| *name != "crate" && *name != "self");
        let room = first.filter(|name| self.rooms.contains(*name)).cloned();
        if let Some(called) = &used.called {
            self.imports.insert(called.clone(), room);
        }
    }

    /// The room of a name at the root.
    fn room_of(&self, name: &str) -> Option<String> {
        if self.rooms.contains(name) {
            return Some(name.to_owned());
        }
        match self.imports.get(name) {
            Some(room) => room.clone(),
            None => Some(self.macros.get(name).map_or(ROOT, |room| room).to_owned()),
        }
    }
}

fn rooms_with_macros(items: &[syn::Item]) -> BTreeSet<String> {
    let rooms = items.iter().filter_map(|item| match item {
        syn::Item::Mod(item) if has_attribute(&item.attrs, "macro_use") => Some(&item.ident),
        _ => None,
    });
    rooms.map(ToString::to_string).collect()
}

fn has_attribute(attributes: &[syn::Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

struct Finder<'a> {
    root: &'a Root,
    path: &'a str,
    module: Vec<String>,
    graph: &'a mut Graph,
}

impl Finder<'_> {
    fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.path)
    }

    fn note(&mut self, line: usize, names: &[String]) {
        if let Some(to) = self.room_of(names) {
            self.note_room(line, names, to);
        }
    }

    fn note_room(&mut self, line: usize, names: &[String], to: String) {
        let from = self.module.first().map_or(ROOT, |room| room).to_owned();
        if from != to {
            let at = format!("{}, {}", self.place(line), names.join("::"));
            self.graph.arrows.entry((from, to)).or_insert(at);
        }
    }

    /// The room that a path leads to, if that is told by its first names.
    fn room_of(&self, names: &[String]) -> Option<String> {
        match self.names_at_root(names)? {
            [] => None,
            [name, ..] => self.root.room_of(name),
        }
    }

    /// What is left of a path when the root is reached, if it begins there.
    fn names_at_root<'n>(&self, names: &'n [String]) -> Option<&'n [String]> {
        if names.first()? == "crate" {
            return Some(&names[1..]);
        }
        let own = usize::from(names[0] == "self");
        let ups = names[own..].iter().take_while(|name| *name == "super").count();
        let is_root = self.module.len() == ups && (ups > 0 || own > 0 || self.is_import(names));
        is_root.then(|| &names[own + ups..])
    }

    /// Whether a path at the root begins with a room or an import, and not with a local name.
    fn is_import(&self, names: &[String]) -> bool {
        let is_room = names.len() > 1 && self.root.rooms.contains(&names[0]);
        is_room || self.root.imports.contains_key(&names[0])
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for used in paths_of_use(&item.tree) {
            let is_whole = used.called.is_none();
            let is_all_of_the_root = self.names_at_root(&used.names).is_some_and(<[_]>::is_empty);
            if is_whole && (self.module.is_empty() || is_all_of_the_root) {
                let place = self.place(used.line);
                self.graph.wholes.push(place);
            } else if !self.module.is_empty() {
                self.note(used.line, &used.names);
            }
        }
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.note(path.span().start().line, &names_of(path));
        visit::visit_path(self, path);
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        for (line, names) in paths_in(list.tokens.clone()) {
            self.note(line, &names);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.get_ident().map(ToString::to_string).unwrap_or_default();
        let tokens = paths_in(call.tokens.clone());
        if let Some(room) = self.root.macros.get(&name) {
            self.note_room(call.path.span().start().line, &[format!("{name}!")], room.clone());
        }
        for (line, names) in tokens {
            self.note(line, &names);
        }
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::product;
    use super::super::source::SourceFile;
    use super::super::source::samples::file;
    use super::*;

    fn offences_but(still: &[Still], files: &[(&str, &str)]) -> Vec<Offence> {
        let named = |(name, text): &(&str, &str)| file(&format!("crates/a/src/{name}"), text);
        let sources: Vec<SourceFile> = files.iter().map(named).collect();
        match product::crates(&sources) {
            Ok(crates) => check_but(still, &crates),
            Err(offence) => vec![offence],
        }
    }

    fn offences(files: &[(&str, &str)]) -> Vec<Offence> {
        offences_but(&[], files)
    }

    const TWO: (&str, &str) = ("lib.rs", "mod b; mod c; pub use c::Thing;");
    const BACK: (&str, &str) = ("c.rs", "use crate::b::B; pub struct Thing; #[test] fn f() {}");

    #[test]
    fn a_circle_is_found_however_its_arrows_are_written() {
        for text in [
            "use crate::c::C;",
            "use crate::{c, d};",
            "use super::c as other;",
            "use crate::Thing;",
            "fn f() -> crate::c::C { c() }",
            "fn f() { super::c::f(); }",
            "fn f() { g!(x, crate::c::C); }",
            "#[arg(value_parser = crate::c::parse)] struct S;",
            "mod inside { use super::super::c::C; }",
            "impl crate::Thing {}",
        ] {
            let found = offences(&[TWO, ("b.rs", text), BACK]);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].what.contains("crates/a/src/b.rs:1"), "{}", found[0].what);
            assert!(found[0].what.contains("c -> b: crates/a/src/c.rs:1"), "{}", found[0].what);
        }
    }

    #[test]
    fn an_arrow_that_nothing_answers_is_no_circle() {
        for text in [
            "",
            "use crate::b::inner::B;",
            "mod inside { use super::B; use self::deeper::C; }",
            "#[cfg(test)] mod tests { use crate::c::C; }",
            "#[cfg(test)] use crate::c::C;",
            "#[test] fn f() { crate::c::f(); }",
            "use other::c::C;",
            "/// Like [`crate::c`].\nfn f(c: C) -> C { c }",
            "pub(in crate::c) fn f() {}",
        ] {
            assert_eq!(offences(&[TWO, ("b.rs", text), BACK]), [], "{text}");
        }
    }

    #[test]
    fn all_files_of_a_room_count_as_one() {
        let files = [
            TWO,
            BACK,
            ("b.rs", "mod inner; #[cfg(test)] mod outer;"),
            ("b/inner.rs", "mod innermost;"),
            ("b/inner/innermost.rs", "use super::super::super::c::C;"),
            ("b/outer.rs", "use crate::c::C;"),
        ];
        let found = offences(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("crates/a/src/b/inner/innermost.rs:1"), "{}", found[0].what);
        assert_eq!(
            offences(&[files[0], files[1], ("b.rs", "#[cfg(test)] mod outer;"), files[5]]),
            []
        );
    }

    #[test]
    fn a_circle_of_three_is_one_offence_with_all_its_arrows() {
        let found = offences(&[
            ("main.rs", "mod b; mod c; mod d; use b::f; fn main() { f() }"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::d::D;"),
            ("d/mod.rs", "use crate::b::B;"),
        ]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what.lines().count(), 4, "{}", found[0].what);
    }

    #[test]
    fn the_items_of_the_root_are_a_room() {
        let b = ("b.rs", "fn f() { crate::LENGTH; }");
        assert_eq!(offences(&[("lib.rs", "mod b; pub const LENGTH: u8 = 1;"), b]), []);
        for root in [
            "mod b; pub use b::B; pub const LENGTH: B = B;",
            "mod b; use b::B; fn f() { let b = B; }",
            "mod b; fn f() { b::f(); }",
        ] {
            assert_eq!(offences(&[("lib.rs", root), b]).len(), 1, "{root}");
        }
    }

    #[test]
    fn a_macro_belongs_to_the_room_that_defines_it() {
        let c = ("c.rs", "macro_rules! say { () => { $crate::b::say() } }");
        let b = ("b.rs", "fn f() { say!(); }");
        assert_eq!(offences(&[("lib.rs", "#[macro_use] mod c; mod b;"), b, c]).len(), 1);
        assert_eq!(offences(&[("lib.rs", "mod c; mod b;"), b, c]), []);
    }

    #[test]
    fn names_that_hide_behind_a_star_are_an_offence() {
        assert_eq!(offences(&[("lib.rs", "mod b;"), ("b.rs", "use super::*;")]).len(), 1);
        assert_eq!(offences(&[("lib.rs", "mod b; pub use b::*;"), ("b.rs", "")]).len(), 1);
    }

    #[test]
    fn the_number_of_rooms_in_circles_may_neither_rise_nor_stay_too_high() {
        let circle = [TWO, ("b.rs", "use crate::c::C;"), BACK];
        let still = |rooms| [Still { folder: "crates/a", rooms, why: "a test" }];
        assert_eq!(offences_but(&still(2), &circle), []);
        assert_eq!(offences_but(&still(1), &circle).len(), 1);
        assert_eq!(offences_but(&still(3), &circle).len(), 2, "the circle, and the number");
        assert_eq!(offences_but(&still(2), &[TWO, BACK, ("b.rs", "")]).len(), 1);
    }
}
