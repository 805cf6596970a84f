//! Reading the bitmaps of the members: regions being written, writes that members missed, and
//! regions written to since a scrub signed them.
//!
//! **Invariant**: a page that no member has marks everything.

use std::ops::Range;

use super::judge::JudgedMembers;
use crate::array::{AbsenceFound, Bitmap, read_bitmap_page};
use crate::intent::IntentBitmap;
use crate::layout::{Layout, Role};
use crate::superblock::{RecordedState, RoleState};

/// What is known of the writes that members lack.
pub(super) async fn absence(verdict: &JudgedMembers, layout: &Layout) -> AbsenceFound {
    let record = &verdict.record;
    let Some(region_stripes) = record.intent_region_stripes else { return AbsenceFound::Unknown };
    if record.absent_since.is_some() {
        let marked = marked_regions(verdict, layout, Bitmap::Absence, region_stripes).await;
        return AbsenceFound::Marked(marked);
    }
    let is_active = |role: &Role| record.roles[role.index()].state == RoleState::Active;
    let roles = (0..layout.members()).map(|index| Role(index as u16));
    let empty: Vec<Role> = roles.filter(|role| !is_active(role)).collect();
    let was_whole = record.unreplaced(&empty).is_empty();
    // Writes that a log would repeat were not marked while no member was missing.
    let all_returned = !verdict.missing.iter().any(is_active);
    match was_whole && (record.state != RecordedState::DirtyLogged || all_returned) {
        true => AbsenceFound::Nothing,
        false => AbsenceFound::Unknown,
    }
}

/// The stripes whose checksums count for nothing: all of an array that grows, whose bitmap may be
/// of the other shape.
pub(super) async fn unsigned(verdict: &JudgedMembers, layout: &Layout) -> Vec<Range<u64>> {
    match verdict.record.integrity_region_stripes {
        Some(_) if verdict.record.reshape.is_some() => {
            std::iter::once(0..layout.stripes()).collect()
        }
        Some(region) => marked_regions(verdict, layout, Bitmap::Unsigned, region).await,
        None => Vec::new(),
    }
}

/// The union of what the members' bitmaps mark.
pub(super) async fn marked_regions(
    verdict: &JudgedMembers,
    layout: &Layout,
    kind: Bitmap,
    region_stripes: u64,
) -> Vec<Range<u64>> {
    let uuid = verdict.record.uuid;
    let mut bitmap = IntentBitmap::new(uuid, layout.stripes(), region_stripes);
    for number in 0..bitmap.pages() {
        let mut found = false;
        for device in verdict.found.in_use() {
            if let Ok(bytes) = read_bitmap_page(device, kind, number).await {
                found |= bitmap.merge(number, &bytes).is_ok();
            }
        }
        if !found {
            bitmap.mark_page(number);
        }
    }
    bitmap.marked(layout.stripes())
}

/// What ascending ranges have in common with others.
pub(super) fn shared(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut shared, mut rest) = (Vec::new(), others);
    for range in ranges {
        let passed = rest.partition_point(|other| other.end <= range.start);
        rest = &rest[passed..];
        let touching = rest.iter().take_while(|other| other.start < range.end);
        let part = |other: &Range<u64>| range.start.max(other.start)..range.end.min(other.end);
        shared.extend(touching.map(part));
    }
    shared
}

/// The parts of some ranges that are in another.
pub(super) fn within(ranges: Vec<Range<u64>>, whole: &Range<u64>) -> Vec<Range<u64>> {
    let part = |it: Range<u64>| it.start.max(whole.start)..it.end.min(whole.end);
    ranges.into_iter().map(part).filter(|it| !it.is_empty()).collect()
}
