//! Progress bars; `{left}` in a template is the time left.

use indicatif::{HumanDuration, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;

/// What would take longer has hardly begun, and its rate is not known yet.
const KNOWN_MAX: Duration = Duration::from_secs(100 * 24 * 3600);

/// # Panics
/// Where the template is not valid.
pub fn style(template: &str) -> ProgressStyle {
    let left = |state: &ProgressState, out: &mut dyn Write| {
        // A bar that cannot be written to shows nothing.
        let _ = out.write_str(&left(state.eta()));
    };
    ProgressStyle::with_template(template).expect("the template is ours").with_key("left", left)
}

/// `20s`, or `?` where it is not known.
pub fn left(estimate: Duration) -> String {
    match estimate {
        Duration::ZERO => "?".to_owned(),
        unknown if unknown > KNOWN_MAX => "?".to_owned(),
        known => format!("{:#}", HumanDuration(known)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::ProgressBar;

    #[test]
    fn time_that_is_not_known_is_not_told_as_a_number() {
        assert_eq!(left(Duration::from_secs(20)), "20s");
        for unknown in [Duration::ZERO, Duration::from_secs(u64::MAX), Duration::MAX] {
            assert_eq!(left(unknown), "?");
        }
        assert_eq!(left(ProgressBar::new(10_000).eta()), "?");
    }
}
