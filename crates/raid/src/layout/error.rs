//! Why an array cannot have a shape.

use thiserror::Error;

use super::MEMBERS_MAX;
use super::spread::SLOTS_MAX;
use super::weighted::WEIGHTED_MAX;
use crate::level::Level;

/// Why an array cannot have the shape that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    #[error("a strip of {0} bytes: it must be a power of two from 4 KiB to 1 MiB")]
    Strip(u32),
    #[error("{members} members: an array has 1 to {MEMBERS_MAX}")]
    Members { members: usize },
    #[error(
        "{level} with {groups} groups: this level has one group; use its striped form (10, 50, \
         60) or groups = 1"
    )]
    GroupsNotAllowed { level: Level, groups: usize },
    #[error(
        "{members} members cannot be divided evenly into {groups} groups; change one of the two"
    )]
    Uneven { members: usize, groups: usize },
    #[error(
        "{level} needs at least {needed} members in a group, and {found} were given; add members \
         or use fewer groups"
    )]
    TooFew { level: Level, needed: usize, found: usize },
    #[error(
        "a member has room for {data_bytes} bytes of data, less than one strip of {strip_bytes}; \
         use larger members"
    )]
    MemberTooSmall { data_bytes: u64, strip_bytes: u32 },
    #[error("{level} cannot be declustered; use level 5 or 6 with --width instead of groups")]
    NotDeclustered { level: Level },
    #[error("{level} has stripes of at least {needed} strips, not {width}")]
    TooNarrow { level: Level, needed: usize, width: usize },
    #[error("{spares} distributed spares: the maximum is {SLOTS_MAX}; use fewer")]
    TooManySlots { spares: usize },
    #[error(
        "stripes of {width} strips and {spares} distributed spares need {needed} to {MEMBERS_MAX} \
         members, and {members} were given; add members or use narrower stripes or fewer spares"
    )]
    TooFewForSpread { members: usize, width: usize, spares: usize, needed: usize },
    #[error(
        "a member has room for {rows} rows of strips, and this layout repeats after {needed}; use \
         larger members, a smaller strip, or a width that divides the members without the spares"
    )]
    TooFewRows { rows: u64, needed: u64 },
    #[error(
        "{weights} weights for {members} members: give one for each member, from 1 to 255, and at \
         most {WEIGHTED_MAX} members"
    )]
    Weights { weights: usize, members: usize },
    #[error("{level} cannot be striped by weights; use level 0, or members of one size and speed")]
    NotWeighted { level: Level },
}
