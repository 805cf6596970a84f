//! What must not be called below the runtime.
//!
//! The same engine source runs against the clock and in virtual time, where a run is repeated bit
//! for bit from its seed. So time, chance, files, sockets and threads come in through the runtime,
//! and no order may depend on a hasher that is seeded by the process.
//!
//! **Not here**: tests, which may do as they like, and the runtimes themselves.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Offence;
use super::source::SourceFile;
use super::syntax::{attributes, is_for_tests, paths_in, paths_of_use};

/// Crates that run on whatever runtime they are given.
const BELOW_THE_RUNTIME: [&str; 6] = ["block", "raid", "cache", "volume", "nbd", "trace"];

/// Neighbouring names in a path, and what to do instead.
const FORBIDDEN: [(&[&str], &str); 13] = [
    (&["std", "time", "Instant"], "time comes from the runtime"),
    (&["std", "time", "SystemTime"], "time comes from the runtime"),
    (&["thread", "sleep"], "time comes from the runtime"),
    (&["thread", "spawn"], "tasks are spawned on the runtime"),
    (&["std", "fs"], "storage is a BlockDevice"),
    (&["std", "net"], "a connection is a Stream"),
    (&["unix", "net"], "a connection is a Stream"),
    (&["rand", "rng"], "chance comes in as a seeded generator"),
    (&["rand", "random"], "chance comes in as a seeded generator"),
    (&["rngs", "SysRng"], "chance comes in as a seeded generator"),
    (&["Uuid", "new_v4"], "chance comes in as a seeded generator"),
    (&["hash", "RandomState"], "the order must not depend on the process"),
    (&["hash_map", "RandomState"], "the order must not depend on the process"),
];

/// Modules that may not be imported as a whole, because their types would then hide.
const WHOLE_MODULES: [&[&str]; 1] = [&["std", "time"]];

const FOREIGN_EXECUTOR: &str = "the runtime is ours";
const RANDOM_HASHER: &str =
    "a default hasher is seeded by the process: name one, or take a BTreeMap";

/// A file that may call what the rule forbids.
struct Exception {
    path: &'static str,
    /// As it stands in the offence.
    call: &'static str,
    reason: &'static str,
}

const EXCEPTIONS: [Exception; 3] = [
    Exception {
        path: "crates/trace/src/source.rs",
        call: "std::fs",
        reason: "a trace is read from a file, away from the data path",
    },
    Exception {
        path: "crates/trace/src/blktrace/files.rs",
        call: "std::fs",
        reason: "the files of a capture are looked for beside each other",
    },
    Exception {
        path: "crates/trace/src/octf/archive.rs",
        call: "std::fs",
        reason: "the queues of a trace are looked for in their folder",
    },
];

/// Every forbidden call in these files that no exception excuses, and every idle exception.
pub fn check(sources: &[SourceFile]) -> Vec<Offence> {
    check_except(&EXCEPTIONS, sources)
}

fn check_except(exceptions: &[Exception], sources: &[SourceFile]) -> Vec<Offence> {
    let mut idle: Vec<&Exception> = exceptions.iter().collect();
    let mut offences = Vec::new();
    for source in sources.iter().filter(|source| is_below_the_runtime(source)) {
        for offence in file_offences(source) {
            let excused = |e: &&Exception| e.path == source.path && offence.what.contains(e.call);
            match exceptions.iter().find(excused) {
                Some(_) => idle.retain(|exception| !excused(exception)),
                None => offences.push(offence),
            }
        }
    }
    let idle = idle.into_iter().map(|exception| {
        let Exception { path, call, reason } = exception;
        Offence::new(*path, format!("nothing calls {call} any more (excused because {reason})"))
    });
    offences.into_iter().chain(idle).collect()
}

fn is_below_the_runtime(source: &SourceFile) -> bool {
    let folder = source.crate_folder().unwrap_or_default();
    BELOW_THE_RUNTIME.contains(&folder) && source.is_in_src()
}

fn file_offences(source: &SourceFile) -> Vec<Offence> {
    let syntax = match syn::parse_file(&source.text) {
        Ok(syntax) => syntax,
        Err(error) => return vec![Offence::new(&source.path, format!("is not Rust: {error}"))],
    };
    let mut finder = Finder { path: &source.path, offences: Vec::new() };
    finder.visit_file(&syntax);
    finder.offences
}

struct Finder<'a> {
    path: &'a str,
    offences: Vec<Offence>,
}

impl Finder<'_> {
    fn report(&mut self, line: usize, call: &str, why: &str) {
        let place = format!("{}:{line}", self.path);
        self.offences.push(Offence::new(place, format!("{call} below the runtime: {why}")));
    }

    fn check_names(&mut self, line: usize, names: &[String]) {
        if names.first().is_some_and(|name| name == "tokio") {
            self.report(line, "tokio", FOREIGN_EXECUTOR);
        }
        if WHOLE_MODULES.iter().any(|module| names == *module) {
            self.report(line, &names.join("::"), "import its types by name");
        }
        for (forbidden, why) in FORBIDDEN {
            if names.windows(forbidden.len()).any(|part| part == forbidden) {
                self.report(line, &forbidden.join("::"), why);
            }
        }
    }

    /// `HashMap<K, V>` and `HashMap::new()` exist for the default hasher only.
    fn check_hasher(&mut self, path: &syn::Path) {
        let segments: Vec<&syn::PathSegment> = path.segments.iter().collect();
        for (at, segment) in segments.iter().enumerate() {
            let name = segment.ident.to_string();
            let Some(own) = own_type_arguments(&name) else { continue };
            let next = segments.get(at + 1).map(|next| next.ident.to_string());
            let made = matches!(next.as_deref(), Some("new" | "with_capacity" | "from"));
            if made || type_arguments(segment) == own {
                self.report(segment.span().start().line, &name, RANDOM_HASHER);
            }
        }
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

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for used in paths_of_use(&item.tree) {
            self.check_names(used.line, &used.names);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.check_names(path.span().start().line, &names);
        self.check_hasher(path);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        for (line, names) in paths_in(call.tokens.clone()) {
            self.check_names(line, &names);
        }
        visit::visit_macro(self, call);
    }
}

/// Type parameters without the hasher, for the types that have a default one.
fn own_type_arguments(name: &str) -> Option<usize> {
    match name {
        "HashMap" => Some(2),
        "HashSet" => Some(1),
        _ => None,
    }
}

fn type_arguments(segment: &syn::PathSegment) -> usize {
    match &segment.arguments {
        syn::PathArguments::AngleBracketed(arguments) => arguments.args.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::file;
    use super::*;

    fn offences_in(text: &str) -> usize {
        check_except(&[], &[file("crates/cache/src/map.rs", text)]).len()
    }

    #[test]
    fn each_forbidden_call_is_found_however_it_is_written() {
        for text in [
            "fn f() { let now = std::time::Instant::now(); }",
            "use std::time::{Duration, Instant};",
            "use std::time::SystemTime as Clock;",
            "use std::{fs, io};",
            "use std::fs::*;",
            "fn f() { std::thread::sleep(d); }",
            "use std::net::TcpStream;",
            "use std::os::unix::net::UnixStream;",
            "use tokio::sync::mpsc;",
            "fn f() { let x = rand::rng().next_u64(); }",
            "fn f() { let id = Uuid::new_v4(); }",
            "struct S { map: HashMap<u64, u64> }",
            "struct S { set: std::collections::HashSet<u64> }",
            "fn f() { let map = HashMap::new(); }",
            "fn f() { println!(\"{:?}\", std::time::Instant::now()); }",
            "use std::time; fn f() -> Instant { time::Instant::now() }",
        ] {
            assert_eq!(offences_in(text), 1, "{text}");
        }
    }

    #[test]
    fn what_is_allowed_is_not_found() {
        for text in [
            "use std::time::Duration;",
            "mod time; pub use time::Instant;",
            "fn f(now: Instant) -> Instant { now }",
            "struct S { map: HashMap<u64, u64, FixedState> }",
            "fn f() { let map: Map = HashMap::with_hasher(state); }",
            "#[cfg(test)] mod tests { use std::fs; fn f() { let m = HashMap::new(); } }",
            "#[cfg(all(test, unix))] use std::fs;",
            "#[test] fn f() { std::thread::sleep(d); }",
            "/// Like `std::fs::read`.\nfn f() {}",
        ] {
            assert_eq!(offences_in(text), 0, "{text}");
        }
    }

    #[test]
    fn a_condition_that_excludes_tests_excuses_nothing() {
        assert_eq!(offences_in("#[cfg(not(test))] use std::fs;"), 1);
    }

    #[test]
    fn runtimes_and_test_files_may_do_as_they_like() {
        let text = "use std::fs;";
        assert_eq!(check_except(&[], &[file("crates/uring/src/file.rs", text)]), []);
        assert_eq!(check_except(&[], &[file("crates/raid/tests/integration/model.rs", text)]), []);
    }

    #[test]
    fn an_exception_excuses_its_call_in_its_file_and_must_be_needed() {
        let allow = Exception { path: "crates/nbd/src/a.rs", call: "std::fs", reason: "a test" };
        let reader = file("crates/nbd/src/a.rs", "use std::fs;");
        assert_eq!(check_except(&[allow], &[reader]), []);
        let allow = Exception { path: "crates/nbd/src/a.rs", call: "std::fs", reason: "a test" };
        let other = file("crates/nbd/src/b.rs", "use std::fs;");
        assert_eq!(check_except(&[allow], &[other]).len(), 2);
    }

    #[test]
    fn a_file_that_does_not_parse_is_an_offence() {
        assert_eq!(offences_in("fn f( {"), 1);
    }
}
