//! Every format's sample is itself and nothing else.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::damage::Damage;
use crate::error::TraceError as Error;
use crate::reader::{Demand, ReadOptions, TraceReader};
use crate::record::TraceRecord;
use crate::testing::sample;

fn source(bytes: &[u8]) -> ByteSource {
    ByteSource::new("test", Box::new(Cursor::new(bytes.to_vec()))).unwrap()
}

#[test]
fn each_sample_is_its_format_and_no_other() {
    for format in TraceFormat::ALL {
        let bytes = sample(format);
        assert_eq!(detect(&mut source(&bytes)).unwrap(), format);
        let mut all: Vec<_> = by_first_bytes(&bytes).into_iter().collect();
        all.extend(by_numbers(&bytes));
        all.extend(best(&bytes));
        assert_eq!(all, [format], "alone among all ways to recognise it");
    }
}

#[test]
fn a_damaged_line_does_not_hide_the_format_of_the_others() {
    for format in LINE_FORMATS.iter().map(|known| known.format) {
        let mut bytes = sample(format);
        bytes.extend(b"%%%1\n");
        assert_eq!(detect(&mut source(&bytes)).unwrap(), format);
    }
}

#[test]
fn lines_that_mean_two_things_are_asked_about() {
    let both = b"0.000 0 4096 4096 0\n1.000 0 8192 4096 1\n".repeat(10_000);
    let error = detect(&mut source(&both)).unwrap_err();
    let TraceError::Ambiguous { candidates, .. } = &error else { panic!("{error}") };
    assert_eq!(candidates, &[TraceFormat::MsrWindow, TraceFormat::Disksim]);
    let text = error.to_string();
    assert!(text.contains("msr-window") && text.contains("--format"), "{text}");
}

#[test]
fn more_of_the_text_is_looked_at_where_its_beginning_fits_twice() {
    let mut lines = b"0.000 0 4096 4096 0\n1.000 0 8192 4096 1\n".repeat(1000);
    assert!(lines.len() > DETECTION_BYTES);
    lines.extend(b"2.000 0 8191 3 1\n");
    assert_eq!(detect(&mut source(&lines)).unwrap(), TraceFormat::Disksim);
}

#[test]
fn a_long_preamble_is_read_through() {
    let mut text = b"A word about this load.\n".repeat(2000);
    assert!(text.len() > DETECTION_BYTES);
    text.extend(sample(TraceFormat::Blkreplay));
    assert_eq!(detect(&mut source(&text)).unwrap(), TraceFormat::Blkreplay);
}

#[test]
fn foreign_bytes_are_no_format() {
    for foreign in
        [&b"hello, world\n"[..], b"1,2,3\n4,5,6\n", b"\0\0\0\0", &[0; 4096], &[0xff; 4096]]
    {
        let error = detect(&mut source(foreign)).unwrap_err();
        assert!(matches!(error, TraceError::Unrecognised { .. }), "{error}");
    }
}

fn read(
    bytes: &[u8],
    format: Option<TraceFormat>,
    damage: Damage,
) -> Result<Vec<TraceRecord>, Error> {
    let options = ReadOptions { damage, demand: Demand::References, format };
    TraceReader::from_input("test", Box::new(Cursor::new(bytes.to_vec())), options)?.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_samples_never_panic_and_lenient_reading_ends(
        index in 0..TraceFormat::ALL.len(),
        places in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        tail in proptest::collection::vec(any::<u8>(), 0..200),
        is_told in any::<bool>(),
    ) {
        let format = TraceFormat::ALL[index];
        let mut bytes = sample(format);
        for (place, value) in places {
            let place = usize::from(place) % bytes.len();
            bytes[place] = value;
        }
        bytes.extend(tail);
        let format = is_told.then_some(format);
        let strict = read(&bytes, format, Damage::Fail);
        let lenient = read(&bytes, format, Damage::Skip);
        if let Ok(strict) = strict {
            prop_assert_eq!(strict, lenient.unwrap(), "lenience changes nothing where all is sound");
        }
    }

    #[test]
    fn lines_of_numbers_never_panic(lines in "([0-9.]{1,20}[,; ]|[RW],|Hit |\n){0,60}") {
        for known in &LINE_FORMATS {
            let _ = read(lines.as_bytes(), Some(known.format), Damage::Fail);
            let lenient = read(lines.as_bytes(), Some(known.format), Damage::Skip);
            let is_read =
                matches!(lenient, Ok(_) | Err(Error::NoRequests { .. } | Error::Empty { .. }));
            prop_assert!(is_read);
        }
    }

    #[test]
    fn any_bytes_in_any_format_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 1..400), index in 0..TraceFormat::ALL.len(),
    ) {
        let _ = read(&bytes, Some(TraceFormat::ALL[index]), Damage::Fail);
        let _ = read(&bytes, Some(TraceFormat::ALL[index]), Damage::Skip);
    }
}
