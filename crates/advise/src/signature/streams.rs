//! What is counted of each stream by itself.

use headpond_trace::{Names, Op, TraceRecord};

use super::partial::Part;
use super::router::Router;
use super::runs::{DetectedRun, RunDetector};
use super::step::Step;

/// Looks at requests in order of issue.
#[derive(Debug, Default)]
pub(super) struct Streams {
    runs: RunDetector,
    router: Router,
    found: Vec<DetectedRun>,
}

impl Streams {
    /// Adds a batch of requests, and tells when each step is done.
    pub(super) fn add(&mut self, batch: &[TraceRecord], done: &mut impl FnMut(Step)) {
        for record in batch {
            if matches!(record.op, Op::Read | Op::Write) && record.length_bytes > 0 {
                self.runs.add(record, &mut self.found);
            } else {
                self.found.push(DetectedRun::Aside(*record));
            }
        }
        done(Step::Runs);
        self.route();
        done(Step::Streams);
    }

    /// All of them as parts of the trace, the busiest first.
    pub(super) fn finish(mut self, names: &Names, source: &str) -> Vec<Part> {
        self.runs.finish(&mut self.found);
        self.found.sort_by_key(|found| match found {
            DetectedRun::Placed(record, _) => record.issued_ns,
            _ => u64::MAX,
        });
        self.route();
        self.router.finish(names, source)
    }

    fn route(&mut self) {
        self.found.iter().for_each(|found| self.router.take(found));
        self.found.clear();
    }
}
