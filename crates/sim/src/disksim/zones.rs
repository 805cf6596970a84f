//! `dm_layout_g1`: the zones of a drive.

use super::error::{ImportError, Note};
use super::fields::Fields;
use super::sparing::{Scheme, Spared};
use super::syntax::{Block, Content, Value};
use crate::hdd::{Serpentine, ZoneParameters};

const CYLINDERS_MAX: u64 = 4_000_000;
const SECTORS_PER_TRACK_MAX: u64 = 100_000;
const GROUPS_MAX: u64 = 1 << 22;
const PLACE_MAX: u64 = 1 << 48;

pub(super) struct Zones {
    pub table: Vec<ZoneParameters>,
    pub serpentine: Serpentine,
    pub notes: Vec<Note>,
}

/// What holds for all zones of a layout.
struct Layout<'a> {
    scheme: Scheme,
    cylinders_per_range: u64,
    skew_units: SkewUnits,
    heads: u32,
    block: &'a Block,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SkewUnits {
    Sectors,
    Turns,
}

/// # Errors
/// Where the layout is of another kind, or a zone is none.
pub(super) fn zones(block: &Block, heads: u32) -> Result<Zones, ImportError> {
    if block.kind != "dm_layout_g1" {
        let what = format!("{} is not known here, only dm_layout_g1 is", block.kind);
        return Err(ImportError::field(&block.at, "Layout Model", what));
    }
    let fields = Fields::new(block);
    let scheme = fields.integer("Sparing scheme used", 0, 10)? as usize;
    let serpentine = match fields.integer("LBN-to-PBN mapping scheme", 0, 2)? {
        0 => Serpentine::No,
        1 => Serpentine::ByZone,
        _ => Serpentine::ByCylinder,
    };
    let layout = Layout {
        scheme: Scheme::ALL[scheme],
        cylinders_per_range: fields.integer("Rangesize for sparing", 1, CYLINDERS_MAX)?,
        skew_units: skew_units(&fields, SkewUnits::Sectors)?,
        heads,
        block,
    };
    let mut notes = Vec::new();
    let mut table: Vec<ZoneParameters> = Vec::new();
    for value in fields.list("Zones")? {
        let zone = layout.zone(value, &mut notes)?;
        if table
            .last()
            .is_some_and(|last| last.first_cylinder + last.cylinders > zone.first_cylinder)
        {
            let what = "the zone begins before the end of the one before it";
            return Err(ImportError::field(&value.at, "First cylinder number", what));
        }
        table.push(zone);
    }
    if table.iter().all(|zone| zone.extents.is_empty()) {
        return Err(ImportError::field(&block.at, "Zones", "hold no addresses"));
    }
    // A zone without addresses is space that no request reaches.
    table.retain(|zone| !zone.extents.is_empty());
    notes.extend(fields.unknown(&[]));
    Ok(Zones { table, serpentine, notes })
}

impl Layout<'_> {
    fn zone(&self, value: &Value, notes: &mut Vec<Note>) -> Result<ZoneParameters, ImportError> {
        let Content::Block(block) = &value.content else {
            return Err(ImportError::field(&value.at, "Zones", "holds something that is no zone"));
        };
        if block.kind != "dm_layout_g1_zone" {
            let what = format!("a {} is no zone of a {}", block.kind, self.block.kind);
            return Err(ImportError::field(&block.at, "Zones", what));
        }
        let fields = Fields::new(block);
        let first = fields.integer("First cylinder number", 0, CYLINDERS_MAX)?;
        let last = fields.integer("Last cylinder number", first, CYLINDERS_MAX)?;
        let per_track = fields.integer("Blocks per track", 1, SECTORS_PER_TRACK_MAX)?;
        let units = skew_units(&fields, self.skew_units)?;
        let skew = |number: f64| match units {
            SkewUnits::Sectors => number,
            SkewUnits::Turns => number * per_track as f64,
        };
        let spared = self.spared(&fields, last - first + 1, per_track)?;
        let zone = ZoneParameters {
            first_cylinder: first as u32,
            cylinders: (last - first + 1) as u32,
            sectors_per_track: per_track as u32,
            offset_sectors: skew(fields.number("Offset of first block")?),
            track_skew_sectors: skew(fields.number_or("Skew for track switch", 0.0)?),
            cylinder_skew_sectors: skew(fields.number_or("Skew for cylinder switch", 0.0)?),
            extents: spared.extents(),
        };
        notes.extend(fields.unknown(&[]));
        Ok(zone)
    }

    fn spared(
        &self,
        fields: &Fields<'_>,
        cylinders: u64,
        per_track: u64,
    ) -> Result<Spared, ImportError> {
        let mut slips = fields.integers("slips", PLACE_MAX)?;
        slips.sort_unstable();
        slips.dedup();
        let pairs = fields.integers("defects", PLACE_MAX)?;
        if pairs.len() % 2 != 0 {
            let what = "is no list of pairs (defect, replacement)";
            return Err(ImportError::field(&fields.block.at, "defects", what));
        }
        let spared = Spared {
            scheme: self.scheme,
            cylinders,
            heads: self.heads.into(),
            per_track,
            reserved: fields.integer("Empty space at zone front", 0, PLACE_MAX)?,
            spares: fields.integer("Number of spares", 0, PLACE_MAX)?,
            cylinders_per_range: self.cylinders_per_range,
            slips,
            remapped: pairs.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
        };
        let tracks = cylinders * u64::from(self.heads);
        let places = if self.scheme == Scheme::TracksOfZone { tracks } else { tracks * per_track };
        let replacements = spared.remapped.values();
        if spared.slips.iter().chain(replacements).any(|&place| place >= places) {
            let what = format!("names a place outside the zone, which has {places}");
            return Err(ImportError::field(&fields.block.at, "slips or defects", what));
        }
        if spared.groups_with_spares() > GROUPS_MAX {
            let what = format!("there are more than {GROUPS_MAX} groups with spares in a zone");
            return Err(ImportError::field(&fields.block.at, "Number of spares", what));
        }
        if spared.addresses().is_none() {
            let what = "and the empty space at the front are more than the zone has";
            return Err(ImportError::field(&fields.block.at, "Number of spares", what));
        }
        Ok(spared)
    }
}

fn skew_units(fields: &Fields<'_>, default: SkewUnits) -> Result<SkewUnits, ImportError> {
    const KEY: &str = "Skew units";
    if fields.optional(KEY).is_none() {
        return Ok(default);
    }
    match fields.word(KEY)? {
        ("sectors", _) => Ok(SkewUnits::Sectors),
        ("revolutions", _) => Ok(SkewUnits::Turns),
        (_, value) => Err(ImportError::field(&value.at, KEY, "is neither sectors nor revolutions")),
    }
}
