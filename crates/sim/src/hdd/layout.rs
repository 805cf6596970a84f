//! Where a sector lies: zones of equal track length, cylinders, heads, and the skew between tracks.
//!
//! Addresses run along a track, then through the heads of a cylinder, then to the next cylinder.
//!
//! **Invariants**: zones are contiguous in cylinders and in addresses; every sector has one place.
//!
//! **Not here**: defects and spare sectors; serpentine orders within a zone.

use super::{ModelError, parameters::GeometryParameters};

/// A sector of 512 bytes, counted from the start of the drive.
pub(super) type Sector = u64;

pub(super) const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug)]
struct Zone {
    first_cylinder: u32,
    first_sector: Sector,
    sectors_per_track: u32,
}

/// The place of a sector under the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub cylinder: u32,
    pub head: u32,
    /// Index on its track.
    pub index: u32,
    pub sectors_per_track: u32,
}

/// The map from addresses to places.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    zones: Vec<Zone>,
    heads: u32,
    pub cylinders: u32,
    pub sectors: Sector,
}

impl Layout {
    /// Cuts the capacity into zones of as many cylinders each, their tracks shrinking evenly
    /// inwards.
    ///
    /// # Errors
    /// Names the field that makes no drive.
    pub(super) fn new(parameters: &GeometryParameters) -> Result<Self, ModelError> {
        parameters.check()?;
        let sectors = parameters.capacity_bytes / SECTOR_BYTES;
        let lengths: Vec<u32> = track_lengths(parameters).collect();
        let per_round: u64 = lengths.iter().map(|&n| u64::from(n * parameters.heads)).sum();
        let too_large =
            ModelError::Invalid { field: "geometry.capacity_bytes", reason: "too large" };
        let per_zone = u32::try_from(sectors.div_ceil(per_round)).map_err(|_| too_large)?;
        let mut zones = Vec::with_capacity(lengths.len());
        let (mut first_cylinder, mut first_sector) = (0, 0);
        for sectors_per_track in lengths {
            zones.push(Zone { first_cylinder, first_sector, sectors_per_track });
            first_cylinder += per_zone;
            first_sector += u64::from(per_zone) * u64::from(sectors_per_track * parameters.heads);
        }
        assert!(first_sector >= sectors, "the zones hold the capacity");
        Ok(Self { zones, heads: parameters.heads, cylinders: first_cylinder, sectors })
    }

    pub(super) fn place(&self, sector: Sector) -> Place {
        assert!(sector < self.sectors, "sector {sector} beyond the drive");
        let zone = &self.zones[self.zones.partition_point(|z| z.first_sector <= sector) - 1];
        let within = sector - zone.first_sector;
        let per_track = u64::from(zone.sectors_per_track);
        let track = within / per_track;
        Place {
            cylinder: zone.first_cylinder + (track / u64::from(self.heads)) as u32,
            head: (track % u64::from(self.heads)) as u32,
            index: (within % per_track) as u32,
            sectors_per_track: zone.sectors_per_track,
        }
    }
}

/// Sectors per track, zone by zone from the outside in, whole physical sectors each.
fn track_lengths(parameters: &GeometryParameters) -> impl Iterator<Item = u32> {
    let unit = parameters.physical_sector_bytes / SECTOR_BYTES as u32;
    let (outer, inner) = (parameters.outer_sectors_per_track, parameters.inner_sectors_per_track);
    let steps = (parameters.zones - 1).max(1);
    (0..parameters.zones).map(move |zone| {
        let length = outer - (u64::from(outer - inner) * u64::from(zone) / u64::from(steps)) as u32;
        length.next_multiple_of(unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hdd::HddModel;

    fn layout() -> Layout {
        HddModel::builtin("hdd-7k2-4t").unwrap().layout().clone()
    }

    #[test]
    fn four_terabytes_take_the_tracks_that_the_manual_states() {
        let cylinders = layout().cylinders;
        assert!((320_000..322_000).contains(&cylinders), "{cylinders} cylinders");
    }

    #[test]
    fn neighbours_in_address_are_neighbours_in_place() {
        let layout = layout();
        for start in (0..layout.sectors - 5000).step_by(999_999_937) {
            for sector in start..start + 4000 {
                let (a, b) = (layout.place(sector), layout.place(sector + 1));
                let same_track = (a.cylinder, a.head, a.index + 1) == (b.cylinder, b.head, b.index);
                let next_track = b.index == 0 && a.index + 1 == a.sectors_per_track;
                assert!(same_track || next_track, "{a:?} then {b:?}");
            }
        }
    }

    #[test]
    fn outer_tracks_are_longer() {
        let layout = layout();
        let lengths: Vec<u32> = (0..layout.sectors)
            .step_by(100_000_000)
            .map(|sector| layout.place(sector).sectors_per_track)
            .collect();
        assert!(lengths.is_sorted_by(|a, b| a >= b));
        assert!(lengths.iter().all(|n| n.is_multiple_of(8)));
    }
}
