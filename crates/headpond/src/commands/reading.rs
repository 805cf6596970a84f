//! Reading a trace through while standard error shows how far that is.

use crate::outcome::Failure;
use anyhow::Result;
use headpond_trace::{Tally, TraceReader, TraceRecord};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};

/// How often the bar moves.
const RECORDS_BETWEEN_REPORTS: u64 = 16 * 1024;

/// Gives every record of a trace to `each`.
///
/// # Errors
/// Where the trace cannot be read, and what is wrong with it where.
pub fn read_through(reader: &mut TraceReader, mut each: impl FnMut(&TraceRecord)) -> Result<()> {
    let bar = bar("reading");
    let mut records = 0u64;
    while let Some(record) = reader.next_record()? {
        each(&record);
        records += 1;
        if records.is_multiple_of(RECORDS_BETWEEN_REPORTS) {
            show(&bar, reader);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Refuses to write over what is read.
///
/// # Errors
/// The file that is both.
pub fn spare_inputs<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    outputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<()> {
    let place = |path: &Path| std::fs::canonicalize(path).ok();
    let inputs: Vec<PathBuf> = inputs.into_iter().filter_map(place).collect();
    for output in outputs {
        if place(output).is_some_and(|place| inputs.contains(&place)) {
            return Err(Failure::usage(format!(
                "{} is what is read, and would be lost: write to another file",
                output.display()
            )));
        }
    }
    Ok(())
}

/// Says what was skipped and what is no request, where something was.
pub fn warn_of_damage(tally: Tally) {
    if tally.damaged > 0 {
        eprintln!("headpond: note: {} damaged records were skipped", tally.damaged);
    }
    if tally.other_commands > 0 {
        eprintln!(
            "headpond: note: {} commands ask for no data (of zones, of the drive, or of no length) and were left out",
            tally.other_commands
        );
    }
}

/// A bar that does not know yet how long it is.
pub fn bar(verb: &'static str) -> ProgressBar {
    let bar = ProgressBar::no_length();
    bar.set_message(verb);
    bar
}

/// Moves the bar; of a pipe only what was read is known.
pub fn show(bar: &ProgressBar, reader: &TraceReader) {
    let progress = reader.progress();
    let known = progress.total_bytes.filter(|&bytes| bytes > 0);
    if bar.length().is_none() {
        let template = match known {
            Some(_) => "{msg} {wide_bar} {bytes} of {total_bytes} (left: {eta})",
            None => "{msg} {spinner} {elapsed}",
        };
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.expect("the template is ours"));
        if let Some(bytes) = known {
            bar.set_length(bytes);
        }
    }
    bar.set_position(progress.read_bytes);
}
