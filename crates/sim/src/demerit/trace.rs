//! A trace of measured service times: `R|W Hit|Miss LBN COUNT SERVICE_US INTERVAL_US`.
//!
//! One request at a time: the interval runs from the completion of this request to the issue of
//! the next. Whether it hit the drive's cache is what whoever made the trace thought.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
}

/// What a model may know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredRequest {
    pub operation: Operation,
    /// In sectors of 512 bytes.
    pub first_sector: u64,
    pub sectors: u64,
    /// From its completion to the next issue.
    pub pause: Duration,
}

/// A line: the request, and what the drive took for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub request: MeasuredRequest,
    pub service_ms: f64,
}

/// Reads a line; `None` for one without a request.
///
/// # Errors
/// What is wrong with it.
pub fn parse_line(line: &str) -> Result<Option<Measured>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [operation, _hit, first_sector, sectors, service_us, interval_us] = words[..] else {
        return match words.is_empty() {
            true => Ok(None),
            false => Err(format!("has {} words instead of 6", words.len())),
        };
    };
    let operation = match operation {
        "R" => Operation::Read,
        "W" => Operation::Write,
        _ => return Err(format!("operation {operation} is neither R nor W")),
    };
    let whole = |name: &str, word: &str| {
        word.parse::<u64>().map_err(|_| format!("{name} {word} is no whole number"))
    };
    let sectors = whole("count", sectors)?;
    if !(1..=1 << 22).contains(&sectors) {
        return Err(format!("count {sectors} is not between 1 and 4194304"));
    }
    let request = MeasuredRequest {
        operation,
        first_sector: whole("address", first_sector)?,
        sectors,
        pause: Duration::from_nanos((micros("interval", interval_us)? * 1e3) as u64),
    };
    Ok(Some(Measured { request, service_ms: micros("service time", service_us)? / 1e3 }))
}

/// At most a day, so that sums stay times.
fn micros(name: &str, word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(micros) if (0.0..=86.4e9).contains(&micros) => Ok(micros),
        _ => Err(format!("{name} {word} is no time in microseconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request_and_what_it_took() {
        let measured = parse_line("W Miss   1200  8   1500.50000  20000.25000\r").unwrap().unwrap();
        assert_eq!(measured.service_ms, 1.5005);
        assert_eq!(
            measured.request,
            MeasuredRequest {
                operation: Operation::Write,
                first_sector: 1200,
                sectors: 8,
                pause: Duration::from_nanos(20_000_250),
            }
        );
        assert_eq!(parse_line("  "), Ok(None));
    }

    #[test]
    fn a_wrong_word_is_named() {
        for (line, word) in [
            ("R Hit 1 2 3", "5 words"),
            ("X Hit 1 2 3 4", "X"),
            ("R Hit -1 2 3 4", "-1"),
            ("R Hit 1 0 3 4", "count 0"),
            ("R Hit 1 2 nan 4", "nan"),
            ("R Hit 1 2 3 1e99", "1e99"),
        ] {
            let error = parse_line(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
