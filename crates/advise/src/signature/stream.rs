//! One stream, described.

use std::collections::BTreeMap;

use headpond_trace::{Names, Op};
use serde::Serialize;

use super::arrivals::GapSummary;
use super::depth::Depth;
use super::partial::Part;
use super::phases::fold_small;
use super::placement::Aligned;
use super::router::{Owner, Stream};
use super::sizes::Sizes;
use super::totals::Totals;
use headpond_report::size;

/// Streams shown one by one, and the share of all requests, bytes or busy time that each has at
/// least; the others are shown together as the rest.
const SHOWN_MAX: usize = 24;
const STREAM_SHARE_MIN: f64 = 0.005;

/// Share of sequential requests from which a stream counts as sequential, and up to which as
/// random.
const SEQUENTIAL_SHARE_MIN: f64 = 0.8;
const RANDOM_SHARE_MAX: f64 = 0.2;

/// Random writes are present when they are at least this share of the requests.
const RANDOM_WRITES_SHARE_MIN: f64 = 0.02;

/// Requests that belong together, and what they are like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSignature {
    /// From 1, in the order of the list.
    pub number: usize,
    /// The trace it is of, where several were merged or it was given a name.
    pub source: Option<String>,
    /// Device or file, where the trace names it.
    pub device: Option<String>,
    /// Process id, where the trace tells it.
    pub process: Option<u32>,
    pub process_name: Option<String>,
    pub pattern: Pattern,
    pub random_writes_present: bool,
    pub requests: u64,
    pub bytes: u64,
    /// Share of all requests and of all bytes of the trace.
    pub request_share: f64,
    pub byte_share: f64,
    pub mix: Mix,
    pub sizes: Option<Sizes>,
    /// Known where the trace tells completions.
    pub depth: Option<Depth>,
    /// Share of reads and writes in sequential runs.
    pub sequential_share: f64,
    pub runs: Option<Runs>,
    /// Share of writes whose issuer waits for them.
    pub sync_share: f64,
    pub fua_share: f64,
    pub flushes_per_100_writes: f64,
    pub metadata_share: f64,
    pub failed: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// From the first issue to the last issue or completion, whatever lies between.
    pub requests_per_second: f64,
    pub bytes_per_second: f64,
    pub mean_response_ns: Option<u64>,
    /// Share of the requests with data on each boundary, from 512 bytes on.
    pub alignment: Vec<Aligned>,
    /// Times from one request to the next.
    pub gaps: Option<GapSummary>,
    /// Times from the last completion to the next request, where nothing else was in flight.
    pub think: Option<GapSummary>,
}

/// How a stream walks over the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    Random,
    Sequential,
    /// Some of both.
    Mixed,
}

/// Shares of the operations among a stream's requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mix {
    pub read: f64,
    pub write: f64,
    pub flush: f64,
    pub discard: f64,
    pub write_zeroes: f64,
}

/// Sequential runs of a stream: their parts in it, as a run may go on in another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Runs {
    pub count: u64,
    pub mean_requests: f64,
    pub mean_bytes: f64,
    pub longest_bytes: u64,
}

impl StreamSignature {
    /// Depth that holds most of the time; 1 where the trace does not tell.
    pub fn typical_depth(&self) -> u32 {
        self.depth.as_ref().map_or(1, |depth| depth.typical.max(1))
    }

    /// The most frequent size; 4 KiB for a stream without data.
    pub fn typical_bytes(&self) -> u64 {
        self.sizes.as_ref().map_or(4096, |sizes| sizes.dominant_bytes.max(512))
    }

    /// One line: size, pattern, direction, depth.
    pub fn describe(&self) -> String {
        let direction = match self.read_share() {
            share if share >= 0.98 => "read".to_owned(),
            share if share <= 0.02 => "write".to_owned(),
            share => format!("{:.0}/{:.0} read/write", share * 100.0, (1.0 - share) * 100.0),
        };
        let pattern = match self.pattern {
            Pattern::Random => "random",
            Pattern::Sequential => "sequential",
            Pattern::Mixed => "partly sequential",
        };
        let depth = self.depth.as_ref().map_or("depth unknown".to_owned(), Depth::describe);
        format!("{} {pattern} {direction}, {depth}", size(self.typical_bytes()))
    }

    /// Share of reads among reads and writes.
    pub fn read_share(&self) -> f64 {
        let data = self.mix.read + self.mix.write;
        if data > 0.0 { self.mix.read / data } else { 0.0 }
    }
}

/// The streams of one trace as parts of it: phases become streams, what is small joins what it
/// resembles or the rest, which comes last.
pub(crate) fn parts(streams: Vec<Stream>, names: &Names, source: &str) -> Vec<Part> {
    let mut phases: BTreeMap<Owner, Vec<Totals>> = BTreeMap::new();
    for stream in streams {
        phases.entry(stream.owner).or_default().extend(stream.body.finish());
    }
    phases.values_mut().for_each(fold_small);
    let named = |name: Option<&str>| name.map(str::to_owned);
    let part = |owner: Owner, totals| {
        let process = Some(owner.process).filter(|&process| process != 0);
        Part {
            source: source.to_owned(),
            device: named(names.device(owner.device)),
            process,
            process_name: named(process.and_then(|process| names.process(process))),
            is_rest: false,
            totals,
        }
    };
    let parts = phases.into_iter().flat_map(|(owner, phases)| {
        phases.into_iter().map(move |totals| part(owner, totals)).collect::<Vec<_>>()
    });
    let (mut shown, rest) = ranked(parts.filter(|it| it.totals.total_requests() > 0).collect());
    shown.extend(rest.map(|totals| Part { is_rest: true, ..part(Owner::default(), totals) }));
    if let Some(rest) = shown.last_mut().filter(|part| part.is_rest) {
        (rest.device, rest.process, rest.process_name) = (None, None, None);
    }
    shown
}

/// The parts that are shown, the busiest first, and the sum of the others.
fn ranked(mut parts: Vec<Part>) -> (Vec<Part>, Option<Totals>) {
    let add = |sum: u64, more: u64| sum.saturating_add(more);
    let requests = parts.iter().map(|part| part.totals.total_requests()).fold(0, add);
    let bytes = parts.iter().map(|part| part.totals.total_bytes()).fold(0, add);
    let busy_ns = parts.iter().map(|part| part.totals.busy_ns()).fold(0, add);
    let weight = |part: &Part| {
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        share(part.totals.total_requests(), requests)
            .max(share(part.totals.total_bytes(), bytes))
            .max(share(part.totals.busy_ns(), busy_ns))
    };
    parts.sort_by(|one, other| {
        one.is_rest.cmp(&other.is_rest).then(weight(other).total_cmp(&weight(one)))
    });
    let is_shown = |part: &&Part| !part.is_rest && weight(part) >= STREAM_SHARE_MIN;
    let shown = parts.iter().take(SHOWN_MAX).take_while(is_shown).count();
    // The busiest is shown however little it is.
    let least = parts.iter().take(1).filter(|part| !part.is_rest).count();
    let others = parts.split_off(shown.max(least));
    let sum = others.into_iter().map(|part| part.totals).reduce(|mut sum, totals| {
        sum.merge(&totals);
        sum
    });
    (parts, sum)
}

/// Describes the parts of one trace, or of several.
pub(crate) fn describe(parts: &[Part]) -> Vec<StreamSignature> {
    let add = |sum: u64, more: u64| sum.saturating_add(more);
    let requests = parts.iter().map(|part| part.totals.total_requests()).fold(0, add);
    let bytes = parts.iter().map(|part| part.totals.total_bytes()).fold(0, add);
    let (shown, rest) = ranked(parts.to_vec());
    let shown = shown.iter().map(|part| describe_one(Some(part), &part.totals, requests, bytes));
    let rest = rest.iter().map(|totals| describe_one(None, totals, requests, bytes));
    let numbered = (1..).zip(shown.chain(rest));
    numbered.map(|(number, stream)| StreamSignature { number, ..stream }).collect()
}

/// `origin` is `None` for the rest, which belongs to nobody in particular.
fn describe_one(
    origin: Option<&Part>,
    part: &Totals,
    all_requests: u64,
    all_bytes: u64,
) -> StreamSignature {
    let requests = part.total_requests();
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let count = |op: Op| part.requests[op.index()];
    let (reads, writes) = (count(Op::Read), count(Op::Write));
    let random: u64 = part.random.iter().sum();
    let sequential_share = share((reads + writes).saturating_sub(random), reads + writes);
    let random_writes = part.random[Op::Write.index()];
    StreamSignature {
        number: 0,
        source: origin.map(|part| part.source.clone()).filter(|source| !source.is_empty()),
        device: origin.and_then(|part| part.device.clone()),
        process: origin.and_then(|part| part.process),
        process_name: origin.and_then(|part| part.process_name.clone()),
        pattern: pattern(sequential_share),
        random_writes_present: share(random_writes, requests) >= RANDOM_WRITES_SHARE_MIN,
        requests,
        bytes: part.total_bytes(),
        request_share: share(requests, all_requests),
        byte_share: share(part.total_bytes(), all_bytes),
        mix: Mix {
            read: share(reads, requests),
            write: share(writes, requests),
            flush: share(count(Op::Flush), requests),
            discard: share(count(Op::Discard), requests),
            write_zeroes: share(count(Op::WriteZeroes), requests),
        },
        sizes: part.sizes.summary(),
        depth: part.depth.summary(),
        sequential_share,
        runs: runs(part),
        sync_share: share(part.sync_writes, writes),
        fua_share: share(part.fua_writes, writes),
        flushes_per_100_writes: 100.0 * share(count(Op::Flush), writes),
        metadata_share: share(part.metadata, requests),
        failed: part.failed,
        first_ns: part.first_ns,
        last_ns: part.last_ns,
        requests_per_second: per_second(requests, part.span_ns()),
        bytes_per_second: per_second(part.total_bytes(), part.span_ns()),
        mean_response_ns: (part.responses > 0)
            .then(|| (part.response_ns / u128::from(part.responses)) as u64),
        alignment: part.alignment.summary(),
        gaps: part.gaps.summary(),
        think: part.depth.thinks(),
    }
}

fn pattern(sequential_share: f64) -> Pattern {
    if sequential_share >= SEQUENTIAL_SHARE_MIN {
        Pattern::Sequential
    } else if sequential_share <= RANDOM_SHARE_MAX {
        Pattern::Random
    } else {
        Pattern::Mixed
    }
}

fn runs(part: &Totals) -> Option<Runs> {
    let count = part.runs.runs;
    (count > 0).then(|| Runs {
        count,
        mean_requests: part.runs.requests as f64 / count as f64,
        mean_bytes: part.runs.bytes as f64 / count as f64,
        longest_bytes: part.runs.longest_bytes,
    })
}

fn per_second(amount: u64, span_ns: u64) -> f64 {
    if span_ns == 0 { 0.0 } else { amount as f64 * 1e9 / span_ns as f64 }
}
