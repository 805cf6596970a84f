//! The log: lines of `tracing` on the standard error.
//!
//! 1. A line is made where it is logged, and queued.
//! 2. A thread of its own writes: to a terminal, a file or a pipe with time and level, to systemd's
//!    journal with the priority in front.
//!
//! **Invariants**
//! - No thread waits for the reader of the log: when the queue is full, lines are dropped and
//!   counted, and the count is logged.
//! - A line of the log is a line, whatever a device is called.
//! - Nothing is logged for each request: events are rate-limited by device (`events`).

mod line;

use crate::wall_clock::rfc3339;
use anyhow::{Context, Result, bail};
use headpond_api::config::{LogFormat, LogLevel};
use line::{Fields, Style};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Lines that may wait for their reader.
const LINES_MAX: usize = 1024;
const POLL: Duration = Duration::from_millis(1);

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

static QUEUE: Queue = Queue::new();
static VOLUME: OnceLock<String> = OnceLock::new();

/// Begins the log of a daemon.
///
/// # Errors
/// If no thread can be started, or there is a log already.
pub fn begin(format: LogFormat, level: LogLevel) -> Result<()> {
    let stderr = File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let is_journal = stream.is_some_and(|stream| is_stream(&stderr, &stream));
    let style = Style { format, is_journal };
    let (lines, queued) = sync_channel(LINES_MAX);
    if QUEUE.lines.set(lines).is_err() {
        bail!("the log was begun before");
    }
    let write = move || QUEUE.write(queued.into_iter(), stderr, style);
    std::thread::Builder::new().name("log".into()).spawn(write).context("cannot start a thread")?;
    tracing::subscriber::set_global_default(Lines { level: filter(level), style: Some(style) })
        .context("another log was begun before")
}

/// Notes of a command are printed as its other messages are.
pub fn print_notes() {
    // Another subscriber prints them, too.
    let _ =
        tracing::subscriber::set_global_default(Lines { level: LevelFilter::INFO, style: None });
}

/// The field `volume` of all lines from now on.
pub fn set_volume(volume: &str) {
    // A daemon serves one.
    let _ = VOLUME.set(volume.to_owned());
}

/// Logs what ended the daemon; `false` if it has no log.
pub fn take_error(text: &str) -> bool {
    let is_begun = QUEUE.lines.get().is_some();
    if is_begun {
        tracing::error!("{text}");
    }
    is_begun
}

/// Waits until all lines until now are written, for so long at most.
pub fn await_written(within: Duration) {
    let end = Instant::now() + within;
    let queued = QUEUE.queued.load(Ordering::Relaxed);
    while QUEUE.written.load(Ordering::Relaxed) < queued && Instant::now() < end {
        std::thread::sleep(POLL);
    }
}

/// Whether the standard error is the journal's stream.
///
/// Source: systemd.exec(5), `$JOURNAL_STREAM`: device and inode number.
fn is_stream(stderr: &File, stream: &str) -> bool {
    let numbers = stderr.metadata().map(|it| format!("{}:{}", it.dev(), it.ino()));
    numbers.is_ok_and(|numbers| numbers == stream)
}

struct Queue {
    lines: OnceLock<SyncSender<String>>,
    queued: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
}

impl Queue {
    const fn new() -> Self {
        let [queued, written, dropped] = [const { AtomicU64::new(0) }; 3];
        Self { lines: OnceLock::new(), queued, written, dropped }
    }

    fn push(&self, line: String) {
        let Some(lines) = self.lines.get() else { return };
        // Before it can be written.
        self.queued.fetch_add(1, Ordering::Relaxed);
        if lines.try_send(line).is_err() {
            self.written.fetch_add(1, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&self, queued: impl Iterator<Item = String>, mut to: impl Write, style: Style) {
        for line in queued {
            // Nobody reads what cannot be written.
            let _ = to.write_all(line.as_bytes());
            self.written.fetch_add(1, Ordering::Relaxed);
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                let text = format!("{dropped} lines of the log were dropped: nothing read them");
                let _ = to.write_all(made(style, Level::WARN, Fields::of(text)).as_bytes());
            }
        }
    }
}

fn made(style: Style, level: Level, mut fields: Fields) -> String {
    fields.volume = VOLUME.get().map(String::as_str);
    style.line(&rfc3339(SystemTime::now()), level, &fields)
}

/// Where lines go.
struct Lines {
    level: LevelFilter,
    /// Queued in this style; without one they are printed as notes.
    style: Option<Style>,
}

/// Only lines of this program, and no spans.
impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.is_event() && metadata.target().starts_with("headpond");
        is_ours && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let (level, fields) = (*event.metadata().level(), Fields::from(event));
        match self.style {
            Some(style) => QUEUE.push(made(style, level, fields)),
            None if level == Level::ERROR => eprintln!("headpond: error: {}", fields.text()),
            None => eprintln!("headpond: note: {}", fields.text()),
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A reader that can be held up.
    #[derive(Clone, Default)]
    struct Reader(Arc<Mutex<Vec<u8>>>);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_delays_nobody_and_what_it_missed_is_counted() {
        let queue = Queue::new();
        let (lines, queued) = sync_channel(4);
        queue.lines.set(lines).unwrap();
        let reader = Reader::default();
        let style = Style { format: LogFormat::Text, is_journal: false };
        std::thread::scope(|scope| {
            let stopped = reader.0.lock().unwrap();
            let (queue, to) = (&queue, reader.clone());
            let writer = scope.spawn(move || queue.write(queued.iter().take(5), to, style));
            (0..100).for_each(|at| queue.push(format!("line {at}\n")));
            let dropped = queue.dropped.load(Ordering::Relaxed);
            assert!((95..=96).contains(&dropped), "{dropped} of 100: room for 4, and one taken");
            drop(stopped);
            while queue.written.load(Ordering::Relaxed) < 100 {
                std::thread::yield_now();
            }
            // The fifth, where none was taken before.
            queue.push("last\n".into());
            writer.join().unwrap();
        });
        let text = String::from_utf8(reader.0.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("line 0\n"), "{text}");
        assert!(text.contains("lines of the log were dropped"), "{text}");
    }

    #[test]
    fn the_journal_is_recognised_by_its_stream_and_nothing_else() {
        let file = tempfile::tempfile().unwrap();
        let of = file.metadata().unwrap();
        assert!(is_stream(&file, &format!("{}:{}", of.dev(), of.ino())));
        assert!(!is_stream(&file, &format!("{}:{}", of.dev(), of.ino() + 1)), "a terminal");
        assert!(!is_stream(&file, ""));
    }
}
