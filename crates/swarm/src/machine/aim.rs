//! Where the cache device is damaged: at what an open or a read will depend on.
//!
//! It reads the disk as `docs/format.md` says that it lies there, and asks the engine nothing. What
//! is expected of the volume afterwards does not depend on where the damage was.

use super::Face;
use headpond_block::BLOCK_BYTES;
use headpond_cache::format::record::{self, Record};
use headpond_cache::format::slice_header::{HEADER_BYTES, SliceHeader};
use headpond_cache::format::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES, Superblock};
use headpond_cache::{CoreBlock, Position, Sequence, SliceLayout};
use headpond_sim::Random;
use std::collections::HashMap;

const PAGE_BYTES: u64 = 4096;

/// What is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Whatever was written last.
    Recent,
    /// The two copies of a slice's header.
    Header,
    /// The checkpoint in force.
    Checkpoint,
    /// The newest version of a block that is stable and that replay will look at.
    Promised,
}

/// A page of the cache device that is worth a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub address: u64,
    /// The record that it belongs to, so that a later one in its place is another target.
    pub sequence: Sequence,
}

impl Aim {
    pub fn draw(random: &mut Random) -> Self {
        *random.pick(&[
            Self::Recent,
            Self::Recent,
            Self::Header,
            Self::Checkpoint,
            Self::Promised,
            Self::Promised,
            Self::Promised,
            Self::Promised,
        ])
    }

    /// The pages that it means, as the disk is now. None for what was merely written last.
    pub fn targets(self, face: &Face<'_>) -> Vec<Target> {
        let Some(superblock) = superblock(face) else { return Vec::new() };
        let slices = (0..superblock.slices.len()).filter_map(|slice| {
            let layout = superblock.layout(slice)?;
            let header = header(face, &superblock, &layout, slice as u16)?;
            Some(match self {
                Self::Recent => Vec::new(),
                Self::Header => headers(&layout, &header),
                Self::Checkpoint => checkpoint(&layout, &header),
                Self::Promised => promised(face, &layout, &header),
            })
        });
        slices.flatten().collect()
    }
}

fn superblock(face: &Face<'_>) -> Option<Superblock> {
    let copies = COPY_OFFSETS
        .iter()
        .filter_map(|&offset| Superblock::decode(&face.peek(offset, SUPERBLOCK_BYTES)).ok());
    copies.max_by_key(|superblock| superblock.sequence)
}

fn header(
    face: &Face<'_>,
    superblock: &Superblock,
    layout: &SliceLayout,
    slice: u16,
) -> Option<SliceHeader> {
    let copies = (0..2).filter_map(|copy| {
        let bytes = face.peek(layout.header_offset(copy), HEADER_BYTES);
        SliceHeader::decode(&bytes, superblock.cache, slice).ok()
    });
    copies.max_by_key(|header| header.sequence)
}

fn headers(layout: &SliceLayout, header: &SliceHeader) -> Vec<Target> {
    let sequence = header.next_record;
    (0..2).map(|copy| Target { address: layout.header_offset(copy), sequence }).collect()
}

fn checkpoint(layout: &SliceLayout, header: &SliceHeader) -> Vec<Target> {
    let (area, sequence) = (layout.checkpoint(header.checkpoint.area), header.next_record);
    let pages = (0..header.checkpoint.bytes.min(area.len())).step_by(PAGE_BYTES as usize);
    pages.map(|page| Target { address: area.start() + page, sequence }).collect()
}

/// The newest versions of dirty blocks, and the descriptors that tell of them, in records that
/// follow the checkpoint and that a later one calls stable.
fn promised(face: &Face<'_>, layout: &SliceLayout, header: &SliceHeader) -> Vec<Target> {
    let records = records(face, layout, header);
    let heads = || records.iter().map(|(_, record)| record.header);
    let Some(mark) = heads().map(|header| header.flush_mark).max() else { return Vec::new() };
    let tail = heads().map(|header| header.tail).max().max(Some(header.tail)).expect("a header");
    let mut newest: HashMap<CoreBlock, (Sequence, Sequence, Option<[u64; 2]>)> = HashMap::new();
    for (address, record) in &records {
        let sequence = record.header.sequence;
        let descriptor = (record.descriptor_bytes as u64).next_multiple_of(layout.unit_bytes());
        let mut data = address + descriptor;
        for entry in &record.entries {
            for block in (entry.first.0..entry.first.0 + u64::from(entry.count)).map(CoreBlock) {
                let place = entry.kind.is_dirty().then_some([*address, data]);
                data += if entry.kind.carries_data() { BLOCK_BYTES } else { 0 };
                let version = (entry.birth.unwrap_or(sequence), sequence, place);
                let best = newest.entry(block).or_insert(version);
                if (best.0, best.1) < (version.0, version.1) {
                    *best = version;
                }
            }
        }
    }
    let promised = newest.into_values().filter(|(_, at, _)| (tail..=mark).contains(at));
    let targets = promised.flat_map(|(_, sequence, place)| {
        let pages = place.into_iter().flatten();
        pages.map(move |address| Target { address, sequence })
    });
    let mut targets: Vec<Target> = targets.collect();
    targets.sort_unstable_by_key(|target| target.address);
    targets.dedup();
    targets
}

/// Every record that follows the checkpoint, with its address.
fn records(face: &Face<'_>, layout: &SliceLayout, header: &SliceHeader) -> Vec<(u64, Record)> {
    let all = layout.range_at(Position(0), u64::from(layout.segments()) * layout.segment_bytes());
    let log = face.peek(all.start(), all.len() as usize);
    let units = 0..all.len() / layout.unit_bytes();
    let found = units.filter_map(|unit| {
        let offset = unit * layout.unit_bytes();
        let bytes = &log[offset as usize..];
        let record = record::decode(bytes, header.cache, header.slice, Position(unit)).ok()?;
        let follows =
            record.header.epoch == header.epoch && record.header.sequence >= header.next_record;
        (follows && !header.is_clean).then_some((all.start() + offset, record))
    });
    found.collect()
}
