//! Which places of a zone hold addresses, by the sparing schemes of `dm_layout_g1`.
//!
//! A zone is cut into groups (the zone, ranges of cylinders, cylinders or tracks). In each group
//! addresses take the places in order, passing over slipped defects and spare places, until the
//! group has as many as it should or is full.
//!
//! Where slips use the spares of their group, the group holds a fixed number of addresses and
//! slips push the last ones into the spares; where they are made up at the end of the zone or the
//! disk, spares stay free and later addresses move on.

use crate::hdd::ExtentParameters;
use std::collections::BTreeMap;

/// `Sparing scheme used`, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    None = 0,
    TracksOfZone = 1,
    Cylinder = 2,
    Track = 3,
    CylinderSlipsToEnd = 4,
    CylinderFront = 5,
    CylinderFrontSlipsToEnd = 6,
    EndOfDisk = 7,
    Range = 8,
    Zone = 9,
    ZoneSlipsToEnd = 10,
}

impl Scheme {
    pub(super) const ALL: [Self; 11] = [
        Self::None,
        Self::TracksOfZone,
        Self::Cylinder,
        Self::Track,
        Self::CylinderSlipsToEnd,
        Self::CylinderFront,
        Self::CylinderFrontSlipsToEnd,
        Self::EndOfDisk,
        Self::Range,
        Self::Zone,
        Self::ZoneSlipsToEnd,
    ];
}

/// One zone as the files describe it; lengths were checked.
#[derive(Clone, Debug)]
pub(super) struct Spared {
    pub scheme: Scheme,
    pub cylinders: u64,
    pub heads: u64,
    pub per_track: u64,
    /// Reserved at the front of the zone, before its first address.
    pub reserved: u64,
    pub spares: u64,
    pub cylinders_per_range: u64,
    /// Defective places or tracks, rising.
    pub slips: Vec<u64>,
    /// Defective places or tracks, and what took their place.
    pub remapped: BTreeMap<u64, u64>,
}

/// Places in order, of which the first addresses are taken.
struct Group {
    first: u64,
    end: u64,
    /// Addresses it holds at most.
    quota: u64,
}

impl Spared {
    fn per_cylinder(&self) -> u64 {
        self.heads * self.per_track
    }

    fn places(&self) -> u64 {
        self.cylinders * self.per_cylinder()
    }

    fn tracks(&self) -> u64 {
        self.cylinders * self.heads
    }

    /// Addresses in the zone; none where there are fewer places than it keeps back.
    pub(super) fn addresses(&self) -> Option<u64> {
        let slips = self.slips.len() as u64;
        let kept_back = match self.scheme {
            Scheme::None => 0,
            Scheme::TracksOfZone => self.spares.checked_mul(self.per_track)?,
            Scheme::Cylinder | Scheme::CylinderFront => self.spares.checked_mul(self.cylinders)?,
            Scheme::CylinderSlipsToEnd | Scheme::CylinderFrontSlipsToEnd => {
                self.spares.checked_mul(self.cylinders)?.checked_add(slips)?
            }
            Scheme::Track => self.spares.checked_mul(self.tracks())?,
            Scheme::EndOfDisk => slips,
            Scheme::Range => self.spares.checked_mul(self.cylinders / self.cylinders_per_range)?,
            Scheme::Zone => self.spares,
            Scheme::ZoneSlipsToEnd => self.spares.checked_add(slips)?,
        };
        self.places().checked_sub(self.reserved)?.checked_sub(kept_back)
    }

    /// Groups that keep spares of their own.
    pub(super) fn groups_with_spares(&self) -> u64 {
        match self.scheme {
            Scheme::Track => self.tracks(),
            Scheme::Cylinder
            | Scheme::CylinderSlipsToEnd
            | Scheme::CylinderFront
            | Scheme::CylinderFrontSlipsToEnd => self.cylinders,
            Scheme::Range => self.cylinders / self.cylinders_per_range,
            _ => 1,
        }
    }

    /// Where the addresses of the zone lie, in their order.
    pub(super) fn extents(&self) -> Vec<ExtentParameters> {
        let mut found = Extents { list: Vec::new(), skip: self.reserved };
        let mut left = self.addresses().unwrap_or(0);
        for group in self.groups() {
            let mut quota = group.quota;
            let mut from = group.first;
            while from < group.end && quota > 0 && left > 0 {
                let slip = self.next_slip(from, group.end);
                let sectors = (slip - from).min(quota);
                left -= found.add(self, from, sectors, left);
                quota -= sectors;
                from = slip + self.slip_sectors();
            }
        }
        self.remap(found.list)
    }

    fn groups(&self) -> Vec<Group> {
        let whole = |length: u64, quota: u64| {
            let count = self.places().div_ceil(length.max(1));
            (0..count).map(move |index| {
                let first = index * length;
                Group { first, end: (first + length).min(self.places()), quota }
            })
        };
        let (per_cylinder, spares) = (self.per_cylinder(), self.spares);
        let kept = per_cylinder.saturating_sub(spares);
        match self.scheme {
            Scheme::Cylinder => whole(per_cylinder, kept).collect(),
            Scheme::Track => whole(self.per_track, self.per_track.saturating_sub(spares)).collect(),
            Scheme::CylinderSlipsToEnd => whole(per_cylinder, kept)
                .map(|group| Group { end: group.first + kept, ..group })
                .collect(),
            Scheme::CylinderFront => whole(per_cylinder, kept)
                .map(|group| {
                    let used = self.slips_between(group.first + spares, group.end);
                    Group { first: group.first + spares.saturating_sub(used), ..group }
                })
                .collect(),
            Scheme::CylinderFrontSlipsToEnd => whole(per_cylinder, kept)
                .map(|group| Group { first: group.first + spares, ..group })
                .collect(),
            Scheme::Range => {
                let range = per_cylinder.saturating_mul(self.cylinders_per_range);
                whole(range, range.saturating_sub(spares)).collect()
            }
            _ => whole(self.places(), u64::MAX).collect(),
        }
    }

    /// The first defect at or behind `from`, or `end`.
    fn next_slip(&self, from: u64, end: u64) -> u64 {
        let unit = self.slip_sectors();
        let index = self.slips.partition_point(|slip| slip * unit < from);
        self.slips.get(index).map_or(end, |slip| (slip * unit).min(end))
    }

    fn slips_between(&self, from: u64, end: u64) -> u64 {
        let below = |place: u64| self.slips.partition_point(|slip| *slip < place) as u64;
        below(end).saturating_sub(below(from))
    }

    /// A slip is a track where tracks are spared.
    fn slip_sectors(&self) -> u64 {
        if self.scheme == Scheme::TracksOfZone { self.per_track } else { 1 }
    }

    /// Sectors by which slips push the start of the track at `position` on.
    fn turned(&self, position: u64) -> u32 {
        let before = match self.scheme {
            Scheme::Cylinder
            | Scheme::CylinderSlipsToEnd
            | Scheme::CylinderFront
            | Scheme::CylinderFrontSlipsToEnd => position - position % self.per_cylinder(),
            Scheme::Track => position - position % self.per_track,
            _ => 0,
        };
        self.slips.partition_point(|slip| *slip < before) as u32
    }

    /// Puts the replacements in the place of remapped defects.
    fn remap(&self, extents: Vec<ExtentParameters>) -> Vec<ExtentParameters> {
        let unit = self.slip_sectors();
        let mut list = extents;
        for (&defect, &replacement) in self.remapped.iter().filter(|(from, to)| from != to) {
            list = list
                .into_iter()
                .flat_map(|extent| split(extent, defect * unit, replacement * unit, unit))
                .collect();
        }
        list
    }
}

/// An extent with the places from `defect` moved to `replacement`.
fn split(
    extent: ExtentParameters,
    defect: u64,
    replacement: u64,
    unit: u64,
) -> Vec<ExtentParameters> {
    let (first, end) = (extent.position, extent.position + extent.sectors);
    let (from, to) = (defect.clamp(first, end), (defect + unit).clamp(first, end));
    if from == to {
        return vec![extent];
    }
    let moved = replacement + (from - defect);
    [(first, from - first), (moved, to - from), (to, end - to)]
        .into_iter()
        .filter(|(_, sectors)| *sectors > 0)
        .map(|(position, sectors)| ExtentParameters { position, sectors, ..extent })
        .collect()
}

struct Extents {
    list: Vec<ExtentParameters>,
    /// Addresses of the reserved space that are still to be passed over.
    skip: u64,
}

impl Extents {
    /// Adds places, cut where the tracks are pushed on; how many of them got an address.
    fn add(&mut self, zone: &Spared, position: u64, sectors: u64, most: u64) -> u64 {
        let skipped = self.skip.min(sectors);
        self.skip -= skipped;
        let (mut position, end) = (position + skipped, position + sectors);
        let mut left = (end - position).min(most);
        let added = left;
        while left > 0 {
            let turned_sectors = zone.turned(position);
            // Groups are at least as short as what is pushed on as a whole.
            let sectors = match zone.scheme {
                Scheme::CylinderSlipsToEnd | Scheme::CylinderFrontSlipsToEnd => {
                    left.min(zone.per_cylinder() - position % zone.per_cylinder())
                }
                _ => left,
            };
            self.push(ExtentParameters { position, sectors, turned_sectors });
            position += sectors;
            left -= sectors;
        }
        added
    }

    fn push(&mut self, extent: ExtentParameters) {
        match self.list.last_mut() {
            Some(last)
                if last.position + last.sectors == extent.position
                    && last.turned_sectors == extent.turned_sectors =>
            {
                last.sectors += extent.sectors;
            }
            _ => self.list.push(extent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three cylinders of two tracks of ten sectors.
    fn zone(scheme: Scheme, spares: u64, slips: &[u64]) -> Spared {
        Spared {
            scheme,
            cylinders: 3,
            heads: 2,
            per_track: 10,
            reserved: 0,
            spares,
            cylinders_per_range: 2,
            slips: slips.to_vec(),
            remapped: BTreeMap::new(),
        }
    }

    fn places(zone: &Spared) -> Vec<u64> {
        let extents = zone.extents();
        let places: Vec<u64> =
            extents.iter().flat_map(|e| e.position..e.position + e.sectors).collect();
        assert_eq!(places.len() as u64, zone.addresses().unwrap(), "{zone:?}");
        places
    }

    fn all_but(spared: &[u64]) -> Vec<u64> {
        (0..60).filter(|place| !spared.contains(place)).collect()
    }

    #[test]
    fn without_spares_every_place_has_an_address() {
        assert_eq!(places(&zone(Scheme::None, 0, &[])), all_but(&[]));
    }

    #[test]
    fn slips_use_the_spares_of_their_cylinder_range_track_or_zone() {
        assert_eq!(places(&zone(Scheme::Cylinder, 2, &[3])), all_but(&[3, 19, 38, 39, 58, 59]));
        assert_eq!(
            places(&zone(Scheme::Track, 1, &[3])),
            all_but(&[3, 19, 29, 39, 49, 59]),
            "the spare at 9 is used"
        );
        // The last range is short and has no spares.
        assert_eq!(places(&zone(Scheme::Range, 2, &[3])), all_but(&[3, 39]));
        assert_eq!(places(&zone(Scheme::Zone, 3, &[3, 7])), all_but(&[3, 7, 59]));
    }

    #[test]
    fn slips_that_are_made_up_at_the_end_leave_the_spares_free() {
        let spared = [3, 18, 19, 38, 39, 58, 59];
        assert_eq!(places(&zone(Scheme::CylinderSlipsToEnd, 2, &[3])), all_but(&spared));
        assert_eq!(
            places(&zone(Scheme::CylinderFront, 2, &[3])),
            all_but(&[0, 3, 20, 21, 40, 41]),
            "the spare at 1 is used"
        );
        let front = [0, 1, 3, 20, 21, 40, 41];
        assert_eq!(places(&zone(Scheme::CylinderFrontSlipsToEnd, 2, &[3])), all_but(&front));
        assert_eq!(places(&zone(Scheme::EndOfDisk, 0, &[3, 30])), all_but(&[3, 30]));
        assert_eq!(places(&zone(Scheme::ZoneSlipsToEnd, 2, &[3])), all_but(&[3, 58, 59]));
    }

    #[test]
    fn whole_tracks_are_slipped_and_spared() {
        let mut spared: Vec<u64> = (10..20).collect();
        spared.extend(50..60);
        assert_eq!(places(&zone(Scheme::TracksOfZone, 2, &[1])), all_but(&spared));
    }

    #[test]
    fn reserved_space_comes_before_the_first_address() {
        let mut zone = zone(Scheme::EndOfDisk, 0, &[3]);
        zone.reserved = 5;
        assert_eq!(places(&zone), (6..60).collect::<Vec<_>>());
        zone.reserved = 61;
        assert_eq!(zone.addresses(), None);
    }

    #[test]
    fn a_remapped_defect_lies_elsewhere() {
        let mut zone = zone(Scheme::Zone, 1, &[]);
        zone.remapped.insert(5, 59);
        let places = places(&zone);
        assert_eq!(places[4..7], [4, 59, 6]);
    }

    #[test]
    fn slips_push_the_tracks_behind_them_on() {
        let zone = zone(Scheme::Cylinder, 1, &[3]);
        let turned: Vec<(u64, u32)> =
            zone.extents().iter().map(|e| (e.position, e.turned_sectors)).collect();
        assert_eq!(turned, [(0, 0), (4, 0), (20, 1), (40, 1)]);
    }
}
