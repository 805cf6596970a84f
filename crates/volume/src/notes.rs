//! Notes on how a volume was opened.
//!
//! **Invariants**
//! - A note on a device ends when the array has it again, or it is removed.

/// One note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The member concerned, by the name of its device.
    pub(crate) device: Option<String>,
    text: String,
}

impl Note {
    /// Why a member is missing.
    pub fn of_member(device: impl Into<String>, text: impl Into<String>) -> Self {
        Self { device: Some(device.into()), text: text.into() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<T: Into<String>> From<T> for Note {
    fn from(text: T) -> Self {
        Self { device: None, text: text.into() }
    }
}

/// Several in one line.
pub(crate) fn joined(notes: &[Note]) -> String {
    notes.iter().map(Note::text).collect::<Vec<_>>().join("; ")
}
