//! What must not be called on the thread that serves requests: whatever may wait for a file, a lock
//! or another process. It is handed to `aside`, or to a thread's `spawn`.
//!
//! **Not here**: the crates below the runtime, which call none of it anyhow (`calls`), and what
//! the daemon does before it has clients (`opening`, `loading`).

use super::Offence;
use super::source::SourceFile;
use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Files whose code runs on it.
const DATA_THREAD: [&str; 10] = [
    "attached/mod",
    "attaching",
    "caches",
    "cores",
    "service",
    "members",
    "recording",
    "serving",
    "watching",
    "work",
];
const FOLDER: &str = "crates/daemon/src";

/// Functions, by their last name, and types, by any of their functions.
const FUNCTIONS: [&str; 6] =
    ["vet", "vet_lasting", "inspect", "check_memory", "sleep", "read_to_string"];
const TYPES: [&str; 7] = ["fs", "File", "OpenFile", "Places", "TcpStream", "UnixStream", "Opened"];
const METHODS: [&str; 8] = [
    "canonicalize",
    "exists",
    "metadata",
    "is_file",
    "is_dir",
    "sync_all",
    "sync_data",
    "read_dir",
];

/// Every call in these files that may wait, and every file that is not there any more.
pub fn check(sources: &[SourceFile]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for name in DATA_THREAD {
        let path = format!("{FOLDER}/{name}.rs");
        match sources.iter().find(|source| source.path == path) {
            Some(source) => offences.extend(check_file(source)),
            None => offences.push(Offence::new(path, "is not there: correct `data_thread`")),
        }
    }
    offences
}

fn check_file(source: &SourceFile) -> Vec<Offence> {
    let Ok(syntax) = syn::parse_file(&source.text) else {
        return vec![Offence::new(&source.path, "is not Rust")];
    };
    let mut elsewhere = Elsewhere::default();
    elsewhere.visit_file(&syntax);
    let mut finder = Finder { path: &source.path, elsewhere: elsewhere.0, offences: Vec::new() };
    finder.visit_file(&syntax);
    finder.offences
}

/// Names of closures that are handed to another thread.
#[derive(Default)]
struct Elsewhere(BTreeSet<String>);

impl Elsewhere {
    fn note(&mut self, arguments: &syn::punctuated::Punctuated<syn::Expr, syn::Token![,]>) {
        let names = arguments.iter().filter_map(|argument| match argument {
            syn::Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
            _ => None,
        });
        self.0.extend(names);
    }
}

impl<'ast> Visit<'ast> for Elsewhere {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if is_aside(call) {
            self.note(&call.args);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if is_of_a_thread(call) {
            self.note(&call.args);
        }
        visit::visit_expr_method_call(self, call);
    }
}

struct Finder<'a> {
    path: &'a str,
    elsewhere: BTreeSet<String>,
    offences: Vec<Offence>,
}

impl Finder<'_> {
    fn report(&mut self, line: usize, call: &str) {
        let place = format!("{}:{line}", self.path);
        self.offences.push(Offence::new(
            place,
            format!(
                "{call} on the thread that serves requests: it may wait, so do it by `run_blocking`"
            ),
        ));
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let name = match &local.pat {
            syn::Pat::Ident(name) => name.ident.to_string(),
            _ => String::new(),
        };
        let init = local.init.as_ref().map(|init| &*init.expr);
        let is_closure = matches!(init, Some(syn::Expr::Closure(_)));
        if !(is_closure && self.elsewhere.contains(&name)) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if !is_aside(call) {
            visit::visit_expr_call(self, call);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if is_of_a_thread(call) {
            return;
        }
        let method = call.method.to_string();
        if METHODS.contains(&&*method) {
            self.report(call.method.span().start().line, &method);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        let (last, before) = names.split_last().expect("a path has a name");
        let is_function = FUNCTIONS.contains(&&**last) && before.iter().all(|it| it != "runtime");
        // Those of the control API have variants and no functions.
        let is_process = last == "new" && before.last().is_some_and(|it| it == "Command");
        if is_function || is_process || before.iter().any(|name| TYPES.contains(&&**name)) {
            self.report(path.span().start().line, &names.join("::"));
        }
        visit::visit_path(self, path);
    }
}

fn is_aside(call: &syn::ExprCall) -> bool {
    let syn::Expr::Path(function) = &*call.func else { return false };
    function.path.segments.last().is_some_and(|name| name.ident == "run_blocking")
}

/// `thread::Builder::new()...spawn(..)`, and not that of the runtime.
fn is_of_a_thread(call: &syn::ExprMethodCall) -> bool {
    let mut receiver = &*call.receiver;
    while let syn::Expr::MethodCall(inner) = receiver {
        receiver = &inner.receiver;
    }
    let syn::Expr::Call(first) = receiver else { return false };
    let syn::Expr::Path(function) = &*first.func else { return false };
    call.method == "spawn" && function.path.segments.iter().any(|name| name.ident == "Builder")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(text: &str) -> usize {
        let path = format!("{FOLDER}/service.rs");
        check_file(&SourceFile { path, text: text.to_owned() }).len()
    }

    #[test]
    fn what_may_wait_is_found_wherever_it_stands() {
        for text in [
            "fn f() { std::fs::write(p, b); }",
            "fn f() { File::open(p); }",
            "fn f() { std::thread::sleep(d); }",
            "fn f() { if path.exists() {} }",
            "async fn f() { vet(&spec, consent)?; }",
            "async fn f() { let look = move || vet(&spec, consent); look(); }",
            "fn f(places: &Places) { Places::at(p); }",
            "fn f() { runtime.spawn(async move { File::open(p) }); }",
        ] {
            assert_eq!(offences(text), 1, "{text}");
        }
    }

    #[test]
    fn what_is_done_on_another_thread_may_wait_there() {
        for text in [
            "use std::fs::File;",
            "async fn f() { run_blocking(move || File::open(p)).await; }",
            "async fn f() { let look = move || vet(&spec, consent); run_blocking(look).await; }",
            "fn f() { std::thread::Builder::new().name(n).spawn(move || file.sync_all())?; }",
            "async fn f() { runtime.sleep(d).await; }",
        ] {
            assert_eq!(offences(text), 0, "{text}");
        }
    }
}
