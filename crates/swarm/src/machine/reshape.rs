//! What is to be said of the array's size, which may be given more members.
//!
//! **Invariants**
//! - The size of the array is the same in every life, until it was given more members and all of
//!   its data has moved; then it is the new one at once, and in every life that begins.

use crate::offence::Offence;
use crate::topology::Topology;
use headpond_raid::ArrayStatus;
use std::cell::Cell;

/// How far the array is on its way to more members, as far as anybody outside can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stand {
    #[default]
    No,
    /// The command was given; a cut may have come before anything of it was recorded.
    Begun { more: usize },
    /// It was seen in its new size.
    Grown { more: usize },
}

/// The judge's book of the array's size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reshape {
    stand: Cell<Stand>,
    was_asked_for: Cell<bool>,
    /// As it was last seen.
    size_bytes: Cell<Option<u64>>,
}

impl Reshape {
    /// Whether the array may be on its way.
    pub fn may_be_under_way(&self) -> bool {
        matches!(self.stand.get(), Stand::Begun { .. })
    }

    /// The members that the array has more, where it was seen in its new size.
    pub fn has_more(&self) -> Option<usize> {
        let Stand::Grown { more } = self.stand.get() else { return None };
        Some(more)
    }

    /// Whether the command was ever given.
    pub fn was_asked_for(&self) -> bool {
        self.was_asked_for.get()
    }

    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes.get()
    }

    /// The same, once.
    pub fn take_more(&self) -> Option<usize> {
        let more = self.has_more()?;
        self.stand.set(Stand::No);
        Some(more)
    }

    /// A volume was opened in which the array has so many bytes.
    ///
    /// # Errors
    /// Where it must have another size.
    pub fn judge(&self, topology: &Topology, found: u64) -> Result<(), Offence> {
        let expected = self.size_bytes.get().unwrap_or(found);
        self.size_bytes.set(Some(expected));
        if let Stand::Begun { more } = self.stand.get()
            && found == grown_bytes(topology, expected, more)
        {
            self.has_grown(found, more);
            return Ok(());
        }
        if found == expected { Ok(()) } else { Err(Offence::Size { found, expected }) }
    }

    pub fn has_grown(&self, size_bytes: u64, more: usize) {
        self.size_bytes.set(Some(size_bytes));
        self.stand.set(Stand::Grown { more });
    }

    /// What the volume says of it, and of the size that clients are told.
    ///
    /// # Errors
    /// Where everything has moved and the size is not the new one.
    pub fn note(
        &self,
        topology: &Topology,
        array: &ArrayStatus,
        told_bytes: u64,
    ) -> Result<(), Offence> {
        let Stand::Begun { more } = self.stand.get() else { return Ok(()) };
        let has_them = array.members.len() == topology.members + more;
        if !has_them || array.reshape.is_some() {
            return Ok(());
        }
        let before = self.size_bytes.get().expect("it was opened");
        let expected = grown_bytes(topology, before, more);
        for found in [array.size_bytes, told_bytes] {
            if found != expected {
                return Err(Offence::Size { found, expected });
            }
        }
        self.has_grown(expected, more);
        Ok(())
    }

    pub fn begin(&self, more: usize) {
        self.was_asked_for.set(true);
        self.stand.set(Stand::Begun { more });
    }
}

/// The size of an array that had `before` bytes and has so many members more.
fn grown_bytes(topology: &Topology, before: u64, more: usize) -> u64 {
    before / topology.data_members() * topology.with_more_members(more).data_members()
}
