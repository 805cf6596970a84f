//! Whole imports of drives that we made up.

use super::*;
use crate::hdd::{HddParameters, ReadAheadReach, Serpentine};
use proptest::prelude::*;
use std::io;

const DRIVE: &str = include_str!("fixtures/small.diskspecs");
const MEDIUM: &str = include_str!("fixtures/small.model");
const SYSTEM: &str = include_str!("fixtures/small.parv");
const CURVE: &str = include_str!("fixtures/small.seek");

/// The made-up files, with something replaced in all of them.
fn import_with(file: &str, from: &str, to: &str) -> Result<Imported, ImportError> {
    let files = [
        ("small.diskspecs", DRIVE),
        ("small.model", MEDIUM),
        ("small.parv", SYSTEM),
        ("small.seek", CURVE),
    ];
    assert!(files.iter().any(|(_, text)| text.contains(from)), "{from} is in a file");
    let mut read = |name: &str| match files.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok(text.replace(from, to)),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    import(Import { file, disk: None }, &mut read)
}

fn imported(from: &str, to: &str) -> (HddParameters, Vec<Note>) {
    let imported = import_with("small.parv", from, to).unwrap();
    (imported.model.parameters().clone(), imported.notes)
}

fn refused(from: &str, to: &str) -> String {
    import_with("small.parv", from, to).unwrap_err().to_string()
}

#[test]
fn a_drive_comes_out_as_its_files_say() {
    let (drive, notes) = imported("", "");
    assert_eq!(drive.name, "SMALL");
    assert_eq!((drive.geometry.rpm, drive.geometry.heads), (6000, 2));
    assert_eq!(drive.geometry.serpentine, Serpentine::ByCylinder);
    // 100 cylinders of 2 x 50, and 80 of 2 x 40, less reserved space and one slip each.
    assert_eq!(drive.geometry.capacity_bytes, (10_000 - 20 - 1 + 6400 - 1) * 512);
    assert_eq!(drive.geometry.zone_table[1].first_cylinder, 102);
    assert_eq!(drive.geometry.zone_table[0].track_skew_sectors, 8.0);
    assert_eq!(drive.seek.curve, [(1, 1.0), (10, 2.0), (60, 4.5), (181, 8.0)]);
    assert_eq!(drive.seek.write_settle_ms, 0.3);
    assert_eq!(drive.geometry.head_switch_ms, 1.05);
    let overheads = drive.interface.overheads.unwrap();
    assert!((overheads.read_miss.after_write_ms - 0.6).abs() < 1e-9);
    assert!((overheads.write_hit.after_read_ms - 0.25).abs() < 1e-9);
    assert_eq!(drive.read_buffer.segments, 3, "one of four is for writes");
    assert_eq!(drive.read_buffer.reach, ReadAheadReach::Track);
    assert_eq!(drive.read_buffer.read_ahead_kib, 16.0);
    assert!(drive.write_cache.enabled);
    assert_eq!(drive.write_cache.capacity_kib, 32);
    // The bus is slower than the drive's own electronics.
    assert!((drive.interface.mb_per_s - 512.0 / 1000.0 / 0.2).abs() < 1e-9);
    let texts: Vec<String> = notes.iter().map(Note::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("small.seek:4: 0.5 ms over 5 cylinders"), "{texts:?}");
    assert!(texts[1].contains("small.diskspecs:13: Colour of the case is not known"), "{texts:?}");
}

#[test]
fn the_bus_belongs_to_the_system_and_not_to_the_drive() {
    let alone = import_with("small.diskspecs", "", "").unwrap();
    let rate = alone.model.parameters().interface.mb_per_s;
    assert!((rate - 512.0 / 1000.0 / 0.1).abs() < 1e-9, "{rate}");
    let own = "Bulk sector transfer time = 0.1";
    let none = import_with("small.diskspecs", own, "Bulk sector transfer time = 0").unwrap();
    assert!(none.notes.iter().any(|note| note.text.contains("no transfer time")));
}

#[test]
fn without_its_curve_a_drive_is_drawn_through_what_comments_say() {
    let (drive, notes) = imported("small.seek", "lost.seek");
    let curve = &drive.seek.curve;
    assert_eq!(curve[..2], [(1, 1.1), (2, 1.4)]);
    let (last, ms) = *curve.last().unwrap();
    assert_eq!(last, 182);
    assert!((ms - 8.2).abs() < 1e-9);
    assert!(notes.iter().any(|note| note.text.contains("lost.seek is missing")), "{notes:?}");
}

#[test]
fn where_nothing_tells_of_seeks_they_are_assumed_loudly() {
    let mut read = |name: &str| match name {
        "small.model" => Ok(MEDIUM
            .replace("small.seek", "lost.seek")
            .replace("Full strobe seek time = 8.2", "Full strobe seek time = 0.8")),
        "small.diskspecs" => Ok(DRIVE.to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let file = "small.diskspecs";
    let imported = import(Import { file, disk: None }, &mut read).unwrap();
    assert!(imported.notes.iter().any(|note| note.text.contains("ASSUMED")));
    assert!((imported.model.seek_ms(182) - 18.0).abs() < 1e-6);
}

#[test]
fn every_kind_of_seek_curve_is_understood() {
    let extracted = "Seek type = extracted";
    let at = |kind: &str, cylinders| {
        import_with("small.parv", extracted, kind).unwrap().model.seek_ms(cylinders)
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 0.02, "{a} instead of {b}");
    near(at("Constant seek time = 7, Seek type = constant", 90), 7.0);
    let linear = "Average seek time = 4, Seek type = linear";
    near(at(linear, 1), 1.2);
    near(at(linear, 60), 4.0);
    near(at(linear, 182), 8.2);
    let lee = "Average seek time = 4, Seek type = curve";
    near(at(lee, 1), 1.2);
    near(at(lee, 182), 8.17);
    let equation = "HPL seek equation values = [50, 1.0, 0.5, 3.5, 0.02, 0.8]";
    let hpl = &format!("{equation}, Seek type = hpl");
    near(at(hpl, 1), 0.8);
    near(at(hpl, 49), 1.0 + 0.5 * 7.0);
    near(at(hpl, 100), 3.5 + 0.02 * 100.0);
    let first = "First ten seek times = [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9]";
    let both = &format!("{equation}, {first}, Seek type = hplplus10");
    near(at(both, 7), 1.6);
    near(at(both, 49), 4.5);
}

#[test]
fn a_head_switch_takes_what_settling_takes_and_the_skew_leaves() {
    let switch_ms = |to: &str| imported("Head switch time = 1.05", to).0.geometry.head_switch_ms;
    assert_eq!(switch_ms("Head switch time = 1.5"), 1.5);
    // A skew of 8 sectors of 50, or 5 of 40, at 10 ms a turn leaves 1.25 ms at least.
    assert_eq!(switch_ms("Head switch time = 0.1"), 1.0);
    let tight = |to: &str| imported("track switch = 5", to).0.geometry.head_switch_ms;
    assert_eq!(tight("track switch = 1"), 1.05, "the file's own figure is never shortened");
}

#[test]
fn what_cannot_be_understood_is_named_by_file_line_and_field() {
    for (from, to, said) in [
        ("Segment size (in blks) = 64", "Segment size (in blks) = big", "small.diskspecs:22"),
        ("Segment size (in blks) = 64", "Segment size (in blks) = -1", "Segment size (in blks)"),
        ("   Segment size (in blks) = 64,\n", "", "Segment size (in blks): is missing"),
        ("Fast write level = 2", "Fast write level = 3", "between 0 and 2"),
        ("Layout Model = dm_layout_g1 {", "Layout Model = dm_layout_g4 {", "small.model:5"),
        ("Layout Model = dm_layout_g1 {", "Layout Model = dm_layout_g2 {", "dm_layout_g2 is not"),
        ("source small.model,", "source lost.model,", "small.diskspecs:2: cannot read lost.model"),
        ("source small.model,", "source small.diskspecs,", "sources itself"),
        ("Seek type = extracted", "Seek type = guessed", "guessed is not known"),
        ("trackSwitchPlusRotation", "averageRotation", "averageRotation is not modelled"),
        ("Last cylinder number = 99,", "Last cylinder number = 102,", "before the end of the one"),
        ("slips = [ 7 ]", "slips = [ 70000 ]", "names a place outside the zone"),
        (
            "Empty space at zone front = 20",
            "Empty space at zone front = 20000",
            "more than the zone",
        ),
        ("10, 2.0", "1, 2.0", "small.seek:5"),
        ("Head switch time = 1.05", "Head switch time", "Head switch time: has no ="),
        ("disksim_disk SMALL", "disksim_desk SMALL", "describes no drive"),
        ("0.0\n} # end of SMALL", "", "small.diskspecs:35: the file ends inside"),
    ] {
        let error = refused(from, to);
        assert!(error.contains(said), "{to}: {error}");
    }
}

#[test]
fn of_several_drives_one_has_to_be_named() {
    let twice = |name: &str| match name {
        "two.diskspecs" => Ok(format!("{DRIVE}\n{}", DRIVE.replace("SMALL", "OTHER"))),
        "small.model" => Ok(MEDIUM.to_owned()),
        "small.seek" => Ok(CURVE.to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let mut read = twice;
    let file = "two.diskspecs";
    let error = import(Import { file, disk: None }, &mut read).unwrap_err().to_string();
    assert!(error.contains("SMALL, OTHER"), "{error}");
    let imported = import(Import { file, disk: Some("OTHER") }, &mut read).unwrap();
    assert_eq!(imported.model.parameters().name, "OTHER");
}

#[test]
fn lists_nested_too_deep_are_refused() {
    let deep = "[".repeat(100_000);
    let mut read = |_: &str| Ok(format!("disksim_disk D {{ a = {deep}"));
    let error = import(Import { file: "deep", disk: None }, &mut read).unwrap_err();
    assert!(error.to_string().contains("nested too deep"), "{error}");
}

proptest! {
    #[test]
    fn whatever_is_in_the_files_the_import_ends(
        cut in 0usize..4000,
        put in "[=,{}\\[\\]# 0-9.a-z\n-]{0,12}",
        whole in "[=,{}\\[\\]#\" 0-9a-z\n]{0,200}",
    ) {
        for file in ["small.model", "small.diskspecs", "small.seek", "small.parv"] {
            let mut read = |name: &str| {
                let text = match name {
                    "small.model" => MEDIUM,
                    "small.diskspecs" => DRIVE,
                    "small.seek" => CURVE,
                    _ => SYSTEM,
                };
                let mut text = text.to_owned();
                if name == file {
                    let at = (cut % text.len()..).find(|at| text.is_char_boundary(*at)).unwrap();
                    text.insert_str(at, &put);
                }
                Ok(text)
            };
            drop(import(Import { file: "small.parv", disk: None }, &mut read));
        }
        let mut read = |_: &str| Ok(whole.clone());
        drop(import(Import { file: "any", disk: None }, &mut read));
    }
}
