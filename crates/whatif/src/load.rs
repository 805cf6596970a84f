//! What is asked of a machine: jobs, or a recording of what another one was asked.

use crate::job::Job;
use headpond_trace::{ReadOptions, RecordFlags, TraceError, TraceFormat, TraceReader, TraceRecord};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The workload of an experiment.
#[derive(Clone, Debug)]
pub enum Load {
    /// All at the same time.
    Jobs(Vec<Job>),
    Trace(TraceLoad),
    Excerpt(Excerpt),
}

/// Requests in memory; the first of them only bring the machine into the state that it has after
/// some time of such work.
#[derive(Clone, Debug)]
pub struct Excerpt {
    /// What results call it.
    pub name: String,
    /// In order of issue.
    pub records: Arc<[TraceRecord]>,
    /// So many are played first, as fast as the machine takes them, and not measured.
    pub warm_up: usize,
    pub pace: Pace,
    pub fit: Fit,
    /// What counts of what is left to do in the end.
    pub remainder: Remainder,
    /// That they were read from.
    pub format: TraceFormat,
}

/// A trace that is played against a machine.
#[derive(Clone, Debug)]
pub struct TraceLoad {
    pub path: PathBuf,
    pub pace: Pace,
    pub fit: Fit,
    pub reading: ReadOptions,
    survey: Survey,
}

/// When the requests of a trace are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At their recorded times, this many times as fast, whether earlier ones were answered or not.
    Recorded { speed: f64 },
    /// In their recorded order, so many in flight.
    AsFastAsPossible { depth: u32 },
    /// In their recorded order, as many in flight as there were then, or so many where the trace
    /// does not tell when requests were answered.
    AsDeepAsRecorded { unknown: u32 },
}

/// What becomes of a request that the volume is too small for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Its address is taken modulo the size of the volume; it ends where the volume ends where it
    /// would pass that, and is cut where it is longer than the whole.
    #[default]
    Wrap,
    /// It is left out.
    Skip,
    /// The experiment ends with an error.
    Refuse,
}

/// What counts of what is left to do when the last request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remainder {
    /// Requests are all that counts.
    #[default]
    Nothing,
    /// What the drives have in their own memory.
    OfDrives,
    /// That, and what has become dirty in the cache.
    OfDrivesAndCache,
}

/// What one look through a trace tells.
#[derive(Clone, Copy, Debug)]
pub struct Survey {
    pub format: TraceFormat,
    pub records: u64,
    /// When the first request was issued, and how long after it the last one.
    pub first_ns: u64,
    pub span: Duration,
    /// Where the last byte asked for ends.
    pub end_bytes: u64,
}

/// Most requests in flight of a trace whose machine does not keep up; beyond it they wait in the
/// trace, and their time counts.
pub const IN_FLIGHT_MAX: u32 = 1 << 16;

impl TraceLoad {
    /// Looks through a trace once, so that nothing of it is a surprise later.
    ///
    /// # Errors
    /// Where it cannot be read, or is of no known format.
    ///
    /// # Panics
    /// Where the pace is none: no depth, or a speed that is not above zero.
    pub fn open(
        path: &Path,
        pace: Pace,
        fit: Fit,
        reading: ReadOptions,
    ) -> Result<Self, TraceError> {
        match pace {
            Pace::Recorded { speed } => assert!(speed > 0.0 && speed.is_finite(), "some speed"),
            Pace::AsFastAsPossible { depth } | Pace::AsDeepAsRecorded { unknown: depth } => {
                assert!((1..=IN_FLIGHT_MAX).contains(&depth), "some depth");
            }
        }
        let survey = Survey::of(&mut TraceReader::open(path, reading)?)?;
        Ok(Self { path: path.to_owned(), pace, fit, reading, survey })
    }

    pub fn survey(&self) -> Survey {
        self.survey
    }

    /// How long the requests take to come; not known where each waits for the one before.
    pub fn duration(&self) -> Option<Duration> {
        match self.pace {
            Pace::Recorded { speed } => Some(self.survey.span.div_f64(speed)),
            Pace::AsFastAsPossible { .. } | Pace::AsDeepAsRecorded { .. } => None,
        }
    }

    /// What results call it.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    pub(crate) fn reader(&self) -> Result<TraceReader, TraceError> {
        TraceReader::open(&self.path, self.reading)
    }
}

impl Excerpt {
    /// Those that are not measured, and the others.
    pub(crate) fn parts(&self) -> (&[TraceRecord], &[TraceRecord]) {
        self.records.split_at(self.warm_up.min(self.records.len()))
    }
}

impl Survey {
    fn of(reader: &mut TraceReader) -> Result<Self, TraceError> {
        let (mut records, mut end_bytes) = (0, 0);
        let (mut first_ns, mut last_ns) = (None, 0);
        while let Some(record) = reader.next_record()? {
            if record.flags.contains(RecordFlags::RETRIED) {
                continue;
            }
            records += 1;
            end_bytes = record.end_bytes().max(end_bytes);
            first_ns.get_or_insert(record.issued_ns);
            last_ns = record.issued_ns.max(last_ns);
        }
        let (format, first_ns) = (reader.format(), first_ns.unwrap_or(0));
        let span = Duration::from_nanos(last_ns.saturating_sub(first_ns));
        Ok(Self { format, records, first_ns, span, end_bytes })
    }
}
