//! Assembling an array during a reshape.
//!
//! Members whose first half records the *reshape* have a second half, which describes the array of
//! more members. 1. Membership of that one is decided by the second halves, or by the first ones,
//! where a cut came while those were overwritten; 2. where everything has moved, it is the array,
//! and the former one is no longer used; 3. else both are assembled, each from its own halves, and
//! torn stripes are looked for only where each has data.
//!
//! A first half with the reshape is valid only where the array as it was agrees: the event may have
//! been cut, and the array have continued without the members that it reached.

use std::rc::Rc;

use headpond_block::{BlockDevice, DeviceError, Runtime};

use super::judge::{JudgedMembers, judge};
use super::{AssembleError, AssembleOptions, Assembled, Candidate, Prepared};
use crate::array::{Inspection, Reshape, SecondHalf, inspect};
use crate::reshape::{Way, stage_rows};
use crate::superblock::{ArrayRecord, RecordedReshape, Superblock};

/// The devices as members of the array of more members.
struct Next {
    candidates: Vec<Candidate>,
    halves: Vec<Rc<SecondHalf>>,
}

/// Decides how the array is put together to which the candidates belong.
pub(super) async fn put_together(
    runtime: &Runtime,
    candidates: Vec<Candidate>,
    options: &AssembleOptions,
) -> Result<Prepared, AssembleError> {
    let is_former = |it: &&Candidate| it.superblock.array.reshape == Some(RecordedReshape::Former);
    let members = candidates.iter().filter(is_former).map(|it| it.superblock.array.roles.len());
    // One with fewer was left behind by an earlier growth.
    let Some(members) = members.max() else {
        return super::put_together(runtime, judge(candidates)?, options).await;
    };
    let (former, next) = sort(candidates, members).await?;
    let Next { candidates, halves } = next;
    let next = judge(candidates);
    if let Ok(verdict) = &next
        && has_moved(&verdict.record)
    {
        let mut prepared = super::put_together(runtime, next?, options).await?;
        let array = prepared.assembled.array;
        let reshape = Reshape::new(None, &array, halves);
        prepared.assembled.array = array.growing_by(reshape);
        return Ok(prepared);
    }
    let former = judge(former)?;
    match former.record.reshape {
        None => super::put_together(runtime, former, options).await,
        Some(_) => both(runtime, (former, next?), halves, options).await,
    }
}

/// An array, and the one from which its data moves.
async fn both(
    runtime: &Runtime,
    (mut former, mut next): (JudgedMembers, JudgedMembers),
    halves: Vec<Rc<SecondHalf>>,
    options: &AssembleOptions,
) -> Result<Prepared, AssembleError> {
    if !fits(&former.record, &next.record) {
        return Err(AssembleError::Misgrown { name: next.record.name });
    }
    divide(&mut former, &mut next);
    let former = super::put_together(runtime, former, options).await?;
    let mut next = super::put_together(runtime, next, options).await?;
    let Assembled { array: former_array, stale, warnings, .. } = former.assembled;
    let Assembled { array, .. } = next.assembled;
    let reshape = Reshape::new(Some(former_array), &array, halves);
    next.assembled.array = array.growing_by(reshape);
    let assembled = &mut next.assembled;
    add_missing(&mut assembled.stale, stale);
    add_missing(&mut assembled.warnings, warnings);
    next.former_beginning = Some(former.beginning);
    Ok(next)
}

/// Whether one array can have been begun as the other, grown.
fn fits(former: &ArrayRecord, next: &ArrayRecord) -> bool {
    let row = |record: &ArrayRecord| {
        let layout = record.layout().expect("a decoded superblock has a shape");
        layout.stripe_bytes() * layout.groups() as u64
    };
    former.uuid == next.uuid
        && former.level == next.level
        && former.strip_bytes == next.strip_bytes
        && former.data_offset == next.data_offset
        && former.member_data_bytes == next.member_data_bytes
        && former.declustering.is_none()
        && stage_rows(next.strip_bytes) > 0
        && row(former) < row(next)
}

/// Says which stripes of each have data.
fn divide(former: &mut JudgedMembers, next: &mut JudgedMembers) {
    let layouts = [&former.record, &next.record].map(|it| it.layout().expect("a shape"));
    let way = Way::new(&layouts[0], &layouts[1]);
    let moved_rows = match next.record.reshape {
        Some(RecordedReshape::Next { moved_rows, .. }) => moved_rows,
        _ => way.rows(),
    };
    former.stripes.start = way.moved_bytes(moved_rows) / layouts[0].stripe_bytes();
    next.stripes.end = moved_rows * layouts[1].groups() as u64;
}

/// Devices as members of the former array, of so many members, and of the next one.
///
/// # Errors
/// Where a second half cannot be read or used that has to be there.
async fn sort(
    candidates: Vec<Candidate>,
    members: usize,
) -> Result<(Vec<Candidate>, Next), AssembleError> {
    let mut former = Vec::new();
    let mut next = Next { candidates: Vec::new(), halves: Vec::new() };
    for candidate in candidates {
        if candidate.superblock.array.roles.len() > members {
            let (device, uuid) = (Rc::clone(&candidate.device), candidate.superblock.member_uuid);
            next.add(SecondHalf::moved(device, uuid), candidate.superblock);
            continue;
        }
        if candidate.superblock.array.reshape == Some(RecordedReshape::Former) {
            // One that cannot be read is a member of the former array alone, and missing here.
            if let Ok((half, found)) = second_half(&candidate).await {
                next.add(half, needed(found, &candidate.device)?);
            }
        }
        former.push(candidate);
    }
    for candidate in former.iter().filter(|it| it.superblock.array.reshape.is_none()) {
        if let Ok((half, Inspection::Member(second))) = second_half(candidate).await
            && next.has_begun_with(&second)
        {
            next.add(half, *second);
        }
    }
    Ok((former, next))
}

async fn second_half(candidate: &Candidate) -> Result<(SecondHalf, Inspection), DeviceError> {
    let device = Rc::clone(&candidate.device);
    let half = SecondHalf::of(device, candidate.superblock.member_uuid);
    let found = inspect(&half).await?;
    Ok((half, found))
}

fn needed(found: Inspection, device: &Rc<dyn BlockDevice>) -> Result<Superblock, AssembleError> {
    let device = device.name().clone();
    match found {
        Inspection::Member(second) => Ok(*second),
        Inspection::Unusable(cause) => Err(AssembleError::Unusable { device, cause }),
        Inspection::Empty | Inspection::Foreign => Err(AssembleError::HalfMissing { device }),
    }
}

impl Next {
    fn add(&mut self, half: SecondHalf, superblock: Superblock) {
        let half = Rc::new(half);
        self.halves.push(Rc::clone(&half));
        self.candidates.push(Candidate { device: half, superblock });
    }

    /// Whether this one was described with the others, and nothing has come of that yet: a cut came
    /// before its first half said that the second one counts.
    fn has_begun_with(&self, second: &Superblock) -> bool {
        self.candidates.iter().any(|it| it.superblock.array == second.array)
    }
}

/// Whether nothing is left where the former array had it.
fn has_moved(record: &ArrayRecord) -> bool {
    let rows = record.layout().expect("a decoded superblock has a shape").rows();
    match record.reshape {
        None => true,
        Some(reshape) => reshape == RecordedReshape::Next { moved_rows: rows, staged_rows: 0 },
    }
}

fn add_missing<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}
