//! A signature as text.

use super::figures::{count, duration, percent, rate, size, throughput};
use super::table::{Align, Table};
use crate::signature::{Signature, StreamSignature};

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
    let parts = [process.as_deref(), stream.device.as_deref()];
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
    if let Some(response_ns) = stream.mean_response_ns {
        parts.push(format!("mean response {}", duration(response_ns)));
    }
    if stream.failed > 0 {
        parts.push(format!("{} failed", count(stream.failed)));
    }
    out.push_str(&format!("stream {}: {}\n", stream.number, parts.join("; ")));
}

fn volume(signature: &Signature) -> String {
    let volume = &signature.volume;
    let mut table = Table::new([("volume", Align::Left), ("", Align::Right)]);
    let mut row = |name: &str, value: String| {
        table.row([name.to_owned(), value]);
    };
    row("footprint", size(volume.footprint_bytes));
    if let Some((low, high)) = volume.range_bytes {
        row("range covered", format!("{} from {}", size(high - low), size(low)));
    }
    row("read", size(volume.read_bytes));
    row("written", size(volume.written_bytes));
    row("written again", percent(volume.overwrite_share));
    row("read again", percent(volume.read_reuse_share));
    if let Some(depth) = &signature.depth {
        row("depth over all streams", format!("{} (max {})", depth.typical, depth.max));
    }
    table.render()
}
