//! Which I/O classes are tried: rules of which something of the workload holds and something does
//! not. By length, by length and direction, and by what is metadata.

use super::Axis;
use crate::signature::{Bucket, Signature};
use headpond_volume::ClassSetting;

pub(super) const KEY: &str = "classes";

/// Of a rule there must be so much, of all requests, on either side.
const SHARE_MIN: f64 = 0.01;

/// Lengths at which requests are told apart.
const LENGTHS_MAX: usize = 3;

/// What is shorter is told apart from nothing.
const LENGTH_MIN: u64 = 8192;

/// The rules that tell requests of this workload apart; none where none does, or where the machine
/// has classes that are more than one line: those are their author's.
pub(super) fn class_axis(signature: &Signature, standing: &ClassSetting) -> Option<Axis> {
    if matches!(standing, ClassSetting::Inline(_) | ClassSetting::File(_)) {
        return None;
    }
    let mut values = vec![String::from(standing.clone()), "none".to_owned()];
    let lengths = Lengths::of(signature);
    for bytes in lengths.told_apart() {
        values.push(format!("past:request_size:ge:{bytes}"));
        values.push(format!("keep:request_size:lt:{bytes}"));
        if lengths.reads.are_long(bytes) && lengths.writes.are_long(bytes) {
            let of = |what| format!("past:request_size:ge:{bytes}&io_direction:{what}");
            values.extend(["read", "write"].map(of));
        }
    }
    let metadata = metadata_share(signature);
    if (SHARE_MIN..=1.0 - SHARE_MIN).contains(&metadata) {
        values.extend(["keep:metadata", "only:metadata"].map(str::to_owned));
    }
    values.dedup();
    (values.len() > 1).then_some(Axis { key: KEY, values })
}

/// Of all requests, those that are metadata.
fn metadata_share(signature: &Signature) -> f64 {
    let of_stream = signature.streams.iter().map(|it| it.request_share * it.metadata_share);
    of_stream.sum()
}

/// How long requests are.
struct Lengths<'a> {
    reads: Part<'a>,
    writes: Part<'a>,
}

/// Those of one direction.
struct Part<'a> {
    /// Of all requests.
    share: f64,
    sizes: &'a [Bucket],
}

impl<'a> Lengths<'a> {
    fn of(signature: &'a Signature) -> Self {
        let share = |of: fn(&crate::signature::Mix) -> f64| {
            signature.streams.iter().map(|it| it.request_share * of(&it.mix)).sum()
        };
        let volume = &signature.volume;
        Self {
            reads: Part { share: share(|mix| mix.read), sizes: &volume.read_sizes },
            writes: Part { share: share(|mix| mix.write), sizes: &volume.write_sizes },
        }
    }

    /// Lengths with enough on either side; where there are many, evenly among them.
    fn told_apart(&self) -> Vec<u64> {
        let buckets = self.reads.sizes.iter().chain(self.writes.sizes);
        let mut lengths: Vec<u64> = buckets.map(|bucket| bucket.from).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths.retain(|bytes| {
            let long = self.reads.long(*bytes) + self.writes.long(*bytes);
            let all = self.reads.share + self.writes.share;
            *bytes >= LENGTH_MIN && long >= SHARE_MIN && all - long >= SHARE_MIN
        });
        let count = lengths.len();
        let kept = count.min(LENGTHS_MAX);
        (0..kept).map(|nth| lengths[nth * count / kept]).collect()
    }
}

impl Part<'_> {
    /// Of all requests, those of this direction that are at least so long.
    fn long(&self, bytes: u64) -> f64 {
        let long = self.sizes.iter().filter(|bucket| bucket.from >= bytes);
        self.share * long.map(|bucket| bucket.share).sum::<f64>()
    }

    fn are_long(&self, bytes: u64) -> bool {
        self.long(bytes) >= SHARE_MIN
    }
}
