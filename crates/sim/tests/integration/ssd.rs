//! What a modelled solid state drive does, whatever its figures.

use crate::common;
use crate::common::{Load, parameters, rate, ssd, ssd_rate};
use headpond_block::{Buffer, Instant, Request, RequestFlags, Stability};
use headpond_sim::run;
use headpond_sim::ssd::{SsdParameters, State};
use std::time::Duration;

const DRIVES: [&str; 7] = [
    "ssd-dc-s3500-80g",
    "ssd-x25m-g2-160g",
    "ssd-dc-960g",
    "ssd-consumer-250g",
    "nvme-dc-2t",
    "nvme-consumer-1t",
    "nvme-optane-375g",
];

/// A drive of the same kind, so many times smaller: its steady state is sooner reached.
fn small(name: &str, times: u32) -> SsdParameters {
    let mut parameters = parameters(name);
    let flash = &mut parameters.flash;
    flash.capacity_bytes = flash.capacity_bytes / u64::from(times) / 4096 * 4096;
    flash.physical_bytes /= u64::from(times);
    flash.superblock_mib = (flash.superblock_mib / times).max(1);
    flash.erase_ms /= f64::from(times);
    parameters
}

#[test]
fn the_sheets_own_figures_come_out_of_the_parts() {
    // Random reads at depth, sequential writes in MB/s, random reads one at a time in us.
    let sheet: [(&str, f64, f64, f64); 6] = [
        ("ssd-dc-s3500-80g", 70_000.0, 100.0, 0.0),
        ("ssd-dc-960g", 72_000.0, 490.0, 110.0),
        ("ssd-consumer-250g", 98_000.0, 300.0, 100.0),
        ("nvme-dc-2t", 637_000.0, 2000.0, 77.0),
        ("nvme-consumer-1t", 500_000.0, 1200.0, 66.7),
        ("nvme-optane-375g", 550_000.0, 2000.0, 10.0),
    ];
    for (name, reads, write_mb_per_s, read_us) in sheet {
        let mut parameters = parameters(name);
        parameters.slc = None;
        let near = |found: f64, said: f64| {
            assert!((found / said - 1.0).abs() < 0.15, "{name}: {found} {said}")
        };
        let depth = parameters.interface.queue_depth.min(256);
        near(ssd_rate(&parameters, State::Full, Load::random_read(depth, 100_000)), reads);
        let written = ssd_rate(&parameters, State::Fresh, Load::sequential_write(3000));
        near(written * 1.048576, write_mb_per_s);
        if read_us > 0.0 {
            near(1e6 / ssd_rate(&parameters, State::Full, Load::random_read(1, 2000)), read_us);
        }
    }
}

/// The sheets' sustained random writes are no input: they follow from spare space and sequential
/// rate. How far off the models are says how much of a real drive is more than that.
#[test]
fn collection_alone_comes_near_the_sheets_sustained_random_writes() {
    for (name, sheet) in [
        ("ssd-dc-s3500-80g", 7000.0),
        ("ssd-x25m-g2-160g", 8600.0),
        ("ssd-dc-960g", 33_000.0),
        ("nvme-dc-2t", 81_500.0),
    ] {
        let found = ssd_rate(&parameters(name), State::Steady, Load::random_write(32, 200_000));
        eprintln!("{name}: {found:.0} of {sheet}: {:.2}", found / sheet);
        assert!((0.6..1.6).contains(&(found / sheet)), "{name}: {found} against {sheet}");
    }
}

#[test]
fn a_write_of_part_of_a_unit_takes_all_of_it_and_small_ones_in_a_row_share_it() {
    let parameters = parameters("ssd-dc-960g");
    let scattered = Load::random_write(32, 100_000);
    let rate = |load| ssd_rate(&parameters, State::Steady, load);
    let (whole, part) = (rate(scattered), rate(Load { bytes: 512, ..scattered }));
    assert!((0.9..1.1).contains(&(part / whole)), "{part} of 512 bytes, {whole} of 4 KiB");
    let in_a_row = rate(Load { bytes: 512, random: false, ..scattered });
    assert!(in_a_row > 2.0 * part, "{in_a_row} in a row, {part} scattered");
}

#[test]
fn more_dies_are_never_slower() {
    for name in DRIVES {
        let loads = [
            Load::random_read(1, 2000),
            Load::random_read(32, 20_000),
            Load::random_write(32, 20_000),
            Load::sequential_write(500),
        ];
        for load in loads {
            let mut before = 0.0;
            for dies in [1, 2, 4, 8] {
                let mut parameters = parameters(name);
                parameters.flash.dies_per_channel = dies;
                let found = ssd_rate(&parameters, State::Full, load);
                assert!(found >= before * 0.99, "{name} with {dies}: {found} after {before}");
                before = found;
            }
        }
    }
}

#[test]
fn a_flush_waits_for_the_flash_only_where_the_buffer_is_lost_with_the_power() {
    let flush = |name: &str, protected: bool| {
        let mut parameters = parameters(name);
        parameters.write_cache.protected = protected;
        run(1, |runtime, _| async move {
            let device = ssd(&parameters, State::Full, &runtime);
            device.write(1 << 20, Buffer::payload_free(65_536)).await.unwrap();
            let begun = runtime.now();
            device.flush().await.unwrap();
            (device.geometry().stability, runtime.now().since(begun))
        })
        .unwrap()
    };
    for name in ["ssd-consumer-250g", "nvme-consumer-1t", "ssd-dc-960g"] {
        let parameters = parameters(name);
        let program_us = parameters.slc.map_or(parameters.flash.program_us, |slc| slc.program_us);
        let (stability, took) = flush(name, false);
        assert_eq!(stability, Stability::Flushable);
        assert!(took >= Duration::from_secs_f64(program_us / 1e6), "{name}: {took:?}");
        let (stability, took) = flush(name, true);
        assert_eq!(stability, Stability::StableOnCompletion);
        assert!(took < Duration::from_micros(100), "{name}: {took:?}");
    }
    assert!(flush("ssd-x25m-g2-160g", false).1 < Duration::from_micros(200), "it ignores them");
}

#[test]
fn more_in_the_buffer_makes_a_flush_longer() {
    let took = |bytes: usize| {
        run(1, |runtime, _| async move {
            let mut parameters = parameters("ssd-consumer-250g");
            parameters.slc = None;
            let device = ssd(&parameters, State::Full, &runtime);
            device.write(0, Buffer::payload_free(bytes)).await.unwrap();
            let begun = runtime.now();
            device.flush().await.unwrap();
            runtime.now().since(begun)
        })
        .unwrap()
    };
    assert!(took(8 << 20) > 3 * took(4096), "{:?} {:?}", took(8 << 20), took(4096));
}

#[test]
fn forced_writes_cost_the_flash_and_a_protected_drive_nothing() {
    let took = |name: &str| {
        let parameters = parameters(name);
        run(1, |runtime, _| async move {
            let device = ssd(&parameters, State::Full, &runtime);
            let buffer = Buffer::payload_free(4096);
            device.submit(Request::write(0, &buffer).with_flags(RequestFlags::FUA)).await.unwrap();
            runtime.now().since(Instant::START)
        })
        .unwrap()
    };
    assert!(took("nvme-consumer-1t") > Duration::from_micros(378));
    assert!(took("nvme-dc-2t") < Duration::from_micros(50));
}

#[test]
fn a_full_slc_cache_falls_to_the_rate_of_the_flash_and_recovers_in_peace() {
    let parameters = parameters("ssd-consumer-250g");
    let (burst, sustained, rested) = run(1, |runtime, _| async move {
        let device = ssd(&parameters, State::Full, &runtime);
        // 3 GiB are always there, more on an emptier drive.
        let load = Load { ramp: 100, ..Load::sequential_write(2000) };
        let burst = rate(&device, &runtime, load).await;
        let load = Load { ramp: 2000, ..Load::sequential_write(2000) };
        let sustained = rate(&device, &runtime, load).await;
        runtime.sleep(Duration::from_secs(60)).await;
        let load = Load { ramp: 100, ..Load::sequential_write(1000) };
        (burst, sustained, rate(&device, &runtime, load).await)
    })
    .unwrap();
    assert!((0.9 * 496.0..1.1 * 496.0).contains(&burst), "{burst}");
    assert!((0.9 * 286.0..1.1 * 286.0).contains(&sustained), "{sustained}");
    assert!(rested > 1.5 * sustained, "{rested} after {sustained}");
    let empty = Load { ramp: 6000, ..Load::sequential_write(2000) };
    let parameters = common::parameters("ssd-consumer-250g");
    assert!(ssd_rate(&parameters, State::Fresh, empty) > 450.0, "12 GiB on an empty drive");
}

#[test]
fn a_drive_without_a_cache_finishes_one_write_before_the_next() {
    let mut parameters = parameters("ssd-x25m-g2-160g");
    parameters.write_cache.enabled = false;
    let alone = ssd_rate(&parameters, State::Full, Load::random_write(1, 2000));
    let many = ssd_rate(&parameters, State::Full, Load::random_write(16, 2000));
    assert!(many < 1.1 * 1e6 / parameters.flash.program_us, "{many}");
    assert!(many >= 0.95 * alone, "{many} {alone}");
}

#[test]
fn discarded_space_helps_the_collector() {
    let parameters = small("ssd-dc-960g", 64);
    let rates = run(1, |runtime, _| async move {
        let device = ssd(&parameters, State::Steady, &runtime);
        let load = Load::random_write(32, 50_000);
        let before = rate(&device, &runtime, load).await;
        let half = headpond_block::ByteRange::at(0, device.size_bytes() / 2 / 4096 * 4096);
        device.submit(Request::discard(half)).await.unwrap();
        (before, rate(&device, &runtime, load).await)
    })
    .unwrap();
    assert!(rates.1 > 1.5 * rates.0, "{rates:?}");
}

#[test]
fn one_seed_gives_the_same_times() {
    let rate =
        || ssd_rate(&small("nvme-consumer-1t", 64), State::Steady, Load::random_write(8, 20_000));
    assert_eq!(rate(), rate());
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn garbage_collection_slows_random_writes_and_not_sequential_ones() {
        for (name, times) in
            [("ssd-dc-s3500-80g", 16), ("nvme-dc-2t", 256), ("ssd-x25m-g2-160g", 32)]
        {
            let parameters = small(name, times);
            let units = parameters.flash.capacity_bytes / 4096;
            let random = Load::random_write(32, 100_000);
            let fresh = ssd_rate(&parameters, State::Fresh, random);
            let steady = ssd_rate(&parameters, State::Steady, random);
            assert!(steady < 0.6 * fresh, "{name}: {steady} of {fresh}");
            // It gets there by itself.
            let worn = Load { ramp: 3 * units, ..random };
            let worn = ssd_rate(&parameters, State::Fresh, worn);
            assert!((worn / steady - 1.0).abs() < 0.2, "{name}: {worn} against {steady}");
            let sequential = Load::sequential_write(2000);
            let first = ssd_rate(&parameters, State::Fresh, sequential);
            let passes = Load { ramp: 2 * units / 256, ..sequential };
            let later = ssd_rate(&parameters, State::Full, passes);
            assert!(later > 0.9 * first, "{name}: {later} of {first}");
        }
    }
}
