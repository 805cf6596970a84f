//! Where a sector lies: zones of equal track length, cylinders, heads, and the skew between tracks.
//!
//! Addresses run along a track, then through the heads of a cylinder, then to the next cylinder;
//! where the layout is serpentine, every other cylinder is gone through backwards.
//!
//! **Invariants**: zones are contiguous in addresses and rise in cylinders; every sector has one
//! place.

use super::angle::Angle;
use super::parameters::{GeometryParameters, Serpentine};
use super::zone::{Skews, Zone};
use crate::error::{ModelError, require};
use std::ops::Range;

/// A sector of 512 bytes, counted from the start of the drive.
pub(super) type Sector = u64;

pub(super) const SECTOR_BYTES: u64 = 512;

/// The place of a sector under the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadPosition {
    pub cylinder: u32,
    pub head: u32,
    /// Index on its track.
    pub index: u32,
    pub sectors_per_track: u32,
    /// Where its first bit lies.
    pub angle: Angle,
    /// This sector and those that follow it without a gap on the same track.
    pub run: u64,
}

impl HeadPosition {
    pub(super) fn is_on_track_of(&self, other: &Self) -> bool {
        (self.cylinder, self.head) == (other.cylinder, other.head)
    }
}

/// The map from addresses to places.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    zones: Vec<Zone>,
    heads: u32,
    serpentine: Serpentine,
    pub cylinders: u32,
    pub sectors: Sector,
}

impl Layout {
    /// Lays out the drive: as its zones were measured, or by cutting the capacity into zones of as
    /// many cylinders each, their tracks shrinking evenly inwards and set off by `skews`.
    ///
    /// # Errors
    /// Names the field that makes no drive.
    pub(super) fn new(parameters: &GeometryParameters, skews: Skews) -> Result<Self, ModelError> {
        parameters.check()?;
        let (zones, cylinders) = match parameters.zone_table.is_empty() {
            true => even_zones(parameters, skews)?,
            false => measured_zones(parameters),
        };
        let sectors = parameters.capacity_bytes / SECTOR_BYTES;
        let last = zones.last().expect("there is a zone");
        assert!(last.end_sector() >= sectors, "the zones hold the capacity");
        let (heads, serpentine) = (parameters.heads, parameters.serpentine);
        Ok(Self { zones, heads, serpentine, cylinders, sectors })
    }

    pub(super) fn place(&self, sector: Sector) -> HeadPosition {
        assert!(sector < self.sectors, "sector {sector} beyond the drive");
        let zone = &self.zones[self.zones.partition_point(|z| z.first_sector <= sector) - 1];
        let extent = zone.extent(sector);
        let position = extent.position + (sector - extent.first_sector);
        let per_track = u64::from(zone.sectors_per_track);
        let (track, index) = (position / per_track, position % per_track);
        let (within, turn) = (track / u64::from(self.heads), track % u64::from(self.heads));
        let cylinder = zone.first_cylinder + within as u32;
        let switches = turn + u64::from(self.heads - 1) * within;
        let angle = zone
            .offset
            .plus(zone.track_skew.times(switches))
            .plus(zone.cylinder_skew.times(within))
            .plus(Angle::fraction(index + u64::from(extent.turned), per_track));
        HeadPosition {
            cylinder,
            head: self.head(turn as u32, within, cylinder),
            index: index as u32,
            sectors_per_track: zone.sectors_per_track,
            angle,
            run: (per_track - index).min(extent.end_sector.min(self.sectors) - sector),
        }
    }

    /// The addresses on the track of `sector`, defects and spare sectors aside.
    pub(super) fn track_of(&self, sector: Sector) -> Range<Sector> {
        let place = self.place(sector);
        let mut end = sector + place.run;
        while end < self.sectors && self.place(end).is_on_track_of(&place) {
            end += self.place(end).run;
        }
        let mut start = sector - sector.min(place.index.into());
        while !self.place(start).is_on_track_of(&place) {
            start += self.place(start).run;
        }
        start..end
    }

    /// The head that the `turn`-th track of a cylinder belongs to.
    fn head(&self, turn: u32, within: u64, cylinder: u32) -> u32 {
        let is_backwards = match self.serpentine {
            Serpentine::No => false,
            Serpentine::ByZone => within % 2 == 1,
            Serpentine::ByCylinder => cylinder % 2 == 1,
        };
        if is_backwards { self.heads - 1 - turn } else { turn }
    }
}

fn measured_zones(parameters: &GeometryParameters) -> (Vec<Zone>, u32) {
    let mut zones = Vec::with_capacity(parameters.zone_table.len());
    let (mut first_sector, mut cylinders) = (0, 0);
    for zone in &parameters.zone_table {
        zones.push(Zone::measured(zone, first_sector, parameters.heads));
        first_sector += zone.sectors(parameters.heads);
        cylinders = zone.first_cylinder + zone.cylinders;
    }
    // A zone without addresses has no place in the order of addresses.
    zones.retain(|zone| zone.end_sector() > zone.first_sector);
    (zones, cylinders)
}

fn even_zones(
    parameters: &GeometryParameters,
    skews: Skews,
) -> Result<(Vec<Zone>, u32), ModelError> {
    let sectors = parameters.capacity_bytes / SECTOR_BYTES;
    let lengths: Vec<u32> = track_lengths(parameters).collect();
    let per_round: u64 = lengths.iter().map(|&n| u64::from(n * parameters.heads)).sum();
    let per_zone = u32::try_from(sectors.div_ceil(per_round)).unwrap_or(u32::MAX);
    let fits = u64::from(per_zone) * lengths.len() as u64 <= u64::from(u32::MAX);
    require(fits, "geometry.capacity_bytes", "is too large")?;
    let mut zones = Vec::with_capacity(lengths.len());
    let (mut first_cylinder, mut first_sector) = (0, 0);
    for sectors_per_track in lengths {
        let sectors = u64::from(per_zone) * u64::from(sectors_per_track * parameters.heads);
        let first = (first_cylinder, first_sector);
        zones.push(Zone::even(first, sectors_per_track, sectors, skews));
        first_cylinder += per_zone;
        first_sector += sectors;
    }
    Ok((zones, first_cylinder))
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
mod tests;
