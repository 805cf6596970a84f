//! What the user asserts about the contents of the members of a new array.

use crate::args::ArrayArgs;
use headpond_raid::{Contents, Level};

const ASSUMED: &str = "the array is assumed to be clean: its parity or copies are not verified. If they \
     do not match, data of a member that is lost later is reconstructed wrong, without an error; \
     `headpond array scrub` checks it";

/// The contents that are assumed for the members.
pub fn contents(args: &ArrayArgs) -> Contents {
    if args.zeroed || args.assume_clean { Contents::Zeros } else { Contents::Unknown }
}

/// The note for the user about it.
pub fn note(args: &ArrayArgs) -> Option<String> {
    (args.assume_clean && args.raid.is_some_and(|level| level != Level::Raid0))
        .then(|| ASSUMED.to_owned())
}
