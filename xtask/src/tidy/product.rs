//! The crates as they are shipped: the modules that a build without tests compiles.

use std::collections::BTreeMap;

use super::Offence;
use super::source::SourceFile;
use super::syntax::is_for_tests;

/// A library or a program.
pub struct Crate {
    /// Its folder, from the workspace's root.
    pub folder: String,
    /// The first is the root.
    pub files: Vec<File>,
}

pub struct File {
    pub path: String,
    /// From the crate's root, which is empty.
    pub module: Vec<String>,
    pub syntax: syn::File,
}

/// Every library and program whose root is among these files.
///
/// # Errors
/// The first file that is not Rust.
pub fn crates(sources: &[SourceFile]) -> Result<Vec<Crate>, Offence> {
    let texts: Texts = sources.iter().map(|file| (&*file.path, &*file.text)).collect();
    let roots = sources.iter().filter_map(|file| {
        let (folder, root) = file.path.rsplit_once("/src/")?;
        matches!(root, "lib.rs" | "main.rs").then_some((folder, &*file.path))
    });
    roots
        .map(|(folder, root)| {
            let mut files = Vec::new();
            read(&texts, root, &format!("{folder}/src"), Vec::new(), &mut files)?;
            Ok(Crate { folder: folder.to_owned(), files })
        })
        .collect()
}

type Texts<'a> = BTreeMap<&'a str, &'a str>;

/// Reads a file and the files of its modules, which lie in `folder`.
fn read(
    texts: &Texts<'_>,
    path: &str,
    folder: &str,
    module: Vec<String>,
    files: &mut Vec<File>,
) -> Result<(), Offence> {
    let syntax = syn::parse_file(texts[path])
        .map_err(|error| Offence::new(path, format!("is not Rust: {error}")))?;
    let mut declared = Vec::new();
    declare(&syntax.items, folder, &module, &mut declared);
    files.push(File { path: path.to_owned(), module, syntax });
    for (folder, module) in declared {
        let candidates = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
        if let Some(path) = candidates.iter().find(|path| texts.contains_key(&***path)) {
            read(texts, path, &folder, module, files)?;
        }
    }
    Ok(())
}

/// The modules in files of their own that these items declare, each with the folder below it.
fn declare(
    items: &[syn::Item],
    folder: &str,
    module: &[String],
    declared: &mut Vec<(String, Vec<String>)>,
) {
    for item in items {
        let syn::Item::Mod(item) = item else { continue };
        if is_for_tests(&item.attrs) {
            continue;
        }
        let below = format!("{folder}/{}", item.ident);
        let mut module = module.to_vec();
        module.push(item.ident.to_string());
        match &item.content {
            Some((_, items)) => declare(items, &below, &module, declared),
            None => declared.push((below, module)),
        }
    }
}
