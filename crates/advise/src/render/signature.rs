//! A signature as text.

use crate::signature::{BLOCK_BYTES, GapSummary, PolicyCurve, Signature, StreamSignature};
use headpond_report::{Align, Table};
use headpond_report::{count, duration, percent, rate, size, throughput};

/// The streams as a table, then what the volume is used for.
pub fn render_signature(signature: &Signature) -> String {
    let mut out = format!(
        "{} requests, {} in {}\n\n",
        count(signature.requests),
        size(signature.bytes),
        duration(signature.duration_ns)
    );
    if signature.streams.is_empty() {
        return out;
    }
    out.push_str(&streams(signature));
    out.push('\n');
    for stream in &signature.streams {
        details(stream, &mut out);
    }
    out.push('\n');
    out.push_str(&volume(signature));
    if !signature.volume.hits.is_empty() {
        out.push('\n');
        out.push_str(&caches(signature));
    }
    out
}

fn streams(signature: &Signature) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("stream", Right),
        ("from", Left),
        ("pattern", Left),
        ("size", Right),
        ("read", Right),
        ("write", Right),
        ("depth", Right),
        ("requests", Right),
        ("bytes", Right),
        ("time", Right),
        ("rate", Right),
        ("throughput", Right),
        ("random writes", Left),
    ]);
    for stream in &signature.streams {
        let depth = stream.depth.as_ref().map_or("?".to_owned(), |depth| {
            depth.describe().trim_start_matches("depth ").replace(" in batches", "")
        });
        table.row([
            stream.number.to_string(),
            origin(stream),
            format!("{:?}", stream.pattern).to_lowercase(),
            size(stream.typical_bytes()),
            percent(stream.mix.read),
            percent(stream.mix.write),
            depth,
            count(stream.requests),
            size(stream.bytes),
            duration(stream.last_ns - stream.first_ns),
            rate(stream.requests_per_second),
            throughput(stream.bytes_per_second),
            if stream.random_writes_present { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table.render()
}

fn origin(stream: &StreamSignature) -> String {
    let process = match (&stream.process_name, stream.process) {
        (Some(name), Some(id)) => Some(format!("{name}[{id}]")),
        (None, Some(id)) => Some(format!("process {id}")),
        _ => None,
    };
    let parts = [stream.source.as_deref(), process.as_deref(), stream.device.as_deref()];
    let known: Vec<&str> = parts.into_iter().flatten().collect();
    if known.is_empty() { "-".to_owned() } else { known.join(" ") }
}

fn details(stream: &StreamSignature, out: &mut String) {
    let mut parts = vec![stream.describe()];
    if let Some(sizes) = &stream.sizes
        && sizes.dominant_share < 0.995
    {
        let bars = sizes.distribution.iter().filter(|bar| bar.share >= 0.05);
        let bars: Vec<_> =
            bars.map(|bar| format!("{} {}", size(bar.bytes), percent(bar.share))).collect();
        parts.push(format!("sizes {}", bars.join(", ")));
    }
    if let Some(runs) = &stream.runs {
        parts.push(format!(
            "{} sequential {}, mean {}, longest {}",
            count(runs.count),
            if runs.count == 1 { "run" } else { "runs" },
            size(runs.mean_bytes as u64),
            size(runs.longest_bytes)
        ));
    }
    let shares = [
        (stream.sync_share, "of writes sync"),
        (stream.fua_share, "of writes FUA"),
        (stream.metadata_share, "metadata"),
    ];
    let shares = shares.into_iter().filter(|&(share, _)| share > 0.0);
    parts.extend(shares.map(|(share, what)| format!("{} {what}", percent(share))));
    if stream.flushes_per_100_writes > 0.0 {
        parts.push(format!("{:.1} flushes per 100 writes", stream.flushes_per_100_writes));
    }
    arrival(stream, &mut parts);
    if let Some(response_ns) = stream.mean_response_ns {
        parts.push(format!("mean response {}", duration(response_ns)));
    }
    if stream.failed > 0 {
        parts.push(format!("{} failed", count(stream.failed)));
    }
    out.push_str(&format!("stream {}: {}\n", stream.number, parts.join("; ")));
}

/// How its requests come and lie.
fn arrival(stream: &StreamSignature, parts: &mut Vec<String>) {
    let words = |it: &GapSummary| {
        let (median, variation) = (duration(it.median_ns), it.variation);
        format!("{median} (variation {variation:.1})")
    };
    if let Some(gaps) = stream.gaps.as_ref().filter(|gaps| gaps.mean_ns > 0) {
        parts.push(format!("between requests {}", words(gaps)));
    }
    if let Some(think) = &stream.think {
        parts.push(format!("think time {}", words(think)));
    }
    let aligned = stream.alignment.iter().find(|it| it.boundary_bytes == BLOCK_BYTES);
    let share = aligned.map_or(0.0, |it| it.share);
    if stream.sizes.is_some() && share < 0.995 {
        parts.push(format!("{} aligned to 4 KiB", percent(share)));
    }
}

/// What the volume is used for, as a list of figures.
fn volume(signature: &Signature) -> String {
    let volume = &signature.volume;
    let mut table = Table::new([("volume", Align::Left), ("", Align::Left)]);
    let mut row = |name: &str, value: String| {
        table.row([name.to_owned(), value]);
    };
    row("footprint", size(volume.footprint_bytes));
    if let Some((low, high)) = volume.range_bytes {
        row("range covered", format!("{} from {}", size(high - low), size(low)));
    }
    row("read", size(volume.read_bytes));
    row("written", size(volume.written_bytes));
    row("written again", after(volume.overwrite_share, volume.median_overwrite_ns));
    row("read again", percent(volume.read_reuse_share));
    row(
        "read after written",
        after(volume.read_after_write_share, volume.median_read_after_write_ns),
    );
    if let Some(blocks) = volume.median_reuse_distance {
        row("between two uses (median)", size(blocks.saturating_mul(BLOCK_BYTES)));
    }
    let set = &volume.working_set;
    if set.windows.len() > 1 {
        let window = duration(set.window_ns);
        row(
            "working set",
            format!("{} every {window}, peak {}", size(set.mean_bytes), size(set.peak_bytes)),
        );
    }
    place(signature, &mut row);
    time(signature, &mut row);
    table.render()
}

/// Where requests go.
fn place(signature: &Signature, row: &mut impl FnMut(&str, String)) {
    let volume = &signature.volume;
    if let Some(median) = volume.seeks.median_bytes {
        let none = percent(volume.seeks.none_share);
        row("seek (median)", format!("{}; none {none}", size(median)));
    }
    if let Some(aligned) = volume.alignment.iter().find(|it| it.boundary_bytes == BLOCK_BYTES) {
        row("aligned to 4 KiB", percent(aligned.share));
    }
    let spots = &volume.hot_writes;
    if let Some(hottest) = spots.hottest.first() {
        row(
            "busiest tenth of what is written",
            format!("{} of writes", percent(spots.hottest_tenth)),
        );
        row(
            "busiest extent",
            format!(
                "{} at {}: {} of writes",
                size(spots.extent_bytes),
                size(hottest.offset_bytes),
                percent(hottest.share)
            ),
        );
    }
}

/// When requests come.
fn time(signature: &Signature, row: &mut impl FnMut(&str, String)) {
    let arrivals = &signature.volume.arrivals;
    if let Some(gaps) = arrivals.gaps.as_ref().filter(|gaps| gaps.mean_ns > 0) {
        let (median, variation) = (duration(gaps.median_ns), gaps.variation);
        row("between requests (median)", format!("{median}, variation {variation:.1}"));
        let busiest = format!("busiest {}", duration(arrivals.peak_window_ns));
        row(&busiest, rate(arrivals.peak_per_second));
    }
    if !arrivals.dispersion.is_empty() {
        let words = arrivals
            .dispersion
            .iter()
            .map(|it| format!("{} in {}", short_index(it.index), duration(it.window_ns)));
        row("burstiness", words.collect::<Vec<_>>().join(", "));
    }
    if let Some(depth) = &signature.depth {
        row("depth over all streams", format!("{} (max {})", depth.typical, depth.max));
    }
}

/// What a cache of some sizes would miss, and which policy would miss least.
fn caches(signature: &Signature) -> String {
    use Align::Right;
    let volume = &signature.volume;
    let mut table = Table::new([
        ("cache", Right),
        ("misses", Right),
        ("of reads", Right),
        ("of writes", Right),
        ("least with", Align::Left),
    ]);
    let largest = volume.hits.last().map_or(0, |hit| hit.cache_bytes);
    for hit in &volume.hits {
        // By four, down from what holds all.
        if !(largest / hit.cache_bytes).ilog2().is_multiple_of(2) {
            continue;
        }
        let all = volume.miss_ratio(hit.cache_bytes);
        table.row([
            size(hit.cache_bytes),
            percent(all),
            part(volume.read_bytes, 1.0 - hit.reads),
            part(volume.written_bytes, 1.0 - hit.writes),
            best_policy(&volume.policies, hit.cache_bytes),
        ]);
    }
    if let Some(knee) = volume.knee_bytes {
        let knee = size(knee);
        return format!("{}nine tenths of all possible hits: from {knee} on\n", table.render());
    }
    table.render()
}

/// Misses of reads or of writes, where there are such.
fn part(bytes: u64, misses: f64) -> String {
    if bytes > 0 { percent(misses) } else { "-".to_owned() }
}

/// The policy that misses least at this size, where it is known and makes a difference.
pub(super) fn best_policy(policies: &[PolicyCurve], cache_bytes: u64) -> String {
    let at_size = policies.iter().filter_map(|curve| {
        let point = curve.points.iter().find(|point| point.cache_bytes == cache_bytes)?;
        Some((curve.policy.word(), point.misses))
    });
    let ranked: Vec<(&str, f64)> = at_size.collect();
    let best = ranked.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    let worst = ranked.iter().map(|it| it.1).fold(0.0, f64::max);
    match best {
        Some((word, misses)) if worst - misses >= 0.01 => format!("{word} ({})", percent(*misses)),
        _ => "-".to_owned(),
    }
}

/// A share, and after how long in the middle.
fn after(share: f64, median_ns: Option<u64>) -> String {
    let median = median_ns.map(|median_ns| format!(", after {} (median)", duration(median_ns)));
    format!("{}{}", percent(share), median.unwrap_or_default())
}

fn short_index(index: f64) -> String {
    if index < 10.0 { format!("{index:.1}") } else { count(index.round() as u64) }
}
