//! What rules ask of Rust's syntax: attributes, and the paths in it.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;

/// A path that a `use` brings in, with the prefix that groups share.
pub struct Used {
    pub line: usize,
    pub names: Vec<String>,
    /// What it is called here; nothing where all of a module comes in.
    pub called: Option<String>,
}

/// All paths that a `use` brings in.
pub fn paths_of_use(tree: &syn::UseTree) -> Vec<Used> {
    let mut found = Vec::new();
    follow_use(tree, &[], &mut found);
    found
}

fn follow_use(tree: &syn::UseTree, prefix: &[String], found: &mut Vec<Used>) {
    let mut names = prefix.to_vec();
    let called = match tree {
        syn::UseTree::Path(path) => {
            names.push(path.ident.to_string());
            return follow_use(&path.tree, &names, found);
        }
        syn::UseTree::Group(group) => {
            return group.items.iter().for_each(|item| follow_use(item, prefix, found));
        }
        syn::UseTree::Name(name) if name.ident == "self" => names.last().cloned(),
        syn::UseTree::Name(name) => {
            names.push(name.ident.to_string());
            names.last().cloned()
        }
        syn::UseTree::Rename(rename) => {
            if rename.ident != "self" {
                names.push(rename.ident.to_string());
            }
            Some(rename.rename.to_string())
        }
        syn::UseTree::Glob(_) => None,
    };
    found.push(Used { line: tree.span().start().line, names, called });
}

/// The names of a path, from its first.
pub fn names_of(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// The paths in the tokens of a macro call, which has no syntax of its own: `a::b::c`.
pub fn paths_in(tokens: TokenStream) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut path: Vec<String> = Vec::new();
    let (mut line, mut colons) = (0, 0);
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    found.push((line, std::mem::take(&mut path)));
                    line = ident.span().start().line;
                }
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Group(group) => found.extend(paths_in(group.stream())),
            _ => colons = 0,
        }
    }
    found.push((line, path));
    found
}

/// `#[test]` and `#[cfg(test)]`, also among other conditions.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => {
            list.path.is_ident("cfg") && names_in(list.tokens.clone()).contains(&"test".to_owned())
        }
        syn::Meta::NameValue(_) => false,
    })
}

/// The names in a condition, up to a `not`.
fn names_in(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "not" => break,
            TokenTree::Ident(ident) => names.push(ident.to_string()),
            TokenTree::Group(group) => names.extend(names_in(group.stream())),
            _ => {}
        }
    }
    names
}

pub fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
