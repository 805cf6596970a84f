//! The events of the volume that this daemon serves.
//!
//! 1. Whoever notices something tells it, from any thread; [`changes`] is what a task notices that
//!    compares the status each second.
//! 2. It is logged, unless the device has caused too many of its kind ([`limit`]).
//! 3. A thread keeps it in the state folder, and hands it to a thread that runs the administrator's
//!    executables ([`scripts`]).
//!
//! **Invariant**: who tells an event waits for neither thread. Events that do not fit into the
//! queue are lost for the file, and the log says how many.

mod changes;
mod limit;
mod scripts;
mod snapshot;

use crate::wall_clock::rfc3339;
use anyhow::{Context, Result};
pub use changes::{changes, raised};
use headpond_api::events::{Event, EventFiles, EventKind, EventWriter, Severity};
use headpond_api::place::Places;
use limit::Limit;
use scripts::Scripts;
pub use snapshot::Snapshot;
use snapshot::subject_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;

/// A request that takes as long is reported.
pub const SLOW: Duration = Duration::from_secs(1);
/// Events that may wait for the file.
const EVENTS_MAX: usize = 256;
/// How long the end of the daemon waits for executables, which have this time each.
const END_TIME: Duration = scripts::TIME_MAX;
const POLL: Duration = Duration::from_millis(2);

/// Where events are told. Cloning shares it.
#[derive(Clone)]
pub struct Events {
    volume: Arc<str>,
    limit: Arc<Mutex<Limit>>,
    queue: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

/// The threads, until this is dropped.
pub struct EventThreads {
    events: Events,
    thread: Option<JoinHandle<()>>,
    /// When the daemon before this one had started the volume, where it did not stop it.
    pub left_since: Option<String>,
}

enum Message {
    Keep(Event),
    /// All before it is kept.
    Written(oneshot::Sender<()>),
    End,
}

impl EventThreads {
    /// Goes on with the events of the volume.
    ///
    /// # Errors
    /// If no thread can be started. A folder that cannot be written is logged.
    pub fn begin(places: &Places, volume: &str) -> Result<Self> {
        let (writer, before) = match EventWriter::open(EventFiles::of(places, volume)) {
            Ok((writer, before)) => (Some(writer), before),
            Err(error) => {
                tracing::warn!("events are not kept: {error}");
                (None, Vec::new())
            }
        };
        let (queue, told) = sync_channel(EVENTS_MAX);
        let scripts = Scripts::begin(places.event_scripts())?;
        let lost = Arc::<AtomicU64>::default();
        let mut keeper = Keeper { writer, scripts, lost: Arc::clone(&lost) };
        let keep = move || keeper.keep(&told);
        let thread = std::thread::Builder::new().name("events".into()).spawn(keep);
        let thread = Some(thread.context("cannot start a thread")?);
        let events = Events { volume: volume.into(), limit: Arc::default(), queue, lost };
        Ok(Self { events, thread, left_since: left_since(&before) })
    }

    pub fn events(&self) -> &Events {
        &self.events
    }
}

impl Drop for EventThreads {
    fn drop(&mut self) {
        // A thread that hangs takes no more.
        let _ = self.events.queue.try_send(Message::End);
        let Some(thread) = self.thread.take() else { return };
        let end = Instant::now() + END_TIME;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
impl Events {
    /// For tests: nobody hears of them.
    pub fn unheard() -> Self {
        let (queue, _) = sync_channel(1);
        Self { volume: "v".into(), limit: Arc::default(), queue, lost: Arc::default() }
    }
}

impl Events {
    /// Logs and keeps an event.
    pub fn tell(&self, event: Event) {
        let subject = match &event.device {
            Some(device) => device.clone(),
            None => subject_of(&event.text),
        };
        let mut limit = self.limit.lock().expect("no holder panics");
        let passed = limit.offer(event, &subject, Instant::now());
        drop(limit);
        passed.into_iter().for_each(|event| self.publish(event));
    }

    /// Tells what was held back and is due.
    pub fn tell_due(&self) {
        let due = self.limit.lock().expect("no holder panics").due(Instant::now());
        due.into_iter().for_each(|event| self.publish(event));
    }

    /// Tells all that was held back.
    pub fn tell_held(&self) {
        let held = self.limit.lock().expect("no holder panics").end();
        held.into_iter().for_each(|event| self.publish(event));
    }

    /// All events until now are in the file.
    pub async fn written(&self) {
        let (tell, told) = oneshot::channel();
        // A full queue is that of a folder that cannot be written.
        if self.queue.try_send(Message::Written(tell)).is_ok() {
            let _ = told.await;
        }
    }

    fn publish(&self, event: Event) {
        log(&event);
        let (time, volume) = (rfc3339(SystemTime::now()), self.volume.to_string());
        let message = Message::Keep(Event { time, volume, ..event });
        if let Err(TrySendError::Full(_)) = self.queue.try_send(message) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn log(event: &Event) {
    let is_failure = event.event == EventKind::VolumeStopped && event.severity == Severity::Error;
    if is_failure || event.event == EventKind::StartFailed {
        // It is the error with which the daemon ends, and logged as that.
        return;
    }
    let Event { device, member, text, .. } = event;
    let (kind, device) = (event.event.word(), device.as_deref());
    match event.severity {
        Severity::Info => tracing::info!(device, member, event = kind, "{text}"),
        Severity::Warning => tracing::warn!(device, member, event = kind, "{text}"),
        Severity::Error => tracing::error!(device, member, event = kind, "{text}"),
    }
}

/// When the volume was started that has not been stopped since.
fn left_since(before: &[Event]) -> Option<String> {
    let is_served = |event: &&Event| {
        matches!(
            event.event,
            EventKind::VolumeStarted | EventKind::VolumeStopping | EventKind::VolumeStopped
        )
    };
    let last = before.iter().rev().find(is_served)?;
    (last.event != EventKind::VolumeStopped).then(|| last.time.clone())
}

/// The thread that keeps events.
struct Keeper {
    writer: Option<EventWriter>,
    scripts: Scripts,
    lost: Arc<AtomicU64>,
}

impl Keeper {
    fn keep(&mut self, told: &Receiver<Message>) {
        for message in told {
            match message {
                Message::Keep(event) => self.keep_one(event),
                // The asker may be gone.
                Message::Written(asker) => drop(asker.send(())),
                Message::End => return,
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                tracing::warn!("{lost} events were not kept: the state folder is too slow");
            }
        }
    }

    fn keep_one(&mut self, mut event: Event) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.append(&mut event)
        {
            tracing::warn!("event {} is not kept: {error}", event.sequence);
        }
        self.scripts.run(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, time: &str) -> Event {
        Event { time: time.into(), ..Event::new(kind, Severity::Info, "") }
    }

    #[test]
    fn a_volume_that_was_started_and_not_stopped_was_left() {
        let [started, stopping, stopped, failed] = [
            event(EventKind::VolumeStarted, "1"),
            event(EventKind::VolumeStopping, "2"),
            event(EventKind::VolumeStopped, "3"),
            event(EventKind::StartFailed, "4"),
        ];
        assert_eq!(left_since(&[]), None);
        assert_eq!(left_since(&[started.clone(), stopping.clone(), stopped.clone()]), None);
        assert_eq!(left_since(&[started.clone(), stopped, started.clone()]), Some("1".into()));
        assert_eq!(left_since(&[started.clone(), stopping]), Some("2".into()));
        assert_eq!(left_since(&[started, failed]), Some("1".into()), "not told yet");
    }
}
