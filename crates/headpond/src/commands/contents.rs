//! What the user says of what is on the members of a new array.

use crate::args::ArrayArgs;
use headpond_raid::{Contents, Level};

const ASSUMED: &str = "the array is assumed to be clean: nobody has computed its parity or compared its \
     copies. Where they do not fit, what a member held that is lost later will be wrong, without an \
     error; `headpond array scrub` says beforehand";

/// What the array is told of its members.
pub fn contents(args: &ArrayArgs) -> Contents {
    if args.zeroed || args.assume_clean { Contents::Zeros } else { Contents::Unknown }
}

/// What is to be said of that.
pub fn note(args: &ArrayArgs) -> Option<String> {
    (args.assume_clean && args.raid != Level::Raid0).then(|| ASSUMED.to_owned())
}
