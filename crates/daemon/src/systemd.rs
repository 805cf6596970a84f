//! Reports to the service manager that started the daemon, by the protocol of sd_notify(3).
//!
//! 1. While the volume is opened: what it waits for, and more time where there is progress.
//! 2. Once it is served: that it is ready.
//! 3. A keep-alive, as long as the data thread runs.
//! 4. During a stop: what it waits for, and more time.
//!
//! **Invariants**
//! - No reporting thread waits for the manager: messages are sent by a thread of their own.
//! - A data thread that is blocked for the watchdog's time gets no keep-alive. Before the volume is
//!   served there is none to watch, and the manager's start timeout applies.
//! - Without `NOTIFY_SOCKET` nothing is done, and there is no thread.

use super::loading::parts;
use super::pulse::Pulse;
use headpond_volume::Loading;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keep-alives within the watchdog's time: one may be late.
const KEEP_ALIVES: u32 = 3;
/// Extensions of a timeout are sent at most so often.
const EXTEND_EVERY: Duration = Duration::from_secs(1);
/// More time for a start or a stop that makes progress, from each report on.
pub const PROGRESS_TIME: Duration = Duration::from_secs(60);
/// How long the end waits for a manager that does not read.
const END_TIME: Duration = Duration::from_secs(1);

/// Reports to the service manager, from any thread; without one it does nothing.
#[derive(Clone, Default)]
pub struct Notifier(Option<Sender<Message>>);

/// The thread that sends, until this is dropped.
pub struct Notifying {
    notifier: Notifier,
    thread: Option<JoinHandle<()>>,
}

enum Message {
    Ready(String),
    Status(String),
    Stopping(String),
    Extend(Duration),
    Watch(Arc<Pulse>),
    End,
}

impl Notifying {
    /// The manager named by the environment, if any.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn begin() -> std::io::Result<Self> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Self { notifier: Notifier::default(), thread: None });
        }
        let (tell, told) = channel();
        let watchdog = sd_notify::watchdog_enabled().filter(|time| !time.is_zero());
        let send = move || Manager { watchdog, pulse: None, sent: String::new() }.serve(&told);
        let thread = std::thread::Builder::new().name("notify".into()).spawn(send)?;
        Ok(Self { notifier: Notifier(Some(tell)), thread: Some(thread) })
    }

    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }
}

impl Drop for Notifying {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.notifier.tell(Message::End);
        let end = Instant::now() + END_TIME;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Notifier {
    /// What the daemon is doing, in a line.
    pub fn status(&self, what: &str) {
        self.tell(Message::Status(what.to_owned()));
    }

    /// The start or the stop may take so long from now on.
    pub fn extend(&self, by: Duration) {
        self.tell(Message::Extend(by));
    }

    /// Progress of reading a log.
    pub fn loading(&self, loading: &Loading) {
        if self.0.is_some() {
            self.status(&loading_line(loading));
            self.extend(PROGRESS_TIME);
        }
    }

    /// The volume is served, and its control socket answers.
    pub fn ready(&self, what: &str) {
        self.tell(Message::Ready(what.to_owned()));
    }

    /// The volume is being stopped.
    pub fn stopping(&self, waits_for: &str) {
        self.tell(Message::Stopping(format!("stopping: waits for {waits_for}")));
    }

    /// From now on the keep-alive depends on the data thread.
    pub fn watch(&self, pulse: Arc<Pulse>) {
        self.tell(Message::Watch(pulse));
    }

    fn tell(&self, message: Message) {
        // At the end of the program the thread may be gone.
        let _ = self.0.as_ref().map(|tell| tell.send(message));
    }
}

/// The manager, as the sending thread sees it.
struct Manager {
    watchdog: Option<Duration>,
    pulse: Option<Arc<Pulse>>,
    /// The last message but keep-alives and extensions, which is not repeated.
    sent: String,
}

impl Manager {
    fn serve(&mut self, told: &Receiver<Message>) {
        let interval = self.watchdog.map(|time| time / KEEP_ALIVES);
        let (mut due, mut extended) = (Instant::now(), None::<Instant>);
        loop {
            let message = match interval {
                None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => told.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Message::Watch(pulse)) => self.pulse = Some(pulse),
                Ok(Message::Extend(by)) => {
                    if extended.is_none_or(|extended| extended.elapsed() >= EXTEND_EVERY) {
                        extended = Some(Instant::now());
                        send(&[NotifyState::ExtendTimeoutUsec(microseconds(by))]);
                    }
                }
                Ok(Message::Status(text)) => self.say(&[NotifyState::Status(&line(&text))]),
                Ok(Message::Ready(text)) => {
                    self.say(&[NotifyState::Ready, NotifyState::Status(&line(&text))]);
                }
                Ok(Message::Stopping(text)) => {
                    self.say(&[NotifyState::Stopping, NotifyState::Status(&line(&text))]);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(interval) = interval
                && Instant::now() >= due
            {
                due = Instant::now() + interval;
                if self.is_alive() {
                    send(&[NotifyState::Watchdog]);
                }
            }
        }
    }

    fn say(&mut self, states: &[NotifyState]) {
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        if text != self.sent {
            send(states);
            self.sent = text;
        }
    }

    fn is_alive(&self) -> bool {
        let silent = self.pulse.as_ref().map(|pulse| pulse.silent_for());
        is_alive(silent, self.watchdog.unwrap_or(Duration::MAX))
    }
}

/// Whether a data thread that has been silent for so long runs; `None`: there is none yet.
fn is_alive(silent: Option<Duration>, watchdog: Duration) -> bool {
    silent.is_none_or(|silent| silent < watchdog)
}

fn send(states: &[NotifyState]) {
    // The manager sees a missing message by its timeouts.
    let _ = sd_notify::notify(states);
}

/// A message is a line.
fn line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn loading_line(loading: &Loading) -> String {
    let progress = loading.progress;
    let percent = (progress.read_bytes * 100).checked_div(progress.bytes).unwrap_or(100);
    format!("loading the cache: {percent} %{}", parts(loading))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::LoadProgress;

    #[test]
    fn a_data_thread_that_is_silent_for_the_watchdogs_time_is_not_alive() {
        let watchdog = Duration::from_secs(60);
        assert!(is_alive(None, watchdog), "opening a volume has no pulse");
        assert!(is_alive(Some(Duration::from_secs(59)), watchdog));
        assert!(!is_alive(Some(watchdog), watchdog));
        assert!(!is_alive(Some(Duration::from_secs(600)), watchdog));
    }

    #[test]
    fn a_thread_that_stopped_beating_gets_no_keep_alive_and_one_that_beats_does() {
        // Its only beat is that of its beginning.
        let pulse = Arc::new(Pulse::new());
        let mut manager =
            Manager { watchdog: Some(Duration::MAX), pulse: None, sent: String::new() };
        assert!(manager.is_alive());
        manager.pulse = Some(pulse);
        assert!(manager.is_alive(), "within the watchdog's time");
        manager.watchdog = Some(Duration::ZERO);
        assert!(!manager.is_alive());
    }

    #[test]
    fn what_is_reported_is_one_line_whatever_a_device_is_called() {
        assert_eq!(line("waits for a\nREADY=1\r"), "waits for a READY=1 ");
        assert_eq!(microseconds(Duration::from_secs(90)), 90_000_000);
        assert_eq!(microseconds(Duration::from_secs(1 << 40)), u32::MAX);
    }

    #[test]
    fn progress_of_a_log_is_in_percent_with_the_segment() {
        let progress = LoadProgress { segments_read: 2, segments: 8, read_bytes: 100, bytes: 400 };
        let line = loading_line(&Loading { slice: 0, slices: 1, progress });
        assert_eq!(line, "loading the cache: 25 %, segment 2 of 8");
    }

    #[test]
    fn without_a_manager_there_is_no_thread_and_reports_go_nowhere() {
        let notifier = Notifier::default();
        notifier.status("serving");
        notifier.extend(PROGRESS_TIME);
        assert!(notifier.0.is_none());
    }
}
