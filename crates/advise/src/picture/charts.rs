//! What is shown of a signature.

use super::heat;
use crate::reuse::Reuse;
use crate::signature::{
    BLOCK_BYTES, Bucket, CurvePoint, PolicyCurve, Signature, VolumeSignature, WorkingSet,
};
use headpond_report::Bars;
use headpond_report::{Axis, Unit};
use headpond_report::{Chart, Entry};
use headpond_report::{Line, Lines};
use headpond_report::{duration, size};

/// Depths shown one by one; deeper ones by doubling.
const DEPTHS_ALONE: u32 = 16;

/// Colours of reads, of writes and of both together.
const READS: usize = 0;
const WRITES: usize = 1;
const BOTH: usize = 2;

/// Everything that there is something to show of; `cache_bytes` is a cache to be pointed out.
pub(super) fn all(signature: &Signature, cache_bytes: Option<u64>) -> Vec<Chart> {
    let volume = &signature.volume;
    let charts = [
        heat::draw("Reads", &volume.heat_map, "s0", |cell| cell.reads),
        heat::draw("Writes", &volume.heat_map, "s1", |cell| cell.writes),
        curves(volume, cache_bytes),
        policies(&volume.policies),
        working_set(
            &volume.working_set,
            "read or written",
            (volume.written_bytes > 0).then_some("written"),
        ),
        sizes(volume),
        depths(signature),
        seeks(volume),
        reuse(&volume.reuse_distances),
        rewrites(volume),
        gaps(volume),
    ];
    charts.into_iter().flatten().collect()
}

/// What there is to show of reuse alone.
pub(super) fn of_reuse(of: &Reuse) -> Vec<Chart> {
    let charts = [
        misses(of),
        policies(&of.policies),
        of.working_set.as_ref().and_then(|set| working_set(set, "asked for", None)),
        reuse(&of.reuse_distances),
    ];
    charts.into_iter().flatten().collect()
}

fn misses(of: &Reuse) -> Option<Chart> {
    let (first, last) = (of.curve.first()?, of.curve.last()?);
    if first.cache_bytes == last.cache_bytes {
        return None;
    }
    let points = of.curve.iter().map(|point| (point.cache_bytes as f64, point.misses)).collect();
    let (first, last) = (first.cache_bytes as f64, last.cache_bytes as f64);
    Some(
        Lines {
            title: "Miss ratio by size of the cache".to_owned(),
            note: "an LRU cache that takes in all that is asked for".to_owned(),
            across: Axis::logarithmic(first, last, Unit::Bytes),
            up: Axis::linear(0.0, 1.0, Unit::Share),
            series: vec![Line::new("all", BOTH, points)],
            marks: of.knee_bytes.iter().map(|&knee| (knee as f64, size(knee))).collect(),
            level: None,
            are_steps: false,
        }
        .draw(),
    )
}

fn curves(volume: &VolumeSignature, cache_bytes: Option<u64>) -> Option<Chart> {
    let (first, last) = (volume.curve.first()?, volume.curve.last()?);
    if first.cache_bytes == last.cache_bytes {
        return None;
    }
    // More than all of it misses nothing less.
    let end = last.cache_bytes.max(cache_bytes.unwrap_or(0)) as f64;
    let points = |pick: fn(&CurvePoint) -> f64| {
        let known = volume.curve.iter().map(|point| (point.cache_bytes as f64, pick(point)));
        known.chain([(end, pick(last))]).collect()
    };
    let mut series = Vec::new();
    if volume.read_bytes > 0 {
        series.push(Line::new("reads", READS, points(|point| point.reads)));
    }
    if volume.written_bytes > 0 {
        series.push(Line::new("writes", WRITES, points(|point| point.writes)));
    }
    if series.len() > 1 {
        series.push(Line::new("both", BOTH, points(|point| point.all)));
    }
    let mut note = "an LRU cache that takes in all that is read and written".to_owned();
    let mut marks = Vec::new();
    if let Some(knee) = volume.knee_bytes {
        note += "; marked: the smallest that hits nine tenths of what any cache could";
        marks.push((knee as f64, size(knee)));
    }
    marks.extend(cache_bytes.map(|bytes| (bytes as f64, format!("this cache: {}", size(bytes)))));
    let across = Axis::logarithmic(first.cache_bytes as f64, end, Unit::Bytes);
    Some(
        Lines {
            title: "Miss ratio by size of the cache".to_owned(),
            note,
            across,
            up: Axis::linear(0.0, 1.0, Unit::Share),
            series,
            marks,
            level: None,
            are_steps: false,
        }
        .draw(),
    )
}

fn policies(policies: &[PolicyCurve]) -> Option<Chart> {
    let sizes = &policies.first()?.points;
    let (first, last) = (sizes.first()?, sizes.last()?);
    if sizes.len() < 2 {
        return None;
    }
    let series = policies.iter().enumerate().map(|(colour, curve)| {
        let points = curve.points.iter().map(|point| (point.cache_bytes as f64, point.misses));
        Line::new(curve.policy.word(), colour, points.collect())
    });
    Some(
        Lines {
            title: "Miss ratio by eviction policy".to_owned(),
            note: "reads and writes together; simulated on a part of the blocks".to_owned(),
            across: Axis::logarithmic(
                first.cache_bytes as f64,
                last.cache_bytes as f64,
                Unit::Bytes,
            ),
            up: Axis::linear(0.0, 1.0, Unit::Share),
            series: series.collect(),
            marks: Vec::new(),
            level: None,
            are_steps: false,
        }
        .draw(),
    )
}

/// `written` is what to call the written part, where there is one.
fn working_set(set: &WorkingSet, all: &str, written: Option<&str>) -> Option<Chart> {
    let last = set.windows.last()?;
    let window_ns = set.window_ns as f64;
    let points = |pick: fn(&crate::signature::WorkingSetWindow) -> u64| {
        let at = |index: usize| index as f64 * window_ns;
        let windows = set.windows.iter().enumerate();
        let mut points: Vec<_> =
            windows.map(|(index, window)| (at(index), pick(window) as f64)).collect();
        points.push((at(set.windows.len()), pick(last) as f64));
        points
    };
    let mut series = vec![Line::new(all, READS, points(|window| window.bytes))];
    if let Some(written) = written {
        series.push(Line::new(written, WRITES, points(|window| window.written_bytes)));
    }
    Some(
        Lines {
            title: "Working set".to_owned(),
            note: format!("different data in every {}", duration(set.window_ns)),
            across: Axis::linear(0.0, window_ns * set.windows.len() as f64, Unit::Nanos),
            up: Axis::linear(0.0, set.peak_bytes as f64, Unit::Bytes),
            series,
            marks: Vec::new(),
            level: None,
            are_steps: true,
        }
        .draw(),
    )
}

fn sizes(volume: &VolumeSignature) -> Option<Chart> {
    let series = [("reads", &volume.read_sizes), ("writes", &volume.write_sizes)];
    distribution("Request sizes", "of each size up to its double", &series, size)
}

fn depths(signature: &Signature) -> Option<Chart> {
    let depth = signature.depth.as_ref()?;
    let mut values: Vec<(u32, String, f64)> = Vec::new();
    for bar in &depth.distribution {
        let (from, label) = match bar.depth {
            alone if alone <= DEPTHS_ALONE => (alone, alone.to_string()),
            deep => {
                let from = 1 << (deep - 1).ilog2();
                (from + 1, format!("{}-{}", from + 1, 2 * from))
            }
        };
        match values.last_mut().filter(|last| last.0 == from) {
            Some(last) => last.2 += bar.share,
            None => values.push((from, label, bar.share)),
        }
    }
    let values = values.into_iter().map(|(_, label, share)| (label, vec![share])).collect();
    let title = "Queue depth".to_owned();
    let note = "share of the time with requests in flight".to_owned();
    Some(
        Bars { unit: Unit::Share, title, note, series: vec![Entry::new("depth", READS)], values }
            .draw(),
    )
}

/// Backward on the left, forward on the right.
fn seeks(volume: &VolumeSignature) -> Option<Chart> {
    let seeks = &volume.seeks;
    let mut values = Vec::new();
    for bucket in seeks.backward.iter().rev() {
        values.push((format!("-{}", size(bucket.from)), vec![bucket.share * seeks.backward_share]));
    }
    values.push(("0".to_owned(), vec![seeks.none_share]));
    for bucket in &seeks.forward {
        values.push((size(bucket.from), vec![bucket.share * seeks.forward_share]));
    }
    (values.len() > 1).then(|| {
        Bars {
            unit: Unit::Share,
            title: "Seek distances".to_owned(),
            note: "from the end of a request to the start of the next one on the device".to_owned(),
            series: vec![Entry::new("seeks", READS)],
            values,
        }
        .draw()
    })
}

fn reuse(distances: &Vec<Bucket>) -> Option<Chart> {
    let series = [("accesses", distances)];
    let note = "different data asked for between two accesses to a block";
    distribution("Reuse distances", note, &series, |blocks| {
        size(blocks.saturating_mul(BLOCK_BYTES))
    })
}

fn rewrites(volume: &VolumeSignature) -> Option<Chart> {
    let series = [("read", &volume.read_after_write), ("written again", &volume.overwritten_after)];
    distribution("After a write", "until the same block is next", &series, duration)
}

fn gaps(volume: &VolumeSignature) -> Option<Chart> {
    let gaps = &volume.arrivals.gaps.as_ref()?.distribution;
    distribution("Arrivals", "time from one request to the next", &[("gaps", gaps)], duration)
}

/// Distributions over the same values; every doubling between the lowest and the highest has a bar.
fn distribution(
    title: &str,
    note: &str,
    series: &[(&str, &Vec<Bucket>)],
    words: fn(u64) -> String,
) -> Option<Chart> {
    let used: Vec<(usize, &(&str, &Vec<Bucket>))> =
        series.iter().enumerate().filter(|(_, (_, buckets))| !buckets.is_empty()).collect();
    let all = || used.iter().flat_map(|(_, (_, buckets))| buckets.iter().map(|bucket| bucket.from));
    let (lowest, highest) = (all().min()?, all().max()?);
    let share = |buckets: &[Bucket], from| {
        buckets.iter().find(|bucket| bucket.from == from).map_or(0.0, |bucket| bucket.share)
    };
    let powers = (0..64).map(|exponent| 1u64 << exponent);
    let values = [0].into_iter().chain(powers).filter(|from| (lowest..=highest).contains(from));
    let values = values.map(|from| {
        (words(from), used.iter().map(|(_, (_, buckets))| share(buckets, from)).collect())
    });
    let series = used.iter().map(|(colour, (name, _))| Entry::new(name, *colour)).collect();
    let (title, note) = (title.to_owned(), note.to_owned());
    Some(Bars { unit: Unit::Share, title, note, series, values: values.collect() }.draw())
}
