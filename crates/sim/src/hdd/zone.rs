//! Zones of a drive: cylinders with tracks of one length.
//!
//! A zone is described by its tracks and by its *extents*: runs of addresses that lie on
//! consecutive places. Defects that are slipped, spare sectors and reserved space are what lies
//! between extents, so no more needs to be known of how a drive spares.

use super::angle::Angle;
use super::parameters::GeometryParameters;
use super::{ModelError, layout::Sector};
use crate::error::require;
use serde::Deserialize;

/// One zone as measured on a drive.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ZoneParameters {
    pub first_cylinder: u32,
    pub cylinders: u32,
    pub sectors_per_track: u32,
    /// How far behind the index mark the first track of the zone starts.
    #[serde(default)]
    pub offset_sectors: f64,
    /// How far behind a track the next one of the same cylinder starts.
    pub track_skew_sectors: f64,
    /// How far behind the last track of a cylinder the next cylinder starts.
    pub cylinder_skew_sectors: f64,
    /// Where addresses lie, in their order; without any, every place of the zone has one.
    #[serde(default)]
    pub extents: Vec<ExtentParameters>,
}

/// Addresses on consecutive places of a zone.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ExtentParameters {
    /// Place of the first one, counted in sectors from the start of the zone: along a track, then
    /// track by track in the order of addresses.
    pub position: u64,
    pub sectors: u64,
    /// Sectors by which defects before it have pushed the tracks on.
    #[serde(default)]
    pub turned_sectors: u32,
}

/// A zone ready for use.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub first_cylinder: u32,
    pub first_sector: Sector,
    pub sectors_per_track: u32,
    pub offset: Angle,
    pub track_skew: Angle,
    pub cylinder_skew: Angle,
    extents: Vec<Extent>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub first_sector: Sector,
    pub end_sector: Sector,
    pub position: u64,
    pub turned: u32,
}

impl Zone {
    /// A zone whose every place has an address, its tracks apart by these times.
    pub(super) fn even(
        first: (u32, Sector),
        sectors_per_track: u32,
        sectors: u64,
        skews: Skews,
    ) -> Self {
        let (first_cylinder, first_sector) = first;
        let end_sector = first_sector + sectors;
        let extents = vec![Extent { first_sector, end_sector, position: 0, turned: 0 }];
        let per_cylinder = skews.track.times(skews.heads - 1).plus(skews.cylinder);
        Self {
            first_cylinder,
            first_sector,
            sectors_per_track,
            offset: per_cylinder.times(first_cylinder.into()),
            track_skew: skews.track,
            cylinder_skew: skews.cylinder,
            extents,
        }
    }

    /// A measured zone whose addresses begin at `first_sector`.
    pub(super) fn measured(zone: &ZoneParameters, first_sector: Sector, heads: u32) -> Self {
        let mut next = first_sector;
        let extents = zone.extents_or_all(heads).into_iter().map(|extent| {
            let first_sector = next;
            next += extent.sectors;
            let (position, turned) = (extent.position, extent.turned_sectors);
            Extent { first_sector, end_sector: next, position, turned }
        });
        let extents = extents.collect();
        let parts = |sectors| Angle::parts(sectors, zone.sectors_per_track);
        Self {
            first_cylinder: zone.first_cylinder,
            first_sector,
            sectors_per_track: zone.sectors_per_track,
            offset: parts(zone.offset_sectors),
            track_skew: parts(zone.track_skew_sectors),
            cylinder_skew: parts(zone.cylinder_skew_sectors),
            extents,
        }
    }

    pub(super) fn end_sector(&self) -> Sector {
        self.extents.last().map_or(self.first_sector, |extent| extent.end_sector)
    }

    /// The extent that holds an address of this zone.
    pub(super) fn extent(&self, sector: Sector) -> Extent {
        let index = self.extents.partition_point(|extent| extent.first_sector <= sector);
        self.extents[index - 1]
    }
}

/// How tracks are set off from each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skews {
    pub heads: u64,
    pub track: Angle,
    pub cylinder: Angle,
}

impl ZoneParameters {
    /// Addresses in the zone.
    pub fn sectors(&self, heads: u32) -> u64 {
        self.extents_or_all(heads).iter().map(|extent| extent.sectors).sum()
    }

    fn places(&self, heads: u32) -> u64 {
        u64::from(self.cylinders) * u64::from(heads) * u64::from(self.sectors_per_track)
    }

    fn extents_or_all(&self, heads: u32) -> Vec<ExtentParameters> {
        match self.extents.is_empty() {
            true => {
                let sectors = self.places(heads);
                vec![ExtentParameters { position: 0, sectors, turned_sectors: 0 }]
            }
            false => self.extents.clone(),
        }
    }

    fn check(&self, heads: u32, after: u32) -> Result<(), ModelError> {
        let field = "geometry.zone_table";
        require(self.first_cylinder >= after, field, "has zones that overlap or are not in order")?;
        let cylinders = (1..=10_000_000).contains(&self.cylinders);
        require(cylinders, field, "has a zone of less than 1 or more than 10,000,000 cylinders")?;
        let length = (1..=100_000).contains(&self.sectors_per_track);
        require(length, field, "has a track of less than 1 or more than 100,000 sectors")?;
        let skews = [self.offset_sectors, self.track_skew_sectors, self.cylinder_skew_sectors];
        let sane = skews.iter().all(|skew| skew.is_finite() && skew.abs() <= 1e9);
        require(sane, field, "has a skew that is no number of sectors")?;
        let places = self.places(heads);
        let inside = self.extents.iter().all(|extent| {
            extent.sectors > 0
                && extent.position.checked_add(extent.sectors).is_some_and(|end| end <= places)
        });
        require(inside, field, "has an extent that is empty or outside its zone")
    }
}

impl GeometryParameters {
    pub(super) fn check_zone_table(&self) -> Result<(), ModelError> {
        let mut after = 0;
        let mut sectors = 0;
        for zone in &self.zone_table {
            zone.check(self.heads, after)?;
            after = zone.first_cylinder.saturating_add(zone.cylinders);
            sectors += zone.sectors(self.heads);
        }
        require(after < u32::MAX, "geometry.zone_table", "has too many cylinders")?;
        let holds = self.capacity_bytes <= sectors.saturating_mul(512);
        require(holds, "geometry.capacity_bytes", "is more than the zones hold")
    }
}
