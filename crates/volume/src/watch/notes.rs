//! What the user should know of how a volume was opened.
//!
//! **Invariants**
//! - What is said of a device is over when the array has it again, or does without it for good.

use crate::volume::Volume;

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The member that it is about, by the name of its device.
    device: Option<String>,
    text: String,
}

impl Note {
    /// Why a member was not there.
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

impl Volume {
    /// What the user should know of how it was opened, as far as it holds still.
    pub fn warnings(&self) -> Vec<String> {
        let holds = |note: &&Note| match &note.device {
            Some(device) => self.names(device) && !self.array_devices().contains(device),
            None => true,
        };
        self.notes.iter().filter(holds).map(|note| note.text.clone()).collect()
    }

    pub(crate) fn warn(&mut self, warning: String) {
        self.notes.push(warning.into());
    }

    /// Whether the description lists such a device, of whichever core.
    fn names(&self, device: &str) -> bool {
        self.description.borrow().devices().any(|word| self.kept.name_of(word) == device)
    }
}
