//! Files of I/O classes in both forms: what is read survives being written, and gives each request
//! the same class.

#![no_main]

use headpond_cache::classes::{CSV_HEADER, Classes, Facts, Unknown};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let body = format!("{CSV_HEADER}\n0,unclassified,22,1\n{text}");
    for read in [Classes::parse(text), Classes::from_csv(&body, Unknown::NeverHolds).map(|it| it.0)]
    {
        let Ok(classes) = read else { continue };
        let own = Classes::from_toml(&classes.to_toml()).expect("our own file is read again");
        assert_eq!(own, classes);
        let size_bytes = data.len() as u64;
        for (lba, is_write) in [(0, false), (size_bytes, true), (u64::MAX, false)] {
            let facts = Facts { size_bytes, lba, is_write, is_metadata: is_write, core_id: 1 };
            assert_eq!(own.classify(&facts), classes.classify(&facts));
        }
    }
});
