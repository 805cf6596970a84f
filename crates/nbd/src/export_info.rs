//! The description of an export for clients.

use crate::codec::option_reply::BlockSizes;
use crate::codec::wire::TransmissionFlags;

/// Everything that a handshake needs to know of one export, without I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    pub name: String,
    /// Description; empty when there is none.
    pub description: String,
    pub size_bytes: u64,
    pub flags: TransmissionFlags,
    pub block_sizes: BlockSizes,
}

impl ExportInfo {
    /// Whether the client may change the export.
    pub fn is_read_only(&self) -> bool {
        self.flags.contains(TransmissionFlags::READ_ONLY)
    }

    /// The flags as they are sent: `DF` only makes sense with structured replies.
    pub fn flags_for(&self, structured_replies: bool) -> TransmissionFlags {
        let mut flags = self.flags | TransmissionFlags::HAS_FLAGS;
        flags.set(TransmissionFlags::SEND_DF, structured_replies);
        flags
    }
}

/// Finds the export that a client names: the empty name means the export with the empty name or,
/// where there is none, the first.
pub fn find_export<'a>(exports: &'a [ExportInfo], name: &str) -> Option<&'a ExportInfo> {
    let named = exports.iter().find(|export| export.name == name);
    if named.is_none() && name.is_empty() { exports.first() } else { named }
}

#[cfg(test)]
pub(crate) fn example(name: &str) -> ExportInfo {
    ExportInfo {
        name: name.to_owned(),
        description: format!("the volume {name:?}"),
        size_bytes: 1 << 30,
        flags: TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_FUA,
        block_sizes: BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_name_means_the_first_export_unless_one_is_called_so() {
        let two = [example("a"), example("b")];
        assert_eq!(find_export(&two, "").unwrap().name, "a");
        assert_eq!(find_export(&two, "b").unwrap().name, "b");
        assert_eq!(find_export(&two, "c"), None);
        let with_default = [example("a"), example("")];
        assert_eq!(find_export(&with_default, "").unwrap().name, "");
        assert_eq!(find_export(&[], ""), None);
    }
}
