//! What the default cleaner promises, on the modelled array of forty disks: at 100 % dirty it is as
//! fast as the array cleans in peace, and steady.

use crate::scene::{FORTY_DISKS, Scene};
use std::time::Duration;

/// Blocks a second that the array takes when a full cache is cleaned in peace.
fn offline(cache: &str) -> f64 {
    Scene::run((FORTY_DISKS, cache), None, |scene| async move {
        scene.fill().await;
        let (dirty, begun) = (scene.dirty_blocks(), scene.runtime.now());
        scene.machine.volume.clean_all().await.unwrap();
        assert_eq!(scene.dirty_blocks(), 0);
        dirty as f64 / scene.runtime.now().since(begun).as_secs_f64()
    })
}

/// Writes that were answered in each second, at 100 % dirty.
fn online(cache: &str, seconds: u32) -> Vec<f64> {
    Scene::run((FORTY_DISKS, cache), None, move |scene| async move {
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

#[test]
fn full_of_dirty_data_it_is_as_fast_as_in_peace_and_even() {
    let cache = "size = \"320M\"\n";
    let (offline, windows) = (offline(cache), online(cache, 40));
    let mean = windows.iter().sum::<f64>() / windows.len() as f64;
    eprintln!("offline {offline:.0}/s, online {mean:.0}/s, by second {windows:?}");
    assert!(mean > 0.9 * offline, "{mean:.0}/s of {offline:.0}/s");
    let is_even = |window: &f64| (0.9 * mean..1.1 * mean).contains(window);
    assert!(windows.iter().all(is_even), "{mean:.0}/s: {windows:?}");
}
