//! Brings placed requests to their streams.
//!
//! A stream is the random requests of one process on one device, or a succession of sequential
//! runs: a new run takes the place of one that was over before it began, and opens a stream of its
//! own where it runs beside the others.
//!
//! **Invariants**: at most `STREAMS_MAX` streams; what exceeds them goes to one that takes the
//! rest.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use headpond_trace::{Names, Op, TraceRecord};

use super::partial::Part;
use super::phases::PhasedStream;
use super::runs::{Found, Placement, RunId};
use super::stream::parts;

const STREAMS_MAX: usize = 512;

/// Processes on devices that are known by their random requests.
const OWNERS_MAX: usize = 4096;

/// Who issued a stream, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    pub device: u16,
    pub process: u32,
}

/// All streams.
#[derive(Debug, Default)]
pub(crate) struct Router {
    streams: Vec<Stream>,
    random: BTreeMap<Owner, usize>,
    runs: HashMap<RunId, usize, FixedState>,
    latest: BTreeMap<Owner, usize>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub owner: Owner,
    /// Direction of a sequential stream; `None` for random requests.
    pub sequential: Option<Op>,
    pub body: PhasedStream,
    last_ns: u64,
}

impl Router {
    /// Takes what the run detector found.
    pub(crate) fn take(&mut self, found: Found) {
        match found {
            Found::Placed(record, Placement::Random) => {
                let index = self.random_stream(owner(&record));
                self.deliver(index, &record, true);
            }
            Found::Placed(record, Placement::Sequential(run)) => {
                let known = self.runs.get(&run).copied();
                let index = known.unwrap_or_else(|| self.open_run(run, &record));
                self.deliver(index, &record, false);
            }
            Found::Ended { run, requests, bytes } => {
                if let Some(index) = self.runs.remove(&run)
                    && requests > 0
                {
                    self.streams[index].body.end_run(requests, bytes);
                }
            }
        }
    }

    /// Takes a request without data: it belongs to what its process did last.
    pub(crate) fn aside(&mut self, record: &TraceRecord) {
        let owner = owner(record);
        let latest = self.latest.get(&owner).copied();
        let index = latest.unwrap_or_else(|| self.random_stream(owner));
        self.streams[index].body.add(record, false);
    }

    /// All streams as parts of the trace, the busiest first.
    pub(crate) fn finish(self, names: &Names, source: &str) -> Vec<Part> {
        parts(self.streams, names, source)
    }

    fn deliver(&mut self, index: usize, record: &TraceRecord, is_random: bool) {
        let stream = &mut self.streams[index];
        stream.body.add(record, is_random);
        stream.last_ns = stream.last_ns.max(record.issued_ns);
        let owner = stream.owner;
        if self.latest.get(&owner) != Some(&index) {
            self.latest.insert(owner, index);
        }
    }

    fn random_stream(&mut self, owner: Owner) -> usize {
        if let Some(&index) = self.random.get(&owner) {
            return index;
        }
        let index = self.open(owner, None);
        if self.random.len() < OWNERS_MAX {
            self.random.insert(owner, index);
        }
        index
    }

    fn open_run(&mut self, run: RunId, first: &TraceRecord) -> usize {
        let owner = owner(first);
        let sequential = Some(first.op);
        let is_over = |stream: &Stream| {
            stream.owner == owner
                && stream.sequential == sequential
                && stream.last_ns < first.issued_ns
        };
        let over = self.streams.iter().enumerate().filter(|(_, stream)| is_over(stream));
        let latest = over.max_by_key(|(_, stream)| stream.last_ns).map(|(index, _)| index);
        let index = latest.unwrap_or_else(|| self.open(owner, sequential));
        self.runs.insert(run, index);
        index
    }

    /// A new stream, or the first of its kind where there are too many.
    fn open(&mut self, owner: Owner, sequential: Option<Op>) -> usize {
        if self.streams.len() >= STREAMS_MAX {
            let same = |stream: &Stream| stream.sequential == sequential;
            return self.streams.iter().position(same).unwrap_or(0);
        }
        let body = PhasedStream::default();
        self.streams.push(Stream { owner, sequential, body, last_ns: 0 });
        self.streams.len() - 1
    }
}

fn owner(record: &TraceRecord) -> Owner {
    Owner { device: record.device, process: record.process }
}
