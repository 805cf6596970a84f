//! Models by the word that names them: one of the catalogue, or a file of the user's.

use headpond_sim::{CatalogueError, Model, catalogue};

/// The model that `word` names: a builtin one, or, where it has a / or ends in .toml, a file.
///
/// # Errors
/// Where there is none; a file's error says file, line, field and what is allowed.
pub fn load(word: &str) -> Result<Model, CatalogueError> {
    Model::parse(word, &text(word)?)
}

/// The data file behind a word, as it stands.
///
/// # Errors
/// Where there is no such model or file.
pub fn text(word: &str) -> Result<String, CatalogueError> {
    if !catalogue::is_file(word) {
        return catalogue::builtin_text(word).map(str::to_owned);
    }
    std::fs::read_to_string(word).map_err(|error| CatalogueError::Unreadable {
        file: word.to_owned(),
        reason: error.to_string(),
    })
}
