//! What an array loses, naively.

use std::collections::BTreeSet;

use headpond_raid::layout::{Layout, Role, Strip, StripCell, Stripe};

pub const SECTOR: u64 = 512;

/// The lost sectors of the array: naively, from missing members and bad sectors.
pub fn expected_lost(
    layout: &Layout,
    gone: &[Role],
    bad: impl Fn(Role, u64) -> bool,
) -> BTreeSet<u64> {
    let mut lost = BTreeSet::new();
    let per_strip = u64::from(layout.strip_bytes()) / SECTOR;
    for stripe in (0..layout.stripes()).map(Stripe) {
        let cells: Vec<(StripCell, Strip)> = match layout.level().is_mirrored() {
            true => (0..layout.copies())
                .map(|copy| (layout.cell_of_copy(stripe, copy), Strip::Data(0)))
                .collect(),
            false => layout.strips().map(|strip| (layout.cell(stripe, strip), strip)).collect(),
        };
        for sector in 0..per_strip {
            let is_unknown = |StripCell { role, row }: StripCell| {
                let place = layout.row_start(row) / SECTOR + sector;
                gone.contains(&role) || bad(role, place)
            };
            let unknown = cells.iter().filter(|(cell, _)| is_unknown(*cell));
            if unknown.clone().count() <= layout.redundancy() {
                continue;
            }
            lost.extend(unknown.filter_map(|(_, strip)| match strip {
                Strip::Data(k) => {
                    Some(layout.stripe_start(stripe) / SECTOR + u64::from(*k) * per_strip + sector)
                }
                Strip::P | Strip::Q => None,
            }));
        }
    }
    lost
}
