//! A ruling in sentences.

use headpond_witness::field::ruling::{Ruling, Verdict};

/// What a look has come to, line by line.
pub fn of(name: &str, ruling: &Ruling) -> Vec<String> {
    let mut lines = vec![format!("{name}: {}", ruling.verdict)];
    lines.extend(ruling.before.map(|before| {
        format!(
            "nothing was written since it was looked at before, and what that look showed is all that \
             this one expects; that one came to: {before}"
        )
    }));
    lines.push(format!(
        "looked at {} of {} blocks; {} hold something the device had promised to keep; {} writes and \
         {} flushes were acknowledged",
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
            "the first: block {} of the region, {:?}: it holds {}; allowed is {}",
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
        (counts.third_value, "of a third value"),
        (counts.unreadable, "unreadable"),
    ];
    let found: Vec<String> = (named.iter().filter(|(count, _)| *count > 0))
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let order = match counts.reordered {
        0 => String::new(),
        count => format!("; {count} of them though something later survived: order was not kept"),
    };
    (!found.is_empty()).then(|| format!("blocks: {}{order}", found.join(", ")))
}

fn evidence(ruling: &Ruling) -> Vec<String> {
    let mut lines = Vec::new();
    match (ruling.unpromised_kept, ruling.unpromised_gone) {
        (0, 0) => {}
        (kept, 0) => lines.push(format!(
            "{kept} blocks were acknowledged and not promised yet, and are there as well: a \
             volatile cache was empty, survived, or was never without power"
        )),
        (kept, gone) => lines.push(format!(
            "of {} blocks that were acknowledged and not promised yet, {gone} are gone: the cut did \
             take something",
            kept + gone
        )),
    }
    if ruling.torn_allowed > 0 {
        lines.push(format!(
            "{} blocks are torn between sectors of 512 bytes, which such a device may do",
            ruling.torn_allowed
        ));
    }
    if ruling.blocks_of_this_run == 0 && ruling.verdict == Verdict::Broken {
        lines
            .push("not one block of this run was found: is it the device that was written?".into());
    }
    match (ruling.cut, ruling.was_restarted) {
        (None, _) if ruling.before.is_some() => {}
        (None, _) => lines.push("no cut: the writer had ended in order".to_owned()),
        (Some(_), Some(false)) => lines.push(
            "the machine has not started anew since: if its power was not cut either, this look \
             proves nothing about the device"
                .to_owned(),
        ),
        _ => {}
    }
    lines
}
