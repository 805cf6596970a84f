//! What is counted of a trace, before it is judged: it can be stored where the trace lies, and
//! merged with that of others.
//!
//! 1. [`SignatureBuilder::count`] counts a trace. 2. [`Partial::merge`] adds others to it, in any
//!    order. 3. [`Partial::signature`] says what they are like together.
//!
//! **Invariants**: counts are whole numbers, and merging those of traces of different volumes gives
//! what one pass over all of them would give. Times of each trace count from its own start. What
//! depends on the order of requests in one volume (reuse, seeks, runs) ends with its trace.
//!
//! **Not here**: bytes in a file (`stored`).
//!
//! [`SignatureBuilder::count`]: super::SignatureBuilder::count

use serde::{Deserialize, Serialize};

use super::Signature;
use super::depth::TimeAtDepth;
use super::stream::describe;
use super::totals::Totals;
use super::volume::VolumeCounts;
use super::whole::WholeCounts;

/// Counts of one trace, or of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// The traces by name, in order; the same name twice is two parts of one volume's trace.
    sources: Vec<String>,
    requests: u64,
    bytes: u64,
    /// Of the longest trace.
    duration_ns: u64,
    /// In order of their sources, and as each source gave them.
    parts: Vec<Part>,
    volume: VolumeCounts,
    depth: TimeAtDepth,
}

/// One stream of a trace, or what is left of it beside those that are shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub source: String,
    pub device: Option<String>,
    pub process: Option<u32>,
    pub process_name: Option<String>,
    pub is_rest: bool,
    pub totals: Totals,
}

/// What a pass over one trace has counted.
pub(super) struct Counted {
    pub source: String,
    pub parts: Vec<Part>,
    pub whole: WholeCounts,
}

impl Partial {
    pub(super) fn new(counted: Counted) -> Self {
        let Counted { source, parts, whole } = counted;
        let WholeCounts { requests, bytes, duration_ns, volume, depth } = whole;
        Self { sources: vec![source], requests, bytes, duration_ns, parts, volume, depth }
    }

    /// Adds the counts of other traces.
    pub fn merge(&mut self, other: &Self) {
        self.sources.extend_from_slice(&other.sources);
        self.sources.sort();
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.duration_ns = self.duration_ns.max(other.duration_ns);
        self.parts.extend_from_slice(&other.parts);
        self.parts.sort_by(|one, other| one.source.cmp(&other.source));
        self.volume.merge(&other.volume);
        self.depth.merge(&other.depth);
    }

    /// The traces that were counted.
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// What they are like together.
    pub fn signature(&self) -> Signature {
        Signature {
            requests: self.requests,
            bytes: self.bytes,
            duration_ns: self.duration_ns,
            streams: describe(&self.parts),
            volume: self.volume.summary(),
            depth: self.depth.summary(),
        }
    }

    /// False where damage has left what no trace gives.
    pub(super) fn is_sound(&self) -> bool {
        self.volume.is_sound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::{Sampling, SignatureBuilder};
    use crate::testing::scattered;
    use headpond_trace::{Names, Op, TraceRecord};
    use proptest::prelude::*;

    type Request = (u64, u64, u64, bool, u32);

    fn records(requests: &[Request]) -> Vec<TraceRecord> {
        let mut at_ns = 0;
        let record = |&(gap_ns, block, count, is_write, process): &Request| {
            at_ns += gap_ns;
            let op = if is_write { Op::Write } else { Op::Read };
            let mut record = TraceRecord::new(at_ns, op, block * 4096, count * 4096);
            record.completed_ns = Some(at_ns + 100_000);
            record.process = process;
            record
        };
        requests.iter().map(record).collect()
    }

    fn counted(source: &str, records: &[TraceRecord]) -> Partial {
        let mut builder = SignatureBuilder::of_source(source, Sampling::default());
        records.iter().for_each(|record| builder.add(record));
        builder.count(&Names::default())
    }

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let gap = prop_oneof![20 => 0u64..1 << 24, 1 => 0u64..1 << 40];
        let request = (gap, 0u64..1 << 26, 1u64..20, any::<bool>(), 0u32..3);
        prop::collection::vec(request, 0..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn merging_goes_in_any_order_and_any_grouping(
            one in requests(), other in requests(), third in requests(),
        ) {
            let all = [one, other, third].map(|requests| records(&requests));
            let [a, b, c] = [("a", 0), ("b", 1), ("c", 2)].map(|(s, at)| counted(s, &all[at]));
            let mut left = a.clone();
            left.merge(&b);
            left.merge(&c);
            let mut right = c;
            right.merge(&b);
            let mut whole = right;
            whole.merge(&a);
            prop_assert_eq!(&left, &whole);
            let sum: usize = all.iter().map(Vec::len).sum();
            let streams = left.signature().streams;
            prop_assert_eq!(streams.iter().map(|stream| stream.requests).sum::<u64>(), sum as u64);
        }

        #[test]
        fn merging_is_one_pass_over_volumes_that_do_not_meet(
            one in requests(), other in requests(),
        ) {
            // As devices of one trace: what one pass sees of both must be what merging gives, but
            // for distances, which a cache of each alone has shorter.
            let (one, mut other) = (records(&one), records(&other));
            other.iter_mut().for_each(|record| {
                record.device = 1;
                record.process += 10;
            });
            let mut merged = counted("", &one);
            merged.merge(&counted("", &other));
            let mut both = [one, other].concat();
            both.sort_by_key(|record| record.issued_ns);
            let whole = counted("", &both);
            prop_assert!(merged.volume.agrees_with(&whole.volume));
            let sums = |partial: &Partial| (partial.requests, partial.bytes);
            prop_assert_eq!(sums(&merged), sums(&whole));
        }
    }

    #[test]
    fn the_same_blocks_of_other_volumes_are_others_and_of_the_same_volume_the_same() {
        let writes = (0..2000).map(|n| (1000, scattered(n, 1) % 1_000_000, 1, true, 1));
        let writes = records(&writes.collect::<Vec<_>>());
        let peak = |one: &str, other: &str| {
            let mut merged = counted(one, &writes);
            merged.merge(&counted(other, &writes));
            merged.signature().volume.working_set.peak_bytes as f64
        };
        let (same, different) = (peak("a", "a"), peak("a", "b"));
        assert!((1.8..2.2).contains(&(different / same)), "{same} {different}");
    }

    #[test]
    fn streams_of_a_fleet_carry_the_name_of_their_trace() {
        let busy: Vec<_> = (0..3000).map(|n| (1000, scattered(n, 1), 1, true, 1)).collect();
        let quiet: Vec<_> = (0..1000).map(|n| (1000, scattered(n, 1), 1, false, 1)).collect();
        let mut fleet = counted("quiet", &records(&quiet));
        fleet.merge(&counted("busy", &records(&busy)));
        assert_eq!(fleet.sources(), ["busy", "quiet"]);
        let streams = fleet.signature().streams;
        let shown: Vec<_> = streams.iter().map(|it| (it.source.as_deref(), it.requests)).collect();
        assert_eq!(shown, [(Some("busy"), 3000), (Some("quiet"), 1000)]);
        assert_eq!(streams[0].request_share, 0.75);
    }
}
