//! Reading input files: traces, with progress on standard error, and machine descriptions; and not
//! overwriting them.

use super::class::read_named_file;
use anyhow::{Context, Result};
use headpond_api::outcome::Failure;
use headpond_daemon::progress_bar;
use headpond_trace::{Tally, TraceReader, TraceRecord};
use headpond_whatif::Stack;
use indicatif::ProgressBar;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Update interval of the progress bar.
const RECORDS_BETWEEN_REPORTS: u64 = 16 * 1024;

/// Gives every record of a trace to `each`.
///
/// # Errors
/// If the trace cannot be read, with the place of the error.
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

/// Reads the description of a machine, and the file of classes that it names.
///
/// # Errors
/// Where one of them cannot be read, or is none; the text names it.
pub fn read_stack(path: &Path) -> Result<Stack> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut stack = Stack::parse(&text).with_context(|| path.display().to_string())?;
    if let Some(cache) = &mut stack.cache {
        read_named_file(&mut cache.settings.classes)?;
    }
    Ok(stack)
}

/// Refuses to overwrite an input file, by any of its names.
///
/// # Errors
/// The file that is both.
pub fn spare_inputs<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    outputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<()> {
    let inputs = inputs.into_iter().map(|input| match input == Path::new("-") {
        true => Path::new("/dev/stdin"),
        false => input,
    });
    let inputs: Vec<_> = inputs.filter_map(file).collect();
    for output in outputs {
        if file(output).is_some_and(|it| inputs.contains(&it)) {
            return Err(Failure::usage(format!(
                "{} is also the input, and would be overwritten: write to another file",
                output.display()
            )));
        }
    }
    Ok(())
}

/// Device and inode of a file that keeps what is written to it.
fn file(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((found.dev(), found.ino()))
}

/// Reports skipped records and records that are not requests.
pub fn warn_of_damage(tally: Tally) {
    if tally.damaged > 0 {
        eprintln!("headpond: note: {} damaged records were skipped", tally.damaged);
    }
    if tally.other_commands > 0 {
        eprintln!(
            "headpond: note: {} commands without data (zone or drive management, or of length \
             zero) were left out",
            tally.other_commands
        );
    }
}

/// A progress bar of unknown length.
pub fn bar(verb: &'static str) -> ProgressBar {
    let bar = ProgressBar::no_length();
    bar.set_message(verb);
    bar
}

/// Advances the bar; a pipe has no known length.
pub fn show(bar: &ProgressBar, reader: &TraceReader) {
    let progress = reader.progress();
    let known = progress.total_bytes.filter(|&bytes| bytes > 0);
    if bar.length().is_none() {
        let template = match known {
            Some(_) => "{msg} {wide_bar} {bytes} of {total_bytes} (left: {left})",
            None => "{msg} {spinner} {elapsed}",
        };
        bar.set_style(progress_bar::style(template));
        if let Some(bytes) = known {
            bar.set_length(bytes);
        }
    }
    bar.set_position(progress.read_bytes);
}
