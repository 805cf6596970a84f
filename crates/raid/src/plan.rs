//! The reads and writes for a change of one stripe, and for the recovery of its missing strips.
//!
//! Three plans keep the parity correct. *Full stripe*: everything is new, nothing is read.
//! *Reconstruct*: the data that is not written is read, the parity is recomputed.
//! *Read-modify-write*: the old data and the old parity are read, the parity is updated by the
//! difference. The one with the fewest device operations is used; all write the same strips, so the
//! reads decide. On a tie reconstruct wins over read-modify-write, because it does not rely on old
//! parity.
//!
//! All parity work of one plan is on its *hull*: the smallest span of a strip that contains the
//! spans of all extents. A hull costs bytes where two extents are at opposite ends of their strips,
//! and saves an operation on each parity strip.
//!
//! **Invariants**: a plan reads each strip at most once, reads no missing strip, and never derives
//! anything from stale parity.
//! **Not here**: buffers and devices (`array`), which member holds a strip (`layout`).

use std::ops::Range;

use smallvec::SmallVec;
use thiserror::Error;

use crate::layout::{Layout, Strip};
use crate::parity::Lost;

/// A part of a strip, in bytes from its start.
pub type Span = Range<u32>;

/// A part of a data strip that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of the data strip.
    pub strip: u16,
    pub span: Span,
}

/// A part of a strip to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripRead {
    pub strip: Strip,
    pub span: Span,
}

/// Whether the parity of a stripe matches its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParityTrust {
    Valid,
    /// Never computed, or possibly torn: to be recomputed from the data.
    Stale,
}

/// What is known of a stripe.
#[derive(Clone, Copy, Debug)]
pub struct StripeState<'a> {
    /// Strips that cannot be read or written.
    pub lost: &'a [Strip],
    pub parity: ParityTrust,
}

/// The kind of a write plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    FullStripe,
    Reconstruct,
    ReadModifyWrite,
    /// No parity strip is left to keep right.
    DataOnly,
}

/// How to carry out a write to one stripe. Written are always the extents that are not on a lost
/// strip, and the hull of each parity strip that is not lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    pub kind: PlanKind,
    pub hull: Span,
    /// Old contents that are needed, at most one read a strip.
    pub reads: SmallVec<[StripRead; 8]>,
    /// For reconstruct: old contents of lost strips, to be solved over the hull from what is read.
    pub lost: Option<Lost>,
}

/// How to get all data strips of a stripe over one span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryPlan {
    pub reads: SmallVec<[StripRead; 8]>,
    /// What is to be solved; `None` where no data strip is lost.
    pub lost: Option<Lost>,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("more strips of the stripe are missing than its parity can replace")]
    BeyondRedundancy,
    #[error("a strip is missing and the parity that should replace it is not valid")]
    StaleParity,
}

/// The cheapest correct plan for writing `extents`, which do not overlap.
///
/// # Errors Where too much is lost, or what is lost could only come from stale parity. Nothing may
/// be written then.
///
/// # Panics
/// Without extents.
pub fn write(
    layout: &Layout,
    extents: &[Extent],
    state: StripeState<'_>,
) -> Result<WritePlan, PlanError> {
    assert!(!extents.is_empty() && layout.parity_strips() > 0);
    let stripe = StripeWrite { layout, extents, state, hull: hull(extents) };
    if state.lost.len() > layout.parity_strips() {
        return Err(PlanError::BeyondRedundancy);
    }
    if stripe.parity_left().count() == 0 {
        return Ok(stripe.plan(PlanKind::DataOnly, SmallVec::new()));
    }
    let candidates = [stripe.reconstruct(), stripe.read_modify_write(), stripe.recover_all()];
    let cheapest = candidates.into_iter().flatten().min_by_key(|plan| plan.reads.len());
    cheapest.ok_or(PlanError::StaleParity)
}

/// How to get every data strip of a stripe over `span`.
///
/// # Errors
/// As for [`write()`].
pub fn recovery(
    layout: &Layout,
    span: &Span,
    state: StripeState<'_>,
) -> Result<RecoveryPlan, PlanError> {
    let lost = solution(layout, state)?;
    if lost.is_some() && state.parity == ParityTrust::Stale {
        return Err(PlanError::StaleParity);
    }
    let (p, q) = match lost {
        None => (false, false),
        Some(Lost::OneFromP(_)) => (true, false),
        Some(Lost::OneFromQ(_)) => (false, true),
        Some(Lost::Two(..)) => (true, true),
    };
    let data = data_strips(layout).filter(|strip| !state.lost.contains(strip));
    let parity = [(Strip::P, p), (Strip::Q, q)].into_iter().filter(|(_, used)| *used);
    let strips = data.chain(parity.map(|(strip, _)| strip));
    let reads = strips.map(|strip| StripRead { strip, span: span.clone() }).collect();
    Ok(RecoveryPlan { reads, lost })
}

/// The smallest span that holds all extents.
pub fn hull(extents: &[Extent]) -> Span {
    let start = extents.iter().map(|extent| extent.span.start).min().unwrap_or(0);
    let end = extents.iter().map(|extent| extent.span.end).max().unwrap_or(0);
    start..end
}

/// What lost data strips are to be solved from.
fn solution(layout: &Layout, state: StripeState<'_>) -> Result<Option<Lost>, PlanError> {
    let lost = |strip| state.lost.contains(&strip);
    let data: SmallVec<[u16; 4]> = state
        .lost
        .iter()
        .filter_map(|strip| match strip {
            Strip::Data(k) => Some(*k),
            Strip::P | Strip::Q => None,
        })
        .collect();
    let p = layout.parity_strips() >= 1 && !lost(Strip::P);
    let q = layout.parity_strips() >= 2 && !lost(Strip::Q);
    match data.as_slice() {
        [] => Ok(None),
        [k] if p => Ok(Some(Lost::OneFromP(*k))),
        [k] if q => Ok(Some(Lost::OneFromQ(*k))),
        [a, b] if p && q => Ok(Some(Lost::Two(*a.min(b), *a.max(b)))),
        _ => Err(PlanError::BeyondRedundancy),
    }
}

fn data_strips(layout: &Layout) -> impl Iterator<Item = Strip> {
    (0..layout.data_strips()).map(|k| Strip::Data(k as u16))
}

struct StripeWrite<'a> {
    layout: &'a Layout,
    extents: &'a [Extent],
    state: StripeState<'a>,
    hull: Span,
}

impl StripeWrite<'_> {
    /// Reads what is not written. Possible where every lost data strip is written over the whole
    /// hull.
    fn reconstruct(&self) -> Option<WritePlan> {
        let mut reads = SmallVec::new();
        for strip in data_strips(self.layout) {
            let Some(span) = self.gap(strip) else { continue };
            if self.state.lost.contains(&strip) {
                return None;
            }
            reads.push(StripRead { strip, span });
        }
        let kind = if reads.is_empty() { PlanKind::FullStripe } else { PlanKind::Reconstruct };
        Some(self.plan(kind, reads))
    }

    /// Reads what is written, and the parity. Possible where nothing is written to a lost strip.
    fn read_modify_write(&self) -> Option<WritePlan> {
        if self.state.parity == ParityTrust::Stale {
            return None;
        }
        let mut reads = SmallVec::new();
        for strip in data_strips(self.layout) {
            let Some(span) = self.written(strip) else { continue };
            if self.state.lost.contains(&strip) {
                return None;
            }
            reads.push(StripRead { strip, span });
        }
        let parity = self.parity_left();
        reads.extend(parity.map(|strip| StripRead { strip, span: self.hull.clone() }));
        Some(self.plan(PlanKind::ReadModifyWrite, reads))
    }

    /// Reads all that is left, solves the lost strips, then writes over them.
    fn recover_all(&self) -> Option<WritePlan> {
        let RecoveryPlan { reads, lost } = recovery(self.layout, &self.hull, self.state).ok()?;
        lost?;
        Some(WritePlan { kind: PlanKind::Reconstruct, hull: self.hull.clone(), reads, lost })
    }

    fn plan(&self, kind: PlanKind, reads: SmallVec<[StripRead; 8]>) -> WritePlan {
        WritePlan { kind, hull: self.hull.clone(), reads, lost: None }
    }

    fn parity_left(&self) -> impl Iterator<Item = Strip> {
        let parity = [Strip::P, Strip::Q].into_iter().take(self.layout.parity_strips());
        parity.filter(|strip| !self.state.lost.contains(strip))
    }

    /// The span from the first to the last byte that is written on a strip.
    fn written(&self, strip: Strip) -> Option<Span> {
        let spans = self.spans(strip);
        Some(spans.first()?.start..spans.last()?.end)
    }

    /// The span from the first to the last byte of the hull that is not written on a strip.
    fn gap(&self, strip: Strip) -> Option<Span> {
        let mut gap: Option<Span> = None;
        let mut at = self.hull.start;
        let end = self.hull.end..self.hull.end;
        for span in self.spans(strip).into_iter().chain([end]) {
            if at < span.start {
                let start = gap.map_or(at, |gap| gap.start);
                gap = Some(start..span.start);
            }
            at = at.max(span.end);
        }
        gap
    }

    fn spans(&self, strip: Strip) -> SmallVec<[Span; 4]> {
        let here = self.extents.iter().filter(|extent| Strip::Data(extent.strip) == strip);
        let mut spans: SmallVec<[Span; 4]> = here.map(|extent| extent.span.clone()).collect();
        spans.sort_by_key(|span| span.start);
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;

    const STRIP: u32 = 65536;

    fn raid6(data: usize) -> Layout {
        Layout::new(Level::Raid6, data + 2, 1, STRIP, 1 << 30).unwrap()
    }

    fn small(strip: u16) -> Extent {
        Extent { strip, span: 4096..8192 }
    }

    fn valid(lost: &[Strip]) -> StripeState<'_> {
        StripeState { lost, parity: ParityTrust::Valid }
    }

    fn strips(plan: &WritePlan) -> Vec<Strip> {
        plan.reads.iter().map(|read| read.strip).collect()
    }

    use Strip::{Data, P, Q};

    #[test]
    fn a_small_write_in_a_wide_stripe_is_patched_with_three_reads() {
        let plan = write(&raid6(8), &[small(5)], valid(&[])).unwrap();
        assert_eq!(plan.kind, PlanKind::ReadModifyWrite);
        assert_eq!(strips(&plan), [Data(5), P, Q]);
        assert_eq!(plan.hull, 4096..8192);
    }

    #[test]
    fn a_tie_is_reconstructed() {
        assert_eq!(write(&raid6(4), &[small(0)], valid(&[])).unwrap().kind, PlanKind::Reconstruct);
        let patched = write(&raid6(5), &[small(0)], valid(&[])).unwrap();
        assert_eq!(patched.kind, PlanKind::ReadModifyWrite);
    }

    #[test]
    fn a_write_of_everything_reads_nothing() {
        let all: Vec<_> = (0..8).map(|strip| Extent { strip, span: 0..STRIP }).collect();
        let plan = write(&raid6(8), &all, valid(&[])).unwrap();
        assert_eq!((plan.kind, plan.reads.len()), (PlanKind::FullStripe, 0));
        let row: Vec<_> = (0..8).map(small).collect();
        assert_eq!(write(&raid6(8), &row, valid(&[])).unwrap().kind, PlanKind::FullStripe);
    }

    #[test]
    fn small_writes_to_one_stripe_share_one_plan() {
        let extents: Vec<_> = (0..6).map(small).collect();
        let plan = write(&raid6(8), &extents, valid(&[])).unwrap();
        assert_eq!(plan.kind, PlanKind::Reconstruct);
        assert_eq!(strips(&plan), [Data(6), Data(7)]);
    }

    #[test]
    fn a_write_across_two_strips_works_on_the_hull_of_both() {
        let extents =
            [Extent { strip: 1, span: STRIP - 4096..STRIP }, Extent { strip: 2, span: 0..4096 }];
        let plan = write(&raid6(8), &extents, valid(&[])).unwrap();
        assert_eq!(plan.hull, 0..STRIP);
        assert_eq!(plan.reads.len(), 4);
        assert_eq!(plan.reads[0].span, STRIP - 4096..STRIP);
    }

    #[test]
    fn stale_parity_is_never_read() {
        let stale = StripeState { lost: &[], parity: ParityTrust::Stale };
        let plan = write(&raid6(8), &[small(3)], stale).unwrap();
        assert_eq!((plan.kind, plan.reads.len()), (PlanKind::Reconstruct, 7));
        let lost = StripeState { lost: &[Data(0)], parity: ParityTrust::Stale };
        assert_eq!(write(&raid6(8), &[small(3)], lost), Err(PlanError::StaleParity));
        assert!(write(&raid6(8), &[small(0)], lost).is_ok());
    }

    #[test]
    fn a_lost_strip_that_is_not_written_is_left_to_the_parity() {
        let plan = write(&raid6(8), &[small(3)], valid(&[Data(0), Data(1)])).unwrap();
        assert_eq!(plan.kind, PlanKind::ReadModifyWrite);
        let plan = write(&raid6(8), &[small(3)], valid(&[Data(0), P])).unwrap();
        assert_eq!(strips(&plan), [Data(3), Q]);
    }

    #[test]
    fn a_write_to_a_lost_strip_beside_another_recovers_both() {
        let plan = write(&raid6(4), &[small(1)], valid(&[Data(0), Data(1)])).unwrap();
        assert_eq!(plan.lost, Some(Lost::Two(0, 1)));
        assert_eq!(strips(&plan), [Data(2), Data(3), P, Q]);
    }

    #[test]
    fn without_parity_left_only_data_is_written() {
        let plan = write(&raid6(4), &[small(1)], valid(&[P, Q])).unwrap();
        assert_eq!((plan.kind, plan.reads.len()), (PlanKind::DataOnly, 0));
    }

    #[test]
    fn three_lost_strips_are_too_many() {
        let lost = [Data(0), Data(1), P];
        let attempt = write(&raid6(8), &[small(3)], valid(&lost));
        assert_eq!(attempt, Err(PlanError::BeyondRedundancy));
        let attempt = recovery(&raid6(8), &(0..4096), valid(&lost));
        assert_eq!(attempt, Err(PlanError::BeyondRedundancy));
    }
}
