//! How far the heads stay on behind a read.

use super::layout::{Layout, SECTOR_BYTES, Sector};
use super::parameters::{ReadAheadReach, ReadBufferParameters};
use std::collections::VecDeque;
use std::ops::Range;

/// The heads follow the track from `from`, whose first bit passes at `since`.
#[derive(Clone, Debug)]
pub(super) struct ReadAhead {
    /// What lies from here to `from` is held.
    pub held_from: Sector,
    pub from: Sector,
    pub since: u64,
    pub sectors_max: u64,
    /// Before this time unwritten data stays unwritten, because a sequential reader is being
    /// served.
    pub undisturbed_until: u64,
    /// Before this time no other command is served.
    pub exclusive_until: u64,
}

impl ReadAhead {
    /// Whether the heads come by what is not held of this range anyway.
    pub(super) fn covers(&self, range: &Range<Sector>) -> bool {
        self.held_from <= range.start && range.end <= self.from + self.sectors_max
    }
}

/// Decides after each read how far to go on.
#[derive(Clone, Debug)]
pub(super) struct ReadAheadLimit {
    reach: ReadAheadReach,
    sectors_max: u64,
    segment_sectors: u64,
    keeps_request: bool,
    /// Where the tracks lie that were read lately, newest last.
    tracks: VecDeque<Range<Sector>>,
    tracks_max: usize,
}

impl ReadAheadLimit {
    pub(super) fn new(parameters: &ReadBufferParameters) -> Self {
        Self {
            reach: parameters.reach,
            sectors_max: sectors(parameters.read_ahead_kib),
            segment_sectors: parameters.segment_sectors(),
            keeps_request: parameters.keeps_request,
            tracks: VecDeque::new(),
            tracks_max: parameters.segments.max(1),
        }
    }

    /// How many sectors to read on behind a read that has just ended.
    pub(super) fn after(&mut self, layout: &Layout, read: &Range<Sector>) -> u64 {
        let limit = match self.keeps_request {
            true => self.segment_sectors.saturating_sub(read.end - read.start),
            false => self.segment_sectors,
        };
        let limit = limit.min(self.sectors_max).min(layout.sectors - read.end);
        let track = || layout.track_of(read.end - 1);
        match self.reach {
            _ if self.sectors_max == 0 => 0,
            ReadAheadReach::Distance => limit,
            ReadAheadReach::Track => limit.min(track().end - read.end),
            ReadAheadReach::Cylinder => limit.min(end_of_cylinder(layout, track().end) - read.end),
            ReadAheadReach::NextTrack => self.end_of_next_track(layout, track()) - read.end,
        }
    }

    /// One track beyond that of the read where the track before it was read lately too; otherwise
    /// its own.
    fn end_of_next_track(&mut self, layout: &Layout, track: Range<Sector>) -> Sector {
        let is_sequential = self.tracks.iter().any(|before| before.end == track.start);
        let end = match is_sequential && track.end < layout.sectors {
            true => layout.track_of(track.end).end,
            false => track.end,
        };
        self.tracks.retain(|before| *before != track);
        self.tracks.push_back(track);
        while self.tracks.len() > self.tracks_max {
            self.tracks.pop_front();
        }
        end
    }
}

fn end_of_cylinder(layout: &Layout, mut end: Sector) -> Sector {
    let cylinder = layout.place(end - 1).cylinder;
    while end < layout.sectors && layout.place(end).cylinder == cylinder {
        end += layout.place(end).run;
    }
    end
}

pub(super) fn sectors(kib: f64) -> u64 {
    (kib * 1024.0) as u64 / SECTOR_BYTES
}
