use super::*;
use crate::hdd::{ExtentParameters, HddModel, HddParameters, ZoneParameters};

fn layout() -> Layout {
    HddModel::builtin("hdd-7k2-4t").unwrap().layout().clone()
}

/// Two zones of two cylinders and two heads; a slipped defect, and a spare at the end of each
/// zone.
fn small(serpentine: Serpentine) -> HddParameters {
    let mut parameters = HddModel::builtin("hdd-7k2-4t").unwrap().parameters().clone();
    let zone = |first_cylinder, extents| ZoneParameters {
        first_cylinder,
        cylinders: 2,
        sectors_per_track: 10,
        offset_sectors: 1.0,
        track_skew_sectors: 2.0,
        cylinder_skew_sectors: 3.0,
        extents,
    };
    let extent = |position, sectors| ExtentParameters { position, sectors, turned_sectors: 0 };
    (parameters.geometry.zones, parameters.geometry.heads) = (0, 2);
    parameters.geometry.outer_sectors_per_track = 0;
    parameters.geometry.inner_sectors_per_track = 0;
    parameters.geometry.serpentine = serpentine;
    parameters.geometry.physical_sector_bytes = 512;
    parameters.geometry.zone_table =
        vec![zone(0, vec![extent(0, 4), extent(5, 34)]), zone(3, vec![extent(0, 39)])];
    parameters.geometry.capacity_bytes = 77 * SECTOR_BYTES;
    parameters
}

fn small_layout(serpentine: Serpentine) -> Layout {
    HddModel::new(small(serpentine)).unwrap().layout().clone()
}

#[test]
fn four_terabytes_take_the_tracks_that_the_manual_states() {
    let cylinders = layout().cylinders;
    assert!((320_000..322_000).contains(&cylinders), "{cylinders} cylinders");
}

#[test]
fn neighbours_in_address_are_neighbours_in_place() {
    let layout = layout();
    for start in (0..layout.sectors - 5000).step_by(999_999_937) {
        for sector in start..start + 4000 {
            let (a, b) = (layout.place(sector), layout.place(sector + 1));
            let same_track = (a.cylinder, a.head, a.index + 1) == (b.cylinder, b.head, b.index);
            let next_track = b.index == 0 && a.index + 1 == a.sectors_per_track;
            assert!(same_track || next_track, "{a:?} then {b:?}");
        }
    }
}

#[test]
fn outer_tracks_are_longer() {
    let layout = layout();
    let lengths: Vec<u32> = (0..layout.sectors)
        .step_by(100_000_000)
        .map(|sector| layout.place(sector).sectors_per_track)
        .collect();
    assert!(lengths.is_sorted_by(|a, b| a >= b));
    assert!(lengths.iter().all(|n| n.is_multiple_of(8)));
}

#[test]
fn a_slipped_defect_is_a_gap_and_ends_a_run() {
    let layout = small_layout(Serpentine::No);
    let before = layout.place(3);
    assert_eq!((before.index, before.run), (3, 1));
    let behind = layout.place(4);
    assert_eq!((behind.index, behind.run), (5, 5));
    assert!(behind.is_on_track_of(&before));
    assert_eq!(layout.track_of(7), 0..9);
    assert_eq!(layout.track_of(9), 9..19);
    assert_eq!(layout.track_of(37), 29..38);
}

#[test]
fn the_second_zone_starts_where_the_table_says() {
    let layout = small_layout(Serpentine::No);
    let place = layout.place(38);
    assert_eq!((place.cylinder, place.head, place.index), (3, 0, 0));
    assert_eq!(layout.cylinders, 5);
}

#[test]
fn skews_count_switches_of_track_and_cylinder() {
    let layout = small_layout(Serpentine::No);
    let tenths = |sector| (layout.place(sector).angle.nanos(1_000_000) as f64 / 100_000.0).round();
    // Offset 1; second track 2 more; second cylinder: 2 and 3 more; its second track 2 more.
    assert_eq!([0, 9, 19, 29].map(tenths), [1.0, 3.0, 6.0, 8.0]);
}

#[test]
fn serpentine_layouts_go_back_through_the_heads() {
    let heads = |serpentine: Serpentine| {
        let layout = small_layout(serpentine);
        [0, 9, 19, 29, 38, 48, 58, 68].map(|sector| layout.place(sector).head)
    };
    assert_eq!(heads(Serpentine::No), [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(heads(Serpentine::ByZone), [0, 1, 1, 0, 0, 1, 1, 0]);
    // The second zone starts at cylinder 3, which is odd.
    assert_eq!(heads(Serpentine::ByCylinder), [0, 1, 1, 0, 1, 0, 0, 1]);
}

#[test]
fn a_zone_table_that_makes_no_drive_is_refused_by_name() {
    let refused = |spoil: fn(&mut GeometryParameters)| {
        let mut parameters = small(Serpentine::No);
        spoil(&mut parameters.geometry);
        HddModel::new(parameters).unwrap_err().to_string()
    };
    assert!(refused(|g| g.zone_table[1].first_cylinder = 1).contains("overlap"));
    assert!(refused(|g| g.zone_table[0].sectors_per_track = 0).contains("track of less than 1"));
    assert!(refused(|g| g.zone_table[1].extents[0].sectors = 41).contains("outside its zone"));
    assert!(refused(|g| g.capacity_bytes += 512).contains("capacity_bytes"));
    assert!(refused(|g| g.zone_table[0].track_skew_sectors = f64::NAN).contains("skew"));
}
