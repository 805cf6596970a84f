//! The striping of unequal members of a new array of level 0, and what it gains.

use crate::args::{ArrayArgs, StripingWord};
use crate::device::{DeviceSpec, Opener, read_mb_per_s};
use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_block::{BlockDevice, BufferPool, PoolConfig, Runtime};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Level, Striping, Weights};
use headpond_report::size;
use headpond_uring::{RingConfig, run_with_pool};
use headpond_whatif::plan::{Different, Outlook, outlook, outlooks};
use std::rc::Rc;

/// A gain above this share of the capacity is reported.
const TOLD_SHARE: f64 = 1.01;

/// The requested striping with its weights, and a note about it.
pub struct ChosenStriping {
    pub striping: Striping,
    pub notes: Vec<String>,
}

/// Whether striping of the kind asked for goes with the level.
///
/// # Errors
/// Where it does not.
pub fn check(args: &ArrayArgs) -> Result<()> {
    match args.raid {
        Some(level) if level != Level::Raid0 && !is_plain(args) => Err(Failure::usage(format!(
            "{level} stripes all members equally: --striping and --weights are for level 0"
        ))),
        _ => Ok(()),
    }
}

/// Finds the striping of an array of these open devices, which [`check`] has let pass.
///
/// # Errors
/// Where weights are not one for each member, or a member cannot be read.
pub async fn find(
    args: &ArrayArgs,
    members: &[Rc<dyn BlockDevice>],
    runtime: &Runtime,
) -> Result<ChosenStriping> {
    let is_plain = is_plain(args);
    let strip_bytes = u32::try_from(args.strip.bytes()).unwrap_or(u32::MAX);
    if args.raid != Some(Level::Raid0) || members.len() < 2 || strip_bytes == 0 {
        return Ok(ChosenStriping { striping: Striping::Plain, notes: Vec::new() });
    }
    let mut known = Vec::new();
    for member in members {
        let is_measured = args.striping == StripingWord::Speed;
        known.push(Different {
            name: member.name().to_string(),
            room_bytes: member.geometry().size_bytes.saturating_sub(DATA_OFFSET_MIN),
            sequential_read_mb_per_s: match is_measured {
                true => Some(read_mb_per_s(member, runtime).await?),
                false => None,
            },
            random_read_iops: None,
        });
    }
    // More members than can have weights are striped plainly.
    let all = match outlooks(&known, strip_bytes) {
        Err(_) if is_plain => Vec::new(),
        all => all.map_err(Failure::usage)?,
    };
    if !args.weights.is_empty() {
        let weights = Weights::new(args.weights.clone()).map_err(Failure::usage)?;
        if weights.as_slice().len() != members.len() {
            let (weights, members) = (weights.as_slice().len(), members.len());
            let error = headpond_raid::LayoutError::Weights { weights, members };
            return Err(Failure::usage(error));
        }
        let by_hand = outlook("set manually", weights.clone(), &known, strip_bytes);
        let notes = vec![told(&by_hand, &all[0])];
        return Ok(ChosenStriping { striping: Striping::Weighted(weights), notes });
    }
    Ok(match args.striping {
        StripingWord::Plain => {
            ChosenStriping { striping: Striping::Plain, notes: lost_by_plain(&all) }
        }
        StripingWord::Capacity => {
            ChosenStriping { striping: Striping::Capacity, notes: vec![told(&all[1], &all[0])] }
        }
        StripingWord::Speed => {
            let mut notes: Vec<String> = known.iter().filter_map(told_speed).collect();
            notes.push(told(&all[2], &all[0]));
            ChosenStriping { striping: Striping::Weighted(all[2].weights.clone()), notes }
        }
    })
}

/// The same for devices that are not open yet; other levels do not open them.
///
/// # Errors
/// As those of [`find`], and where one cannot be opened.
pub fn find_on(args: &ArrayArgs, members: &[DeviceSpec]) -> Result<ChosenStriping> {
    check(args)?;
    if args.raid != Some(Level::Raid0) {
        return Ok(ChosenStriping { striping: Striping::Plain, notes: Vec::new() });
    }
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let opener = Opener::new(ring, runtime.clone());
        let opened = opener.open_all(members).await?;
        find(args, &opened, &runtime).await
    })?
}

fn is_plain(args: &ArrayArgs) -> bool {
    args.weights.is_empty() && args.striping == StripingWord::Plain
}

fn told_speed(member: &Different) -> Option<String> {
    let speed = member.sequential_read_mb_per_s?;
    Some(format!("{} reads {speed:.0} MB/s", member.name))
}

/// The chosen striping compared with plain striping.
fn told(chosen: &Outlook, plain: &Outlook) -> String {
    format!(
        "striped by weights {} ({}): {}; a plain stripe would have {}",
        chosen.weights,
        chosen.striping,
        words(chosen),
        words(plain)
    )
}

fn words(outlook: &Outlook) -> String {
    let speed = outlook.sequential_read_mb_per_s.map(|speed| format!(" at {speed:.0} MB/s"));
    format!("{}{}", size(outlook.capacity_bytes), speed.unwrap_or_default())
}

/// None if all members have one size.
fn lost_by_plain(all: &[Outlook]) -> Vec<String> {
    let [plain, capacity, ..] = all else { return Vec::new() };
    let (has, could) = (plain.capacity_bytes, capacity.capacity_bytes);
    if (could as f64) < has as f64 * TOLD_SHARE {
        return Vec::new();
    }
    vec![format!(
        "a plain stripe uses as much of each member as the smallest has: {}; --striping capacity \
         would use {} (weights {}), --striping speed goes by what they read",
        size(has),
        size(could),
        capacity.weights
    )]
}
