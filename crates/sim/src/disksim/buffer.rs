//! The parameters of `disksim_disk` about its buffer, by their meaning in the manual.

use super::error::ImportError;
use super::fields::Fields;
use crate::hdd::{
    ReadAheadReach, ReadBufferParameters, WriteCacheParameters, WriteSegmentParameters,
};

const SECTOR_BYTES: u64 = 512;
const SEGMENTS_MAX: u64 = 4096;
const SECTORS_MAX: u64 = 1 << 32;

pub(super) struct BufferFields<'a, 'b> {
    fields: &'a Fields<'b>,
    /// Segments are caches, and not for speed-matching only.
    keeps_data: bool,
    segments: u64,
    segment_sectors: u64,
    /// A segment is there for writes and for nothing else.
    is_write_segment_separate: bool,
    /// Segments that may hold data of writes.
    written_max: u64,
}

impl<'a, 'b> BufferFields<'a, 'b> {
    pub(super) fn new(fields: &'a Fields<'b>) -> Result<Self, ImportError> {
        let is_write_segment_separate = fields.integer_or("Use separate write segment", 0, 1)? == 1;
        let stated = fields.integer_or("Maximum number of write segments", 1, SEGMENTS_MAX)?;
        Ok(Self {
            keeps_data: fields.integer("Enable caching in buffer", 0, 2)? > 0,
            segments: fields.integer("Number of buffer segments", 0, SEGMENTS_MAX)?,
            segment_sectors: fields.integer("Segment size (in blks)", 1, SECTORS_MAX)?,
            is_write_segment_separate,
            written_max: if is_write_segment_separate { 1 } else { stated.max(1) },
            fields,
        })
    }

    fn is_set(&self, key: &str, default: u64) -> Result<bool, ImportError> {
        Ok(self.fields.integer_or(key, default, 1)? == 1)
    }

    pub(super) fn reads(&self) -> Result<ReadBufferParameters, ImportError> {
        let fields = self.fields;
        let reach = fields.integer("Buffer continuous read", 0, 4)?;
        let most = fields.integer("Maximum read-ahead (blks)", 0, SECTORS_MAX)?;
        let least = fields.integer_or("Minimum read-ahead (blks)", 0, SECTORS_MAX)?;
        let reads_ahead = reach > 0 && self.keeps_data;
        let ahead_kib = |sectors| if reads_ahead { kib(sectors) } else { 0.0 };
        let over_requested = fields.number_or("Read-ahead over requested", 0.0)?;
        let segments = self.segments.saturating_sub(u64::from(self.is_write_segment_separate));
        let keeps_written = self.keeps_data && self.is_set("Allow read hits on write data", 0)?;
        Ok(ReadBufferParameters {
            segments: if self.keeps_data { segments as usize } else { 0 },
            segment_kib: Some(kib(self.segment_sectors)),
            shares_segments: !self.is_write_segment_separate,
            written_segments: Some(if keeps_written { self.written_max as usize } else { 0 }),
            reach: match reach {
                1 => ReadAheadReach::Track,
                2 => ReadAheadReach::Cylinder,
                4 => ReadAheadReach::NextTrack,
                _ => ReadAheadReach::Distance,
            },
            read_ahead_kib: ahead_kib(most.max(least)),
            read_ahead_least_kib: ahead_kib(least),
            keeps_request: over_requested == 0.0,
            drops_sent: over_requested < 0.0,
            reads_before: self.keeps_data && self.is_set("Read any free blocks", 0)?,
            on_arrival: fields.integer_or("Immediate buffer read", 0, 2)? > 0,
            resumes_on_hit: reads_ahead && self.is_set("Read-ahead on idle hit", 0)?,
            resumes_after: 1,
            partial_hits: true,
            whole_sectors: !self.is_set("Stop prefetch in sector", 1)?,
            reads_on_in_writes: !self.is_set("Write hit stop prefetch", 1)?,
        })
    }

    pub(super) fn writes(&self) -> Result<WriteCacheParameters, ImportError> {
        let fields = self.fields;
        let kib = self.written_max * self.segment_sectors * SECTOR_BYTES / 1024;
        let level = fields.integer_or("Fast write level", 0, 2)?;
        Ok(WriteCacheParameters {
            enabled: level > 0 && self.keeps_data,
            capacity_kib: kib.clamp(1, u32::MAX.into()) as u32,
            runs_max: self.written_max as usize,
            idle_ms: 0.0,
            on_arrival: fields.integer_or("Immediate buffer write", 0, 2)? > 0,
            segments: Some(WriteSegmentParameters {
                combines: self.is_set("Combine seq writes", 1)?,
                streams_only: level == 1,
            }),
        })
    }
}

fn kib(sectors: u64) -> f64 {
    sectors as f64 * SECTOR_BYTES as f64 / 1024.0
}
