//! The page around the charts.

use super::charts;
use crate::render::{render_reuse, render_signature};
use crate::reuse::Reuse;
use crate::signature::Signature;
use headpond_report::{cards, document, escape, side_by_side, verbatim};
use headpond_report::{count, duration, percent, rate, size};

const COUNTED: &str = "Counted in the trace: times and requests as they were recorded.";

/// The whole page; `title` says what was analysed.
pub fn render_page(title: &str, signature: &Signature) -> String {
    let body = format!(
        "<h1>{}</h1>\n<p>{}</p>\n{}{}{}",
        escape(title),
        escape(&summary(signature)),
        cards(figures(signature)),
        side_by_side(&charts::all(signature, None)),
        verbatim(&render_signature(signature))
    );
    document(title, COUNTED, &body)
}

/// The same of a trace that tells of reuse alone.
pub fn render_reuse_page(title: &str, reuse: &Reuse) -> String {
    let charts = side_by_side(&charts::of_reuse(reuse));
    let text = verbatim(&render_reuse(reuse));
    let body = format!("<h1>{}</h1>\n{charts}{text}", escape(title));
    document(title, COUNTED, &body)
}

pub(super) fn summary(signature: &Signature) -> String {
    let streams: Vec<_> =
        signature.streams.iter().take(3).map(|stream| stream.describe()).collect();
    match (streams.len(), signature.streams.len()) {
        (0, _) => "no requests".to_owned(),
        (shown, all) if shown < all => format!("{}; and {} more", streams.join("; "), all - shown),
        _ => streams.join("; "),
    }
}

/// The first things to know.
pub(super) fn figures(signature: &Signature) -> Vec<(&'static str, String)> {
    let volume = &signature.volume;
    let seconds = signature.duration_ns as f64 / 1e9;
    let mean = if seconds > 0.0 { signature.requests as f64 / seconds } else { 0.0 };
    let mut figures = vec![
        ("requests", count(signature.requests)),
        ("time", duration(signature.duration_ns)),
        ("requests a second", rate(mean)),
        ("read", size(volume.read_bytes)),
        ("written", size(volume.written_bytes)),
        ("footprint", size(volume.footprint_bytes)),
    ];
    if volume.written_bytes > 0 {
        figures.push(("of writes overwrite", percent(volume.overwrite_share)));
    }
    if volume.read_bytes > 0 {
        figures.push(("of reads come back", percent(volume.read_reuse_share)));
    }
    if let Some(knee) = volume.knee_bytes {
        figures.push(("cache that pays most", size(knee)));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Job, half_reads, scattered, together};

    #[test]
    fn the_page_has_a_chart_of_everything_and_needs_nothing_else() {
        let job = Job::new(8, 5000, 8192);
        let run = job.run(|n| (half_reads(n), scattered(n, 8192) % (1 << 24)));
        let page = render_page("a <b> & \"c\"", &together(vec![run]));
        assert_eq!(page.matches("<svg ").count(), 11, "{page}");
        for title in ["Reads", "Writes", "Miss ratio by size", "eviction policy", "Queue depth"] {
            assert!(page.contains(title), "{title}");
        }
        assert!(page.contains("<h1>a &lt;b&gt; &amp; &quot;c&quot;</h1>"));
        for outside in ["http", "<script", "@import", "NaN", "inf"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_trace_of_nothing_has_a_page_without_charts() {
        let page = render_page("empty", &together(vec![]));
        assert!(page.contains("no requests") && !page.contains("<svg"), "{page}");
    }
}
