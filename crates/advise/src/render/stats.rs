//! Statistics of a trace as text.

use headpond_trace::{Tally, TraceFormat, TraceStats};

use headpond_report::{Align, Table};
use headpond_report::{count, duration, size};

/// What a trace holds and what its reader met.
pub fn render_stats(format: TraceFormat, stats: &TraceStats, tally: &Tally) -> String {
    let time = match stats.duration_ns {
        0 if stats.requests > 1 => "without times".to_owned(),
        duration_ns => format!("in {}", duration(duration_ns)),
    };
    let mut out = format!("{}: {} requests {time}\n\n", format.words(), count(stats.requests));
    out.push_str(&operations(stats));
    out.push('\n');
    out.push_str(&counts(stats, tally));
    out
}

fn operations(stats: &TraceStats) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("operation", Left),
        ("requests", Right),
        ("bytes", Right),
        ("smallest", Right),
        ("largest", Right),
        ("in queue", Right),
        ("at device", Right),
        ("response", Right),
    ]);
    let time = |nanos: Option<u64>| nanos.map_or("?".to_owned(), duration);
    for sums in &stats.operations {
        table.row([
            sums.op.word().to_owned(),
            count(sums.requests),
            size(sums.bytes),
            size(sums.smallest_bytes),
            size(sums.largest_bytes),
            time(sums.mean_queue_ns),
            time(sums.mean_service_ns),
            time(sums.mean_response_ns),
        ]);
    }
    table.render()
}

fn counts(stats: &TraceStats, tally: &Tally) -> String {
    let mut table = Table::new([("count", Align::Left), ("", Align::Right)]);
    let counts = [
        ("events or lines", tally.events),
        ("sync", stats.sync),
        ("FUA", stats.fua),
        ("metadata", stats.metadata),
        ("failed", stats.failed),
        ("told to try again", stats.retried),
        ("merged by the kernel", tally.merges),
        ("split by the kernel", tally.splits),
        ("remapped", tally.remaps),
        ("requeued", tally.requeues),
        ("aborted", tally.aborts),
        ("drive and zone commands", tally.other_commands),
        ("without completion", tally.incomplete),
        ("completions without request", tally.unmatched_completions),
        ("dispatches without request", tally.dispatched_unqueued),
        ("requests known by their completion", tally.completed_unqueued),
        ("events out of order", tally.out_of_order),
        ("ranges beyond 2^64", tally.impossible_ranges),
        ("damaged places skipped", tally.damaged),
        ("bytes skipped", tally.skipped_bytes),
    ];
    for (name, number) in counts.into_iter().filter(|&(_, number)| number > 0) {
        table.row([name.to_owned(), count(number)]);
    }
    table.render()
}
