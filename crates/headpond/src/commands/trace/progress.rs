//! How far into its files a reading is, on standard error.

use headpond_trace::TraceReader;
use indicatif::{ProgressBar, ProgressStyle};

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
