//! What the default cleaner promises on modelled arrays of disks: at 100 % dirty it is as fast as
//! the array cleans in peace, and steady.

use crate::scene::{FORTY_DISKS, Scene};
use std::time::Duration;

const TWELVE_DISKS: &str = "raid = 6\nstrip = \"64K\"\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n";

const FOUR_SSDS: &str = "raid = 5\nstrip = \"64K\"\ndrive = \"ssd-dc-960g\"\ndrives = 4\n";

/// Blocks a second that the array takes when a full cache is cleaned in peace.
fn offline(core: &str, cache: &str) -> f64 {
    Scene::run((core, cache), None, |scene| async move {
        scene.fill().await;
        let (dirty, begun) = (scene.dirty_blocks(), scene.runtime.now());
        scene.machine.volume.clean_all().await.unwrap();
        assert_eq!(scene.dirty_blocks(), 0);
        dirty as f64 / scene.runtime.now().since(begun).as_secs_f64()
    })
}

/// Writes that were answered in each second, at 100 % dirty, half as many seconds after it began.
fn online(core: &str, cache: &str, seconds: u32) -> Vec<f64> {
    Scene::run((core, cache), None, move |scene| async move {
        scene.fill().await;
        scene.keep_writing(32);
        scene.runtime.sleep(Duration::from_secs(u64::from(seconds / 2))).await;
        let mut windows = Vec::new();
        for _ in 0..seconds {
            let before = scene.written.get();
            scene.runtime.sleep(Duration::from_secs(1)).await;
            windows.push((scene.written.get() - before) as f64);
        }
        scene.is_over.set(true);
        windows
    })
}

/// A cache of this size in lines of this length is as fast as in peace, and evenly: no second
/// differs from the mean by more than this share of it.
fn hold(core: &str, size: &str, line: &str, share: f64) {
    hold_for(core, size, line, (share, 40));
}

/// The same for so many seconds.
fn hold_for(core: &str, size: &str, line: &str, (share, seconds): (f64, u32)) {
    let cache = format!("size = \"{size}\"\nline = \"{line}\"\n");
    let (offline, windows) = (offline(core, &cache), online(core, &cache, seconds));
    let mean = mean(&windows);
    println!("{cache:?}: offline {offline:.0}/s, online {mean:.0}/s, by second {windows:?}");
    assert!(mean > 0.9 * offline, "{cache:?}: {mean:.0}/s of {offline:.0}/s");
    let is_even = |window: &f64| (window - mean).abs() < share * mean;
    assert!(windows.iter().all(is_even), "{cache:?}: {mean:.0}/s: {windows:?}");
}

fn mean(windows: &[f64]) -> f64 {
    windows.iter().sum::<f64>() / windows.len() as f64
}

#[test]
fn full_of_dirty_data_it_is_as_fast_as_in_peace_and_even() {
    hold(FORTY_DISKS, "320M", "4K", 0.1);
}

/// What they clean by themselves is little: most is cleaned for the writes that wait.
#[test]
fn policies_of_rounds_make_room_in_the_pool_as_they_do_in_the_log() {
    for policy in ["alru", "acp"] {
        let [short, two, long] = ["4K", "8K", "64K"].map(|line| {
            let cache = format!("size = \"320M\"\nline = \"{line}\"\ncleaning = \"{policy}\"\n");
            mean(&online(TWELVE_DISKS, &cache, 40))
        });
        println!("{policy}: {short:.0}/s with lines of 4K, {two:.0}/s of 8K, {long:.0}/s of 64K");
        assert!(
            two.min(long) > 0.5 * short,
            "{policy}: {two:.0}/s and {long:.0}/s of {short:.0}/s"
        );
    }
}

/// Writes of 1 MiB one after the other that a cache in memory takes much faster than the array: how
/// many were answered in each tenth of a second, once as many are dirty as may be.
fn streamed() -> Vec<f64> {
    let core = FORTY_DISKS.replace("64K", "128K");
    let cache = "size = \"8G\"\nseq_cutoff = \"never\"\n";
    Scene::run((&core, cache), None, |scene| async move {
        scene.keep_streaming(1 << 20);
        scene.runtime.sleep(Duration::from_secs(3)).await;
        let mut windows = Vec::new();
        for _ in 0..20 {
            let before = scene.written.get();
            scene.runtime.sleep(Duration::from_millis(100)).await;
            windows.push((scene.written.get() - before) as f64);
        }
        scene.is_over.set(true);
        windows
    })
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    /// The cache drive is the limit: what it is written faster than the array is what reclaim
    /// copies.
    #[test]
    fn before_nvme_drives_as_evenly_as_the_cache_drive_is_written() {
        let core = FOUR_SSDS.replace("raid = 5", "raid = 10").replace("ssd-dc-960g", "nvme-dc-2t");
        let windows = online(&core, "size = \"512M\"\nmodel = \"nvme-dc-2t\"\n", 6);
        let mean = mean(&windows);
        println!("{mean:.0}/s, by second {windows:?}");
        assert!(mean > 80_000.0, "{mean:.0}/s: {windows:?}");
        assert!(windows.iter().all(|it| (it - mean).abs() < 0.1 * mean), "{mean:.0}: {windows:?}");
    }

    /// There the oldest are cleaned first: of what was cleaned in the order of the addresses
    /// reclaim copied six blocks for each that was written, and not two.
    #[test]
    fn before_drives_of_flash_too() {
        hold_for(FOUR_SSDS, "320M", "4K", (0.1, 6));
    }

    /// Where blocks take extents from the pool for scattered lines, the pool can be full as well.
    #[test]
    fn with_longer_lines_too() {
        for line in ["8K", "16K", "64K", "256K"] {
            hold(TWELVE_DISKS, "320M", line, 0.1);
        }
    }

    /// Drives with a write cache answer at once until it is full: whoever gives them all they take
    /// waits for all of it at the next flush. Streams then went at 0 to 9,100 a second.
    #[test]
    fn streams_go_on_evenly_as_fast_as_the_array() {
        let windows = streamed();
        let mean = mean(&windows);
        println!("{:.0}/s, by tenth of a second {windows:?}", mean * 10.0);
        assert!(mean > 400.0, "of 5,400 that the drives write: {windows:?}");
        assert!(windows.iter().all(|it| (it - mean).abs() < 0.5 * mean), "{mean:.0}: {windows:?}");
    }

    /// The log is used up before the array has flushed what was written there.
    #[test]
    fn with_longer_lines_in_small_caches_too() {
        for line in ["8K", "64K"] {
            hold(TWELVE_DISKS, "64M", line, 0.1);
            hold(TWELVE_DISKS, "128M", line, 0.1);
        }
    }

    #[test]
    fn before_twelve_drives_too() {
        hold(TWELVE_DISKS, "64M", "4K", 0.1);
        hold(TWELVE_DISKS, "320M", "4K", 0.1);
    }
}
