//! The parts of the records of a stripe journal that later records overwrite, for the replay.
//!
//! The members may have had all records before, and clients their acknowledgements. Writing an
//! earlier record would revert that until the later one is written, which may never happen: so only
//! the newest content of every byte is written.

use std::collections::BTreeMap;
use std::ops::Range;

use super::record::Change;
use crate::layout::{Layout, StripCell, Stripe};
use crate::plan::Span;

/// Zeros are looked for among those that touch the same so many stripes.
const NEIGHBOURS: u64 = 1024;

/// Every change of the records that count, by where it goes; ascending by their numbers.
#[derive(Default)]
pub struct Later {
    contents: BTreeMap<StripCell, Vec<(Span, u64)>>,
    zeros: BTreeMap<u64, Vec<(Range<u64>, u32, u64)>>,
}

impl Later {
    /// The record of number `sequence` has this change.
    pub fn note(&mut self, layout: &Layout, sequence: u64, change: &Change) {
        match change {
            Change::Content { stripe, strip, span } => {
                let cell = layout.cell(*stripe, *strip);
                self.contents.entry(cell).or_default().push((span.clone(), sequence));
            }
            Change::Zeros { stripes, step } => {
                let last = stripes.end.saturating_sub(1).max(stripes.start) / NEIGHBOURS;
                for place in stripes.start / NEIGHBOURS..=last {
                    let there = self.zeros.entry(place).or_default();
                    there.push((stripes.clone(), *step, sequence));
                }
            }
        }
    }

    /// The parts of a span that no record after `sequence` has something for.
    pub fn left(&self, stripe: Stripe, cell: StripCell, span: Span, sequence: u64) -> Vec<Span> {
        let is_zeroed = |(stripes, step, _): &(Range<u64>, u32, u64)| {
            stripes.contains(&stripe.0)
                && (stripe.0 - stripes.start).is_multiple_of(u64::from(*step))
        };
        let zeros = self.zeros.get(&(stripe.0 / NEIGHBOURS)).into_iter().flatten();
        if zeros.rev().take_while(|(_, _, by)| *by > sequence).any(is_zeroed) {
            return Vec::new();
        }
        let mut left = vec![span];
        let contents = self.contents.get(&cell).into_iter().flatten();
        for (over, _) in contents.rev().take_while(|(_, by)| *by > sequence) {
            left = left.into_iter().flat_map(|part| without(part, over)).collect();
            if left.is_empty() {
                break;
            }
        }
        left
    }
}

fn without(part: Span, over: &Span) -> impl Iterator<Item = Span> {
    let before = part.start..part.end.min(over.start);
    let after = part.start.max(over.end)..part.end;
    [before, after].into_iter().filter(|it| it.start < it.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Strip;
    use crate::level::Level;
    use proptest::prelude::*;

    const STRIP: u32 = 4096;
    const STRIPES: u64 = 6;

    fn changes() -> impl Strategy<Value = Change> {
        let content =
            (0..STRIPES, 0_u8..3, 0..7_u32, 1..8_u32).prop_map(|(stripe, at, start, len)| {
                let strip = [Strip::Data(0), Strip::Data(1), Strip::P][usize::from(at)];
                let span = start * 512..((start + len) * 512).min(STRIP);
                Change::Content { stripe: Stripe(stripe), strip, span }
            });
        let zeros = (0..STRIPES, 1..STRIPES, 1..3_u32).prop_map(|(start, len, step)| {
            let stripes = start..(start + len).min(STRIPES);
            Change::Zeros { stripes, step }
        });
        prop_oneof![4 => content, 1 => zeros]
    }

    /// What a change writes.
    fn spans(layout: &Layout, change: &Change) -> Vec<(Stripe, StripCell, Span)> {
        match change {
            Change::Content { stripe, strip, span } => {
                vec![(*stripe, layout.cell(*stripe, *strip), span.clone())]
            }
            Change::Zeros { stripes, step } => {
                let stripes = stripes.clone().step_by(*step as usize).map(Stripe);
                let strips = |stripe| layout.strips().map(move |strip| (stripe, strip));
                let all = stripes.flat_map(strips);
                all.map(|(stripe, strip)| (stripe, layout.cell(stripe, strip), 0..STRIP)).collect()
            }
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_left_to_the_last_record_that_has_something_for_it(
            records in prop::collection::vec(changes(), 1..12),
        ) {
            let bytes = STRIPES * u64::from(STRIP);
            let layout = Layout::new(Level::Raid5, 3, 1, STRIP, bytes).expect("a shape");
            let (mut later, mut last) = (Later::default(), BTreeMap::new());
            for (sequence, change) in (0..).zip(&records) {
                later.note(&layout, sequence, change);
                for (_, cell, span) in spans(&layout, change) {
                    last.extend(span.step_by(512).map(|at| ((cell, at), sequence)));
                }
            }
            let mut written = BTreeMap::new();
            for (sequence, change) in (0..).zip(&records) {
                for (stripe, cell, span) in spans(&layout, change) {
                    for part in later.left(stripe, cell, span, sequence) {
                        for at in part.step_by(512) {
                            prop_assert_eq!(written.insert((cell, at), sequence), None);
                        }
                    }
                }
            }
            prop_assert_eq!(written, last);
        }
    }
}
