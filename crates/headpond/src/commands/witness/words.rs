//! A ruling in sentences.

use headpond_witness::field::ruling::{Ruling, Verdict};

/// The result of a verification, line by line.
pub fn of(name: &str, ruling: &Ruling) -> Vec<String> {
    let mut lines = vec![format!("{name}: {}", ruling.verdict)];
    lines.extend(ruling.before.map(|before| {
        format!(
            "nothing was written since the previous verification, and this one expects what that \
             one found; its result: {before}"
        )
    }));
    lines.push(format!(
        "verified {} of {} blocks; {} have flushed data; {} writes and {} flushes were \
         acknowledged",
        ruling.blocks_looked_at,
        ruling.region_blocks,
        ruling.blocks_promised,
        ruling.writes_acknowledged,
        ruling.flushes_acknowledged
    ));
    lines.extend(offences(ruling));
    lines.extend(evidence(ruling));
    if let Some(first) = &ruling.first {
        lines.push(format!(
            "the first: block {} of the region, {:?}: found {}; allowed {}",
            first.block, first.offence, first.found, first.allowed
        ));
        lines.extend(first.story.iter().map(|line| format!("    {line}")));
    }
    lines
}

fn offences(ruling: &Ruling) -> Option<String> {
    let counts = &ruling.counts;
    let named = [
        (counts.lost, "lost"),
        (counts.stale, "stale"),
        (counts.torn, "torn"),
        (counts.misdirected, "misdirected"),
        (counts.third_value, "with a third value"),
        (counts.unreadable, "unreadable"),
    ];
    let found: Vec<String> = (named.iter().filter(|(count, _)| *count > 0))
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let order = match counts.reordered {
        0 => String::new(),
        count => format!("; {count} of them although later writes survived: writes were reordered"),
    };
    (!found.is_empty()).then(|| format!("blocks: {}{order}", found.join(", ")))
}

fn evidence(ruling: &Ruling) -> Vec<String> {
    let mut lines = Vec::new();
    match (ruling.unpromised_kept, ruling.unpromised_gone) {
        (0, 0) => {}
        (kept, 0) => lines.push(format!(
            "{kept} acknowledged, unflushed blocks survived as well: a volatile cache was empty, \
             survived, or never lost power"
        )),
        (kept, gone) => lines.push(format!(
            "of {} acknowledged, unflushed blocks {gone} are lost: the power cut had an effect",
            kept + gone
        )),
    }
    if ruling.torn_allowed > 0 {
        lines.push(format!(
            "{} blocks are torn between sectors of 512 bytes, which is allowed for such a device",
            ruling.torn_allowed
        ));
    }
    if ruling.blocks_of_this_run == 0 && ruling.verdict == Verdict::Broken {
        lines.push("no block of this run was found: is it the device that was written?".into());
    }
    match (ruling.cut, ruling.was_restarted) {
        (None, _) if ruling.before.is_some() => {}
        (None, _) => lines.push("no cut: the writer had ended cleanly".to_owned()),
        (Some(_), Some(false)) => lines.push(
            "the machine has not restarted since: if its power was not cut either, this look \
             proves nothing about the device"
                .to_owned(),
        ),
        _ => {}
    }
    lines
}
