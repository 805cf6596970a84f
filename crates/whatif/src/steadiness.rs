//! What the default cleaner promises on modelled arrays of disks: at 100 % dirty it is as fast as
//! the array cleans in peace, and steady.

use crate::scene::{FORTY_DISKS, Scene};
use std::time::Duration;

const TWELVE_DISKS: &str = "raid = 6\nstrip = \"64K\"\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n";

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

/// Writes that were answered in each second, at 100 % dirty.
fn online(core: &str, cache: &str, seconds: u32) -> Vec<f64> {
    Scene::run((core, cache), None, move |scene| async move {
        scene.fill().await;
        scene.keep_writing(32);
        scene.runtime.sleep(Duration::from_secs(20)).await;
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

/// A cache of this size in lines of this length is as fast as in peace; answers what it wrote in
/// each second.
fn keep_up(core: &str, size: &str, line: &str) -> Vec<f64> {
    let cache = format!("size = \"{size}\"\nline = \"{line}\"\n");
    let (offline, windows) = (offline(core, &cache), online(core, &cache, 40));
    let mean = windows.iter().sum::<f64>() / windows.len() as f64;
    println!("{cache:?}: offline {offline:.0}/s, online {mean:.0}/s, by second {windows:?}");
    assert!(mean > 0.9 * offline, "{cache:?}: {mean:.0}/s of {offline:.0}/s");
    windows
}

/// The same, and evenly.
fn hold(core: &str, size: &str, line: &str) {
    let windows = keep_up(core, size, line);
    let mean = windows.iter().sum::<f64>() / windows.len() as f64;
    let is_even = |window: &f64| (0.9 * mean..1.1 * mean).contains(window);
    assert!(windows.iter().all(is_even), "{size}, {line}: {mean:.0}/s: {windows:?}");
}

#[test]
fn full_of_dirty_data_it_is_as_fast_as_in_peace_and_even() {
    hold(FORTY_DISKS, "320M", "4K");
}

#[test]
fn before_twelve_drives_too() {
    hold(TWELVE_DISKS, "64M", "4K");
    hold(TWELVE_DISKS, "320M", "4K");
}

/// Where blocks take extents from the pool for scattered lines, that is full instead. Not as
/// evenly: where reclaim has no extents for what is dirty in a segment, all of it is cleaned first.
#[test]
fn with_longer_lines_it_is_as_fast_as_in_peace() {
    for line in ["8K", "16K", "64K"] {
        keep_up(TWELVE_DISKS, "320M", line);
    }
}
