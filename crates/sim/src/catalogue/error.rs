//! What is wrong with a model file, and where.

use crate::error::ModelError;
use crate::kind::Kind;

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error(
        "no model named {name}; there are: {known}; a file of your own is named by a path with / \
         or .toml"
    )]
    Unknown { name: String, known: String },
    #[error("{file}: {fault}")]
    InFile { file: String, fault: Fault },
    #[error("{name} is a model of kind {kind}; here {wanted} is needed")]
    WrongKind { name: String, kind: Kind, wanted: &'static str },
    #[error("{file}: {reason}: give the name of a builtin model or the path of a model file")]
    Unreadable { file: String, reason: String },
}

/// What is wrong in a file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Syntax(toml::de::Error),
    #[error("line {line}: {field} = {found} {reason}")]
    Figure { line: usize, field: &'static str, found: String, reason: &'static str },
    #[error("line {line}: [{section}] {reason}")]
    Section { line: usize, section: &'static str, reason: &'static str },
    /// Where no single line is to blame.
    #[error("{field} {reason}")]
    Whole { field: &'static str, reason: &'static str },
}

impl CatalogueError {
    pub(super) fn in_file(file: &str, text: &str, error: ModelError) -> Self {
        let fault = match error {
            ModelError::Syntax(error) => Fault::Syntax(error),
            ModelError::Invalid { field, reason } => match find(text, field) {
                Some((line, found)) => Fault::Figure { line, field, found, reason },
                None => match find_section(text, field) {
                    Some(line) => Fault::Section { line, section: field, reason },
                    None => Fault::Whole { field, reason },
                },
            },
        };
        Self::InFile { file: file.to_owned(), fault }
    }
}

/// Line on which a section begins.
fn find_section(text: &str, section: &str) -> Option<usize> {
    let is_begun = |line: &str| line.trim_start().starts_with(&format!("[{section}]"));
    text.lines().position(is_begun).map(|index| index + 1)
}

/// Line and value of a field, which is written `section.key`.
fn find(text: &str, field: &str) -> Option<(usize, String)> {
    let (wanted, key) = field.rsplit_once('.').unwrap_or(("", field));
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_matches(['[', ']', ' ']).to_owned();
        } else if let Some((found, value)) = line.split_once('=')
            && found.trim() == key
            && section == wanted
        {
            return Some((index + 1, value.trim().to_owned()));
        }
    }
    None
}
