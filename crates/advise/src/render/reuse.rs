//! What is known of reuse alone, as text.

use super::signature::best_policy;
use crate::reuse::Reuse;
use headpond_report::{Align, Table};
use headpond_report::{count, duration, percent, size};

/// Reuse as figures, what a cache would miss, and what cannot be said.
pub fn render_reuse(reuse: &Reuse) -> String {
    let mut out = format!("{} requests, {}\n\n", count(reuse.requests), size(reuse.bytes));
    out.push_str(&figures(reuse));
    if !reuse.curve.is_empty() {
        out.push('\n');
        out.push_str(&caches(reuse));
    }
    out.push_str("\nThe trace does not tell:\n");
    reuse.not_told.iter().for_each(|line| out.push_str(&format!("  - {line}\n")));
    out
}

fn figures(reuse: &Reuse) -> String {
    let mut table = Table::new([("volume", Align::Left), ("", Align::Left)]);
    let mut row = |name: &str, value: String| {
        table.row([name.to_owned(), value]);
    };
    row("footprint", size(reuse.footprint_bytes));
    if let Some((low, high)) = reuse.range_bytes {
        row("range covered", format!("{} from {}", size(high - low), size(low)));
    }
    row("used again", percent(reuse.reuse_share));
    if let Some(bytes) = reuse.median_reuse_bytes {
        row("between two uses (median)", size(bytes));
    }
    if let Some(set) = reuse.working_set.as_ref().filter(|set| set.windows.len() > 1) {
        let window = duration(set.window_ns);
        let mean = size(set.mean_bytes);
        row("working set", format!("{mean} every {window}, peak {}", size(set.peak_bytes)));
    }
    table.render()
}

/// Sizes by four, down from what holds all.
fn caches(reuse: &Reuse) -> String {
    let mut table = Table::new([
        ("cache", Align::Right),
        ("misses", Align::Right),
        ("least with", Align::Left),
    ]);
    let powers = reuse.curve.iter().filter(|point| point.cache_bytes.is_power_of_two());
    let largest = powers.clone().next_back().map_or(1, |point| point.cache_bytes);
    for point in powers.filter(|it| (largest / it.cache_bytes).ilog2().is_multiple_of(2)) {
        let best = best_policy(&reuse.policies, point.cache_bytes);
        table.row([size(point.cache_bytes), percent(point.misses), best]);
    }
    let knee = reuse
        .knee_bytes
        .map(|knee| format!("nine tenths of all possible hits: from {} on\n", size(knee)));
    table.render() + &knee.unwrap_or_default()
}
