//! Notes on how the volume was opened, as long as they hold.

use super::Volume;
use crate::notes::Note;

impl Volume {
    /// The notes on how it was opened that still hold.
    pub fn warnings(&self) -> Vec<String> {
        let holds = |note: &&Note| match &note.device {
            Some(device) => self.names(device) && !self.array_devices().contains(device),
            None => true,
        };
        self.notes.iter().filter(holds).map(|note| note.text().to_owned()).collect()
    }

    pub(crate) fn warn(&mut self, warning: String) {
        self.notes.push(warning.into());
    }

    /// Whether the description lists such a device, of whichever core.
    fn names(&self, device: &str) -> bool {
        self.description.borrow().devices().any(|word| self.kept.name_of(word) == device)
    }
}
