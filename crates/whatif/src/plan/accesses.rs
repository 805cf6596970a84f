//! Accesses to drives that one small request takes, as the array's own plans say.
//!
//! A request reads what it needs from all drives at once, and then writes.

use crate::condition::Condition;
use headpond_raid::Layout;
use headpond_raid::layout::{Role, Strip, Stripe};
use headpond_raid::plan::{self, Extent, ParityTrust, StripeState};
use serde::Serialize;

/// Bytes of a random request.
const BLOCK_BYTES: u32 = 4096;

/// Of one request, or the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accesses {
    pub reads: f64,
    pub writes: f64,
    /// Of the writes, those to a place that was read before.
    #[serde(skip)]
    pub(super) returns: f64,
}

impl Accesses {
    pub(super) fn mean(all: &[Self]) -> Self {
        let of = |pick: fn(&Self) -> f64| all.iter().map(pick).sum::<f64>() / all.len() as f64;
        Self { reads: of(|it| it.reads), writes: of(|it| it.writes), returns: of(|it| it.returns) }
    }
}

/// What requests for each data strip take; where a member is lost, of the group that lacks it.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub reads: Vec<Accesses>,
    pub writes: Vec<Accesses>,
}

impl Requests {
    pub fn of(layout: &Layout, condition: Condition) -> Self {
        Self { reads: of_reads(layout, condition), writes: of_writes(layout, condition) }
    }
}

fn of_reads(layout: &Layout, condition: Condition) -> Vec<Accesses> {
    let one = Accesses { reads: 1.0, ..Accesses::default() };
    if !condition.lacks_member() || layout.copies() > 1 {
        return vec![one];
    }
    let span = 0..BLOCK_BYTES;
    of_each(layout, condition, |strip, lost| {
        if !lost.contains(&Strip::Data(strip)) {
            return one;
        }
        let state = StripeState { lost, parity: ParityTrust::Valid };
        let plan = plan::recovery(layout, &span, state).expect("one member may be lost");
        Accesses { reads: plan.reads.len() as f64, ..one }
    })
}

fn of_writes(layout: &Layout, condition: Condition) -> Vec<Accesses> {
    if layout.parity_strips() == 0 {
        let lost = usize::from(condition.lacks_member());
        let writes = (layout.copies() - lost) as f64;
        return vec![Accesses { writes, ..Accesses::default() }];
    }
    let parity = match condition {
        Condition::Uninitialised => ParityTrust::Stale,
        _ => ParityTrust::Valid,
    };
    of_each(layout, condition, |strip, lost| {
        let extent = Extent { strip, span: 0..BLOCK_BYTES };
        let plan = plan::write(layout, &[extent], StripeState { lost, parity });
        let reads = plan.expect("one member may be lost").reads;
        // The block and every parity strip, but for what was on the lost member.
        let is_written =
            |it: &Strip| !lost.contains(it) && !matches!(it, Strip::Data(other) if *other != strip);
        let is_read = |it: &Strip| reads.iter().any(|read| read.strip == *it);
        let written = || layout.strips().filter(is_written);
        Accesses {
            reads: reads.len() as f64,
            writes: written().count() as f64,
            returns: written().filter(is_read).count() as f64,
        }
    })
}

/// For all data strips of one group, for one turn of the rotation or of the first base permutation;
/// the first member is the one that is lost. Where none is, every stripe is like the first.
fn of_each(
    layout: &Layout,
    condition: Condition,
    of: impl Fn(u16, &[Strip]) -> Accesses,
) -> Vec<Accesses> {
    let turns = if layout.is_declustered() { layout.members() } else { layout.width() };
    let all = turns as u64 * layout.band_stripes();
    let first = if condition.lacks_member() { all } else { 1 };
    let stripes = (0..first).map(Stripe).filter(|stripe| layout.group_of(*stripe) == 0);
    let of_stripe = |stripe| {
        let is_lost = |strip: &Strip| layout.cell(stripe, *strip).role == Role(0);
        let gone: Vec<Strip> = layout.strips().filter(is_lost).collect();
        let lost = if condition.lacks_member() { &gone[..] } else { &[] };
        (0..layout.data_strips() as u16).map(|strip| of(strip, lost)).collect::<Vec<_>>()
    };
    stripes.flat_map(of_stripe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_raid::Level;

    fn layout(level: Level, members: usize) -> Layout {
        Layout::new(level, members, 1, 64 << 10, 1 << 40).unwrap()
    }

    fn writes(layout: &Layout, condition: Condition) -> Accesses {
        Accesses::mean(&of_writes(layout, condition))
    }

    #[test]
    fn without_parity_to_patch_the_whole_stripe_is_read() {
        let six = layout(Level::Raid6, 12);
        let patched = writes(&six, Condition::Healthy);
        assert_eq!(patched, Accesses { reads: 3.0, writes: 3.0, returns: 3.0 });
        let anew = writes(&six, Condition::Uninitialised);
        assert_eq!(anew, Accesses { reads: 9.0, writes: 3.0, returns: 0.0 });
        let anew = writes(&layout(Level::Raid5, 8), Condition::Uninitialised);
        assert_eq!(anew, Accesses { reads: 6.0, writes: 2.0, returns: 0.0 });
    }

    #[test]
    fn a_lost_member_costs_its_strips_reads_of_all_others() {
        let five = layout(Level::Raid5, 8);
        // 7 of 8 blocks are there, the eighth is made of 7 others.
        let reads = Accesses::mean(&of_reads(&five, Condition::Degraded)).reads;
        assert_eq!(reads, 14.0 / 8.0);
        // Of 8, data and parity are there in 6; without parity it is one write; without data the
        // 6 others are read, and parity is written.
        let accesses = writes(&five, Condition::Degraded);
        let (reads, writes) = ((6.0 * 2.0 + 6.0) / 8.0, (6.0 * 2.0 + 1.0 + 1.0) / 8.0);
        assert!((accesses.reads - reads).abs() < 1e-9, "{accesses:?}");
        assert!((accesses.writes - writes).abs() < 1e-9, "{accesses:?}");
        assert!((accesses.returns - 12.0 / 8.0).abs() < 1e-9, "{accesses:?}");
    }
}
