//! What is to be known of the members of a new array before it is made.

use super::striping::{self, Found};
use crate::args::ArrayArgs;
use crate::device::{DeviceSpec, Opener, find_nonzero};
use crate::outcome::Failure;
use anyhow::Result;
use headpond_block::{BlockDevice, BufferPool, PoolConfig, Runtime};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Contents, Level};
use headpond_uring::{RingConfig, run_with_pool};
use std::rc::Rc;

const ASSUMED: &str = "the array is assumed to be clean: nobody has computed its parity or compared its \
     copies. Where they do not fit, what a member held that is lost later will be wrong, without an \
     error; `headpond array scrub` says beforehand";

/// Looks at the open members of an array that is to be made.
///
/// # Errors
/// Where they are not what the arguments say, or cannot be read.
pub async fn examine(
    args: &ArrayArgs,
    members: &[Rc<dyn BlockDevice>],
    runtime: &Runtime,
) -> Result<Found> {
    if args.zeroed {
        for member in members {
            refuse_contents(&**member).await?;
        }
    }
    let mut found = striping::find(args, members, runtime).await?;
    if args.assume_clean && args.raid != Level::Raid0 {
        found.notes.push(ASSUMED.to_owned());
    }
    Ok(found)
}

/// The same, of devices that nobody has opened yet.
///
/// # Errors
/// As those of [`examine`], and where one cannot be opened.
pub fn examine_unopened(args: &ArrayArgs, members: &[DeviceSpec]) -> Result<Found> {
    striping::check(args)?;
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let opener = Opener::new(ring, runtime.clone());
        let opened: Result<Vec<_>> = members.iter().map(|member| opener.open(member)).collect();
        examine(args, &opened?, &runtime).await
    })?
}

/// What the array is told of its members.
pub fn contents(args: &ArrayArgs) -> Contents {
    if args.zeroed || args.assume_clean { Contents::Zeros } else { Contents::Unknown }
}

async fn refuse_contents(member: &dyn BlockDevice) -> Result<()> {
    match find_nonzero(member, DATA_OFFSET_MIN).await? {
        None => Ok(()),
        Some(offset) => Err(Failure::refused(format!(
            "{}: does not read as zeros at byte {offset}, so the parity has to be computed: leave \
             --zeroed out",
            member.name()
        ))),
    }
}
