//! Progress of loading a volume: on the terminal, and in a file for `status`.
//!
//! The data thread is busy with reading and answers no requests. So it writes its progress to a
//! locked file in the run folder; a file that a killed daemon left is not locked.

use crate::progress_bar;
use headpond_api::answers::LoadingStatus;
use headpond_api::place::Places;
use headpond_volume::Loading;
use indicatif::ProgressBar;
use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TELL_EVERY: Duration = Duration::from_millis(200);
/// Shorter loads show no bar.
const BAR_AFTER: Duration = Duration::from_millis(500);
/// One write of the whole file: a reader sees one state or another.
const FILE_BYTES: usize = 512;
const TEMPLATE: &str = "loading {bar:30} {bytes} of {total_bytes}{msg} (left: {left})";

/// The progress outputs; the file is removed on drop.
pub struct ProgressFile {
    path: PathBuf,
    file: Option<File>,
    begun: Cell<(u16, Instant)>,
    told: Cell<Option<Instant>>,
    bar: ProgressBar,
}

impl ProgressFile {
    /// Without the file `status` shows no progress, and the volume loads regardless.
    pub fn new(places: &Places, name: &str) -> Self {
        let path = places.loading(name);
        let file = File::options().create(true).truncate(false).write(true).open(&path).ok();
        // Contents of a previous daemon are discarded.
        let file = file.filter(|file| file.try_lock().is_ok() && file.set_len(0).is_ok());
        // Without it, only the owner sees the progress.
        file.iter().for_each(|file| drop(places.readers().open_file(file)));
        let bar = ProgressBar::new(0);
        bar.set_style(progress_bar::style(TEMPLATE));
        Self { path, file, begun: Cell::new((0, Instant::now())), told: Cell::default(), bar }
    }

    pub fn tell(&self, loading: Loading) {
        let now = Instant::now();
        if self.begun.get().0 != loading.slice {
            self.begun.set((loading.slice, now));
            self.bar.reset();
        }
        if self.told.get().is_some_and(|told| now - told < TELL_EVERY) {
            return;
        }
        self.told.set(Some(now));
        let elapsed = now - self.begun.get().1;
        self.write(&LoadingStatus { loading, elapsed_s: elapsed.as_secs_f64() });
        if elapsed >= BAR_AFTER {
            self.show(&loading);
        }
    }

    fn write(&self, told: &LoadingStatus) {
        let Some(file) = &self.file else { return };
        let mut text = serde_json::to_vec(told).expect("plain data");
        assert!(text.len() <= FILE_BYTES, "a state outgrows its file");
        text.resize(FILE_BYTES, b' ');
        // The terminal shows the bar.
        let _ = file.write_all_at(&text, 0);
    }

    fn show(&self, loading: &Loading) {
        self.bar.set_length(loading.progress.bytes);
        self.bar.set_position(loading.progress.read_bytes);
        self.bar.set_message(parts(loading));
    }
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if self.file.is_some() {
            // The next one makes it anew.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The segment, and the slice if there are several.
pub fn parts(loading: &Loading) -> String {
    let mut text = String::new();
    if loading.progress.segments > 0 {
        let (read, all) = (loading.progress.segments_read, loading.progress.segments);
        text += &format!(", segment {read} of {all}");
    }
    if loading.slices > 1 {
        text += &format!(", slice {} of {}", loading.slice + 1, loading.slices);
    }
    text
}

/// The progress of a daemon that is loading a volume, if any.
pub fn look(places: &Places, name: &str) -> Option<LoadingStatus> {
    let mut file = File::open(places.loading(name)).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether a daemon that was loading a volume has ended and left its file.
pub fn is_left(places: &Places, name: &str) -> bool {
    let file = File::open(places.loading(name));
    file.is_ok_and(|file| !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::LoadProgress;

    fn loading(slice: u16, read_bytes: u64) -> Loading {
        let progress = LoadProgress { segments_read: 2, segments: 8, read_bytes, bytes: 400 };
        Loading { slice, slices: 2, progress }
    }

    #[test]
    fn what_is_told_can_be_looked_up_until_the_teller_ends() {
        let folder = headpond_testkit::tempdir();
        let places = Places::at(folder.path());
        assert_eq!(look(&places, "v"), None);
        let teller = ProgressFile::new(&places, "v");
        assert_eq!(look(&places, "v"), None, "nothing yet");
        assert!(!is_left(&places, "v"));
        teller.tell(loading(0, 100));
        let told = look(&places, "v").unwrap();
        assert_eq!(told.loading, loading(0, 100));
        assert_eq!(parts(&told.loading), ", segment 2 of 8, slice 1 of 2");
        std::thread::sleep(TELL_EVERY);
        teller.tell(loading(1, 7));
        assert_eq!(look(&places, "v").unwrap().loading.slice, 1);
        drop(teller);
        assert_eq!(look(&places, "v"), None);
        assert!(!is_left(&places, "v"));
    }

    #[test]
    fn what_a_killed_daemon_left_is_not_taken_for_progress() {
        let folder = headpond_testkit::tempdir();
        let places = Places::at(folder.path());
        let told = LoadingStatus { loading: loading(0, 100), elapsed_s: 1.0 };
        std::fs::write(places.loading("v"), serde_json::to_vec(&told).unwrap()).unwrap();
        assert_eq!(look(&places, "v"), None);
        assert!(is_left(&places, "v"));
    }
}
