//! Brings placed requests to their streams.
//!
//! A stream is the random requests of one process on one device, or a succession of sequential
//! runs: a new run takes the place of one that was over before it began, and opens a stream of its
//! own where it runs beside the others.
//!
//! **Invariants**: at most `STREAMS_MAX` streams; what exceeds them goes to one that takes the
//! rest.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use headpond_trace::{Names, Op, TraceRecord};

use super::partial::Part;
use super::phases::PhasedStream;
use super::runs::{DetectedRun, Placement, RunId};
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
    /// Places among the known, of those with random requests or with a stream.
    owners: HashMap<Owner, usize, FixedState>,
    known: Vec<Known>,
    /// Whose place was asked for last.
    recent: Option<(Owner, usize)>,
    /// Owners known by their random requests.
    random: usize,
    /// Streams of the runs, by number.
    runs: Vec<Option<usize>>,
}

/// What is known of an owner.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The stream of its random requests.
    random: Option<usize>,
    /// The stream of its that did something last.
    latest: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub owner: Owner,
    /// Direction of a sequential stream; `None` for random requests.
    pub sequential: Option<Op>,
    pub body: PhasedStream,
    last_ns: u64,
    /// Place of its owner among the known.
    known: usize,
}

impl Router {
    /// Takes what the run detector found.
    #[inline]
    pub(crate) fn take(&mut self, found: &DetectedRun) {
        match found {
            DetectedRun::Placed(record, Placement::Random) => {
                let index = self.random_stream(owner(record));
                self.deliver(index, record, Placement::Random);
            }
            DetectedRun::Placed(record, Placement::Sequential(run)) => {
                let known = self.runs.get(usize::from(run.0)).copied().flatten();
                let index = known.unwrap_or_else(|| self.open_run(*run, record));
                self.deliver(index, record, Placement::Sequential(*run));
            }
            DetectedRun::Aside(record) => self.aside(record),
            &DetectedRun::Ended { run, joined } => self.end_run(run, joined),
        }
    }

    /// A request without data belongs to what its process did last.
    fn aside(&mut self, record: &TraceRecord) {
        let owner = owner(record);
        let latest = self.place(owner).and_then(|place| self.known[place].latest);
        let index = latest.unwrap_or_else(|| self.random_stream(owner));
        self.streams[index].body.add(record, None);
    }

    /// All streams as parts of the trace, the busiest first.
    pub(crate) fn finish(self, names: &Names, source: &str) -> Vec<Part> {
        parts(self.streams, names, source)
    }

    fn end_run(&mut self, run: RunId, joined: Option<RunId>) {
        let Some(index) = self.runs.get_mut(usize::from(run.0)).and_then(Option::take) else {
            return;
        };
        let stream_of = |run: &RunId| self.runs.get(usize::from(run.0)).copied().flatten();
        let body = &mut self.streams[index].body;
        match joined.filter(|into| stream_of(into) == Some(index)) {
            Some(into) => body.join_run(run, into),
            None => body.end_run(run),
        }
    }

    #[inline]
    fn deliver(&mut self, index: usize, record: &TraceRecord, placement: Placement) {
        let stream = &mut self.streams[index];
        stream.body.add(record, Some(placement));
        stream.last_ns = stream.last_ns.max(record.issued_ns);
        self.known[stream.known].latest = Some(index);
    }

    #[inline]
    fn random_stream(&mut self, owner: Owner) -> usize {
        let random = self.place(owner).and_then(|place| self.known[place].random);
        random.unwrap_or_else(|| self.open_random(owner))
    }

    fn open_random(&mut self, owner: Owner) -> usize {
        let index = self.open(owner, None);
        if self.random < OWNERS_MAX {
            self.random += 1;
            let place = self.enter(owner);
            self.known[place].random = Some(index);
        }
        index
    }

    /// The place of an owner that is known.
    #[inline]
    fn place(&mut self, owner: Owner) -> Option<usize> {
        if let Some((recent, place)) = self.recent
            && recent == owner
        {
            return Some(place);
        }
        let place = *self.owners.get(&owner)?;
        self.recent = Some((owner, place));
        Some(place)
    }

    /// The place of an owner, known from now on.
    fn enter(&mut self, owner: Owner) -> usize {
        let place = *self.owners.entry(owner).or_insert(self.known.len());
        if place == self.known.len() {
            self.known.push(Known::default());
        }
        place
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
        let number = usize::from(run.0);
        if number >= self.runs.len() {
            self.runs.resize(number + 1, None);
        }
        self.runs[number] = Some(index);
        index
    }

    /// A new stream, or the first of its kind where there are too many.
    fn open(&mut self, owner: Owner, sequential: Option<Op>) -> usize {
        if self.streams.len() >= STREAMS_MAX {
            let same = |stream: &Stream| stream.sequential == sequential;
            return self.streams.iter().position(same).unwrap_or(0);
        }
        let (body, known) = (PhasedStream::default(), self.enter(owner));
        self.streams.push(Stream { owner, sequential, body, last_ns: 0, known });
        self.streams.len() - 1
    }
}

fn owner(record: &TraceRecord) -> Owner {
    Owner { device: record.device, process: record.process }
}
