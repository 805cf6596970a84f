//! Which I/O classes are tried: rules of which something of the workload holds and something does
//! not. By length, by length and direction, and by what is metadata.

use super::Axis;
use crate::signature::{Bucket, Signature};
use headpond_volume::ClassSetting;

/// As `headpond set` calls it.
pub(super) const KEY: &str = "classes";

/// Of a rule there must be so much, of all requests, on either side.
const SHARE_MIN: f64 = 0.01;

/// Lengths at which requests are told apart.
const LENGTHS_MAX: usize = 3;

/// What is shorter is told apart from nothing.
const LENGTH_MIN: u64 = 8192;

/// The rules that tell requests of this workload apart; none where none does, or where the machine
/// has classes that stay: a text of somebody's, or what a replay cannot judge, since it goes
/// elsewhere, or knows of no metadata.
pub(super) fn class_axis(signature: &Signature, standing: &ClassSetting) -> Option<Axis> {
    let classes = standing.classes();
    let is_unknown = classes.asks_for_metadata() && signature.metadata_share() == 0.0;
    if standing.is_text() || classes.asks_for_place() || is_unknown {
        return None;
    }
    let mut values = vec![String::from(standing.clone())];
    let mut add = |value: String| {
        if !values.contains(&value) {
            values.push(value);
        }
    };
    add("none".to_owned());
    let lengths = Lengths::of(signature);
    for bytes in lengths.told_apart() {
        add(format!("past:request_size:ge:{bytes}"));
        add(format!("keep:request_size:lt:{bytes}"));
        if lengths.reads.are_long(bytes) && lengths.writes.are_long(bytes) {
            add(format!("past:request_size:ge:{bytes}&io_direction:read"));
            add(format!("past:request_size:ge:{bytes}&io_direction:write"));
        }
    }
    if (SHARE_MIN..=1.0 - SHARE_MIN).contains(&signature.metadata_share()) {
        add("keep:metadata".to_owned());
        add("only:metadata".to_owned());
    }
    (values.len() > 1).then_some(Axis { key: KEY, values })
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

    /// Lengths with enough on either side; where there are many, the least, the greatest, and
    /// evenly in between.
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
        let last = lengths.len().saturating_sub(1);
        let kept = lengths.len().min(LENGTHS_MAX);
        (0..kept).map(|nth| lengths[nth * last / (kept - 1).max(1)]).collect()
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
