//! `disksim_disk`: one drive, from its blocks to our parameters.

use super::buffer::BufferFields;
use super::document::Reader;
use super::error::{ImportError, Note};
use super::fields::Fields;
use super::seeks::Arm;
use super::syntax::Block;
use super::zones::zones;
use crate::hdd::{
    AfterParameters, GeometryParameters, HddModel, HddParameters, InterfaceParameters,
    OverheadParameters, ZoneParameters,
};
use crate::kind::Kind;
use std::io;

const SECTOR_BYTES: u64 = 512;

/// How long a command may be passed over; the files do not say, and no trace with one request at
/// a time can tell.
const WAIT_MAX_MS: f64 = 500.0;

/// What to import.
#[derive(Clone, Copy, Debug)]
pub struct Import<'a> {
    /// The outermost file.
    pub file: &'a str,
    /// The drive, where the files describe several.
    pub disk: Option<&'a str>,
}

/// A drive as the files describe it.
#[derive(Debug)]
pub struct Imported {
    pub model: HddModel,
    /// What was decided, assumed or left out.
    pub notes: Vec<Note>,
}

/// Imports a drive; `read` fetches the files by the names that stand in them.
///
/// # Errors
/// Names file, line and field.
pub fn import(
    import: Import<'_>,
    read: &mut dyn FnMut(&str) -> io::Result<String>,
) -> Result<Imported, ImportError> {
    let mut reader = Reader::new(read);
    let blocks = reader.root(import.file)?;
    let disk = choose(import, &blocks)?;
    let fields = Fields::new(disk);
    let mut notes = Vec::new();
    let medium = Fields::new(fields.block("Model")?);
    let geometry = geometry(&medium, &mut notes)?;
    let cylinders = geometry.zone_table.last().map_or(1, |z| z.first_cylinder + z.cylinders);
    let block = medium.block("Mechanical Model")?;
    let mechanics = Arm { block, cylinders, reader: &mut reader, notes: Vec::new() }.mechanics()?;
    notes.extend(mechanics.notes);
    notes.extend(medium.unknown(&["Number of cylinders"]));
    let transfer_ms = sector_transfer_ms(&fields, &blocks)?;
    if transfer_ms == 0.0 {
        let text = "no transfer time is given for a sector, by drive, bus or controller: data \
                    crosses the interface at once";
        notes.push(Note { at: disk.at.clone(), text: text.to_owned() });
    }
    let buffer = BufferFields::new(&fields)?;
    let parameters = HddParameters {
        kind: Kind::Hdd,
        name: disk.name.clone(),
        description: format!("imported from {}", import.file),
        geometry: GeometryParameters {
            rpm: mechanics.rpm,
            head_switch_ms: mechanics.head_switch_ms,
            ..geometry
        },
        seek: mechanics.seek,
        interface: interface(&fields, transfer_ms)?,
        read_buffer: buffer.reads()?,
        write_cache: buffer.writes()?,
    };
    notes.extend(not_modelled(&fields)?);
    notes.extend(fields.unknown(&WITHOUT_EFFECT));
    let model = settle_on_heads(disk, parameters, &mut notes)?;
    Ok(Imported { model, notes })
}

/// Another surface has its own track to settle on, which takes no less than the next cylinder of
/// the same surface, unless the skew between the tracks leaves less time for it. Switches shorter
/// than that stand in files of drives whose skew hid them from the measurement.
fn settle_on_heads(
    disk: &Block,
    mut parameters: HddParameters,
    notes: &mut Vec<Note>,
) -> Result<HddModel, ImportError> {
    let make = |parameters: HddParameters| {
        HddModel::new(parameters).map_err(|source| ImportError::Model {
            at: disk.at.clone(),
            drive: disk.name.clone(),
            source: Box::new(source),
        })
    };
    let model = make(parameters.clone())?;
    let settled_ms = model.seek_ms(1).min(track_skew_ms(&parameters.geometry));
    let switch_ms = parameters.geometry.head_switch_ms;
    if parameters.geometry.heads == 1 || switch_ms >= settled_ms {
        return Ok(model);
    }
    let text = format!(
        "Head switch time of {switch_ms} ms is taken as {settled_ms:.3} ms: a head settles on \
         another surface as on another cylinder, in the time that the skew leaves"
    );
    notes.push(Note { at: disk.at.clone(), text });
    parameters.geometry.head_switch_ms = settled_ms;
    make(parameters)
}

/// The shortest time that the layout leaves for the switch to the next track of a cylinder.
fn track_skew_ms(geometry: &GeometryParameters) -> f64 {
    let turn_ms = 60_000.0 / f64::from(geometry.rpm);
    let skew = |zone: &ZoneParameters| {
        zone.track_skew_sectors.max(0.0) * turn_ms / f64::from(zone.sectors_per_track)
    };
    geometry.zone_table.iter().map(skew).fold(f64::INFINITY, f64::min)
}

fn choose<'a>(import: Import<'_>, blocks: &'a [Block]) -> Result<&'a Block, ImportError> {
    let is_disk = |block: &&Block| block.kind == "disksim_disk";
    let is_meant = |block: &&Block| import.disk.is_none_or(|name| block.name == name);
    let disks: Vec<&Block> = blocks.iter().filter(is_disk).filter(is_meant).collect();
    match disks[..] {
        [disk] => Ok(disk),
        [] => Err(ImportError::NoDrive { file: import.file.to_owned() }),
        _ => {
            let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
            let (file, names) = (import.file.to_owned(), names.join(", "));
            Err(ImportError::SeveralDrives { file, names })
        }
    }
}

/// Everything but what the mechanics say.
fn geometry(medium: &Fields<'_>, notes: &mut Vec<Note>) -> Result<GeometryParameters, ImportError> {
    let heads = medium.integer("Number of data surfaces", 1, 64)? as u32;
    let zones = zones(medium.block("Layout Model")?, heads)?;
    let sectors: u64 = zones.table.iter().map(|zone| zone.sectors(heads)).sum();
    let stated = medium.integer("Block count", 1, 1 << 48)?;
    if stated > sectors {
        let text = format!("Block count is {stated}, and the zones hold only {sectors}");
        notes.push(Note { at: medium.block.at.clone(), text });
    }
    notes.extend(zones.notes);
    Ok(GeometryParameters {
        capacity_bytes: sectors * SECTOR_BYTES,
        physical_sector_bytes: SECTOR_BYTES as u32,
        rpm: 0,
        heads,
        zones: 0,
        outer_sectors_per_track: 0,
        inner_sectors_per_track: 0,
        head_switch_ms: 0.0,
        zone_table: zones.table,
        serpentine: zones.serpentine,
    })
}

/// The slowest of drive, buses and controller decides.
fn sector_transfer_ms(fields: &Fields<'_>, blocks: &[Block]) -> Result<f64, ImportError> {
    let mut slowest = fields.time("Bulk sector transfer time")?;
    for block in blocks {
        let keys: &[&str] = match block.kind.as_str() {
            "disksim_bus" => &["Read block transfer time", "Write block transfer time"],
            "disksim_ctlr" => &["Bulk sector transfer time"],
            _ => continue,
        };
        let component = Fields::new(block);
        for key in keys {
            slowest = slowest.max(component.time_or(key, 0.0)?);
        }
    }
    Ok(slowest)
}

fn interface(
    fields: &Fields<'_>,
    sector_transfer_ms: f64,
) -> Result<InterfaceParameters, ImportError> {
    let mb_per_s = match sector_transfer_ms {
        0.0 => 1e6,
        ms => (SECTOR_BYTES as f64 / 1e3 / ms).clamp(1e-3, 1e6),
    };
    let watermark = fields.number_or("High (read) water mark", 0.0)?;
    if !(0.0..=1.0).contains(&watermark) {
        let what = format!("{watermark} is not between 0 and 1");
        return Err(ImportError::field(&fields.block.at, "High (read) water mark", what));
    }
    Ok(InterfaceParameters {
        command_ms: 0.0,
        turnaround_ms: 0.0,
        mb_per_s,
        write_mb_per_s: None,
        queue_depth: fields.integer_or("Max queue length", 1, 65_536)?.max(1) as usize,
        wait_max_ms: WAIT_MAX_MS,
        overheads: Some(overheads(fields)?),
        read_watermark: watermark,
        watermark_of_segment: fields.integer_or("Set watermark by reqsize", 1, 1)? == 0,
        defers_partial_hits: fields.integer_or("Immed transfer partial hit", 1, 1)? == 0,
    })
}

fn overheads(fields: &Fields<'_>) -> Result<OverheadParameters, ImportError> {
    let scale = fields.number_or("Time scale for overheads", 1.0)?;
    let always = fields.time_or("Per-request overhead time", 0.0)?;
    let scaled = |key: &str| Ok::<f64, ImportError>(fields.time_or(key, 0.0)? * scale);
    let case = |case: &str| {
        let after = |what: &str| {
            fields.time(&format!("{case} over. after {what}")).map(|ms| (ms + always) * scale)
        };
        Ok::<_, ImportError>(AfterParameters {
            after_read_ms: after("read")?,
            after_write_ms: after("write")?,
        })
    };
    let (read_hit, read_miss) = (case("Read hit")?, case("Read miss")?);
    let (write_hit, mut write_miss) = (case("Write hit")?, case("Write miss")?);
    let reconnect_ms = match fields.integer_or("Never disconnect", 0, 1)? {
        0 => scaled("First reselect overhead")?,
        _ => 0.0,
    };
    let mut write_data_ms = scaled("Data preparation overhead")?;
    if fields.integer_or("Extra write disconnect", 0, 1)? == 1 {
        let command_ms = scaled("Extradisc command overhead")?;
        write_miss = AfterParameters { after_read_ms: command_ms, after_write_ms: command_ms };
        write_data_ms += scaled("Extradisc disconnect overhead")?
            + scaled("Extradisc inter-disconnect delay")?
            + reconnect_ms;
    }
    Ok(OverheadParameters {
        read_hit,
        read_miss,
        write_hit,
        write_miss,
        read_data_ms: scaled("Data preparation overhead")?,
        write_data_ms,
        reconnect_ms,
        stays_connected_in_seek: fields.integer_or("Disconnect write if seek", 1, 1)? == 0,
        read_completion_ms: scaled("Read completion overhead")?,
        write_completion_ms: scaled("Write completion overhead")?,
    })
}

/// Parameters that say nothing to our model as long as they have this value.
const NEUTRAL: [(&str, f64); 8] = [
    ("Minimum seek delay", 0.0),
    ("Extradisc seek delta", 0.0),
    ("Read disconnect afterread", 0.0),
    ("Read disconnect afterwrite", 0.0),
    ("Write disconnect overhead", 0.0),
    // Both are about requests that are longer than a segment.
    ("Low (write) water mark", 0.0),
    ("Read directly to buffer", 1.0),
    ("Allow almost read hits", 0.0),
];

fn not_modelled(fields: &Fields<'_>) -> Result<Vec<Note>, ImportError> {
    let mut notes = Vec::new();
    for (key, neutral) in NEUTRAL {
        let value = fields.number_or(key, neutral)?;
        if let Some(at) = fields.optional(key).filter(|_| value != neutral) {
            notes.push(Note {
                at: at.at.clone(),
                text: format!("{key} of {value} is not modelled"),
            });
        }
    }
    Ok(notes)
}

/// What changes nothing for one request at a time, or concerns the simulation only.
const WITHOUT_EFFECT: [&str; 17] = [
    "Scheduler",
    "Print stats",
    "Avg sectors per cylinder",
    "Hold bus entire read xfer",
    "Hold bus entire write xfer",
    "Allow sneaky full read hits",
    "Allow sneaky partial read hits",
    "Allow sneaky intermediate read hits",
    "Allow write prebuffering",
    "Preseeking level",
    "Calc sector by sector",
    "Other reselect overhead",
    "Extradisc command overhead",
    "Extradisc disconnect overhead",
    "Extradisc inter-disconnect delay",
    "Extradisc 2nd disconnect overhead",
    "First reselect overhead",
];
