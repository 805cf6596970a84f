//! Devices with errors in `headpond status`.

use headpond_report::{Align, Table, count};
use headpond_volume::DeviceReport;

/// A row for each device, and its newest error below.
pub fn print_errors(errors: &[DeviceReport]) {
    if !errors.is_empty() {
        println!("  errors    until `headpond clear`:");
        lines(errors).iter().for_each(|line| println!("            {line}"));
    }
}

fn lines(errors: &[DeviceReport]) -> Vec<String> {
    let kinds = errors[0].errors.by_kind().map(|(kind, _)| kind.to_string());
    let words = [("device", Align::Left)].into_iter();
    let mut table = Table::new(words.chain(kinds.iter().map(|kind| (&**kind, Align::Right))));
    for report in errors {
        let counts = report.errors.by_kind().map(|(_, number)| count(number));
        table.row(std::iter::once(report.place()).chain(counts));
    }
    let mut lines: Vec<String> = table.render().lines().map(str::to_owned).collect();
    lines.extend(errors.iter().map(newest));
    lines
}

/// `member 1 (/dev/sdb): write: No space left on device, 2026-11-22 00:12:05 UTC`.
fn newest(report: &DeviceReport) -> String {
    let device = report.device.as_deref().unwrap_or("missing");
    let last = report.last_error.as_ref().map(|last| format!(": the last: {last}"));
    format!("{} ({device}){}", report.place(), last.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::{DeviceErrors, DeviceRole, ErrorCause, ErrorKind, LastError, UtcTime};
    use uuid::Uuid;

    #[test]
    fn each_device_has_its_counts_by_kind_and_the_newest_error() {
        let last = LastError {
            kind: ErrorKind::Write,
            cause: ErrorCause::Full,
            text: "No space left on device".into(),
            at: UtcTime::from_unix_s(1_795_307_525),
        };
        let lines = lines(&[DeviceReport {
            role: DeviceRole::Member,
            number: Some(1),
            core: None,
            uuid: Uuid::nil(),
            device: Some("/srv/m1.img".into()),
            errors: DeviceErrors { write: 19_443, flush: 2, ..DeviceErrors::default() },
            last_error: Some(last),
        }]);
        let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let [head, .., counts, newest] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(words(head), "device read write flush checksum timeout");
        assert_eq!(words(counts), "member 1 0 19,443 2 0 0");
        let text = "member 1 (/srv/m1.img): the last: write: No space left on device, \
                    2026-11-22 00:32:05 UTC";
        assert_eq!(newest, text);
    }
}
