//! Executes commands on the data thread. Work that may wait for a file is done by `run_blocking`.

use super::attached::Attachments;
use super::block_devices::{BlockDevices, may_bring_memory};
use super::clients;
use super::command::{Command, Message, Reply};
use super::events::Events;
use super::files::Files;
use super::metrics::{Served, Snapshot};
use super::pulse::Pulse;
use super::recording::Recording;
use super::systemd::{Notifier, PROGRESS_TIME};
use super::work::Work;
use crate::device::Opener;
use crate::export;
use crate::wall_clock::utc;
use anyhow::{Context, Result, anyhow};
use headpond_api::Refusal;
use headpond_api::answers::{Flushed, Stats, Status, Stopped};
use headpond_api::config::SettingDefaults;
use headpond_api::events::{Event, EventKind, Severity};
use headpond_api::outcome::{Exit, Failure, told};
use headpond_api::place::Left;
use headpond_api::requests::{ClearBody, ExportsBody, FlushPace, SetBody, StopBody};
use headpond_block::sync::Notify;
use headpond_block::{BlockDevice, BufferPool, Listener, Runtime};
use headpond_nbd::server::{Exports, Server, StopError};
use headpond_volume::{RecordError, SetError, SettingsError, Volume};
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

pub struct ControlService {
    pub volume: Rc<Volume>,
    pub server: Rc<Server>,
    pub recording: Rc<Recording>,
    pub samples: Rc<Recording>,
    pub runtime: Runtime,
    pub listeners: Vec<Rc<dyn Listener>>,
    pub block_devices: Rc<BlockDevices>,
    pub files: Files,
    pub events: Events,
    pub opener: Opener,
    pub exports: Rc<Exports>,
    pub attachments: Rc<Attachments>,
    pub pool: BufferPool,
    pub defaults: SettingDefaults,
    pub pulse: Arc<Pulse>,
    pub notifier: Notifier,
    pub work: Rc<Work>,
    pub end: End,
}

/// Progress of the shutdown.
#[derive(Default)]
pub struct End {
    stage: RefCell<Stage>,
    is_over: Notify,
}

#[derive(Clone, Default)]
enum Stage {
    #[default]
    Serving,
    /// No new command is started; what the shutdown waits for.
    Closing(&'static str),
    /// The error of an unclean shutdown, if any.
    Over(Option<String>),
}

/// Interval of the check for what delays a stop.
const LOOKED_EVERY: Duration = Duration::from_secs(1);
/// A client that is connected longer than this has not just disconnected.
const LEAVING_TIME: Duration = Duration::from_millis(500);
const LEAVING_POLL: Duration = Duration::from_millis(5);
/// During a stop: timeouts of read-only commands, and of a recording.
const COMMANDS_TIME: Duration = Duration::from_secs(5);
const RECORDING_TIME: Duration = Duration::from_secs(10);
/// Clients that are named in a refusal.
const NAMED_MAX: usize = 5;

impl ControlService {
    /// The next command; none once a stop is complete.
    pub async fn next(&self, messages: &mut mpsc::Receiver<Message>) -> Option<Message> {
        let mut over = pin!(self.until_over());
        poll_fn(|context| match over.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => messages.poll_recv(context),
        })
        .await
    }

    /// Executes a command and answers it.
    pub async fn execute(&self, command: Command) {
        let brings_memory = may_bring_memory(&command);
        match command {
            Command::Status(reply) => answer(reply, Ok(self.status())),
            Command::Stats(reply) => answer(reply, Ok(self.stats())),
            Command::Metrics(reply) => answer(reply, Ok(self.metrics().into())),
            Command::ResetStats(reply) => self.run(None, reply, self.reset_stats()).await,
            Command::ClearErrors(body, reply) => {
                self.run(None, reply, self.clear_errors(body)).await;
            }
            Command::Set(body, reply) => {
                let work = body.flush.then_some("set --flush");
                let set = self.marked(brings_memory, self.set(&body));
                self.run(work, reply, set).await;
            }
            Command::SetExports(body, reply) => {
                self.run(None, reply, self.set_exports(body)).await;
            }
            Command::AttachDevice(body, reply) => {
                self.run(None, reply, self.attach_device(body)).await;
            }
            Command::DetachDevice(body, reply) => {
                self.run(None, reply, self.detach_device(&body)).await;
            }
            Command::Flush(body, reply) => {
                self.run(Some("flush"), reply, self.flush(body.pace)).await;
            }
            Command::Stop(body, reply) => answer(reply, self.stop(&body).await),
            Command::ScrubCache(reply) => {
                self.run(Some("cache scrub"), reply, self.scrub_cache()).await;
            }
            Command::AttachCache(body, reply) => {
                let attach = self.marked(brings_memory, self.attach(&body));
                self.run(Some("cache attach"), reply, attach).await;
            }
            Command::DetachCache(body, reply) => {
                self.run(Some("cache detach"), reply, self.detach(&body)).await;
            }
            Command::ReplaceCache(body, reply) => {
                let replace = self.marked(brings_memory, self.replace(&body));
                self.run(Some("cache replace"), reply, replace).await;
            }
            Command::ResizeCache(body, reply) => {
                self.run(Some("cache resize"), reply, self.resize(body.size)).await;
            }
            Command::PurgeCache(body, reply) => {
                self.run(Some("cache purge"), reply, self.purge(&body)).await;
            }
            Command::AddCore(body, reply) => {
                let add = self.marked(brings_memory, self.add_core(&body));
                self.run(Some("core add"), reply, add).await;
            }
            Command::RemoveCore(body, reply) => {
                self.run(Some("core remove"), reply, self.remove_core(&body)).await;
            }
            Command::Array(command, reply) => {
                let change = self.marked(brings_memory, self.change_array(&command));
                self.run(Some("array"), reply, change).await;
            }
            Command::StartRecording(body, reply) => {
                self.run(Some("trace record"), reply, self.recording.start(body)).await;
            }
            Command::StopRecording(reply) => self.run(None, reply, self.recording.stop()).await,
            Command::Sample(body, reply) => {
                self.run(None, reply, self.samples.look(&self.runtime, body)).await;
            }
        }
    }

    /// Executes a command that is refused during a stop; `work` is its name if a stop would abort
    /// it.
    async fn run<A>(
        &self,
        work: Option<&'static str>,
        reply: Reply<A>,
        doing: impl Future<Output = Result<A>>,
    ) {
        if self.is_closing() {
            return answer(reply, Err(Failure::refused("the volume is being stopped")));
        }
        let _work = work.map(|what| self.work.begin(what));
        answer(reply, doing.await);
    }

    /// Does what may bring writes that are acknowledged in memory alone, once that is kept.
    async fn marked<A>(
        &self,
        brings_memory: bool,
        doing: impl Future<Output = Result<A>>,
    ) -> Result<A> {
        if brings_memory {
            self.mark_memory().await?;
        }
        doing.await
    }

    /// Saves the present description, on the members and in its file.
    pub async fn save(&self) -> Result<()> {
        let recorded = self.volume.record().await;
        self.files.save(self.volume.description()).await?;
        match recorded {
            Err(error @ RecordError::Long { .. }) => Err(error.into()),
            // An array that has lost too many members takes no record, and its state says so.
            _ => Ok(()),
        }
    }

    pub fn status(&self) -> Status {
        let report = self.server.report();
        let commands = self.work.names().into_iter().map(str::to_owned);
        Status {
            exports: self.served_exports(),
            clients: clients::connections(&report),
            server: Some(clients::server(&report, self.block_devices.status())),
            recording: self.recording.output(),
            commands: commands.collect(),
            stop_waits_for: self.held_up_by(),
            ..Status::serving(&self.volume.description(), self.volume.status())
        }
    }

    /// Addresses of listeners, and of block devices that are shown.
    fn served_exports(&self) -> Vec<String> {
        let listened = self.listeners.iter().map(|listener| listener.address());
        let described = self.volume.description().exports.into_iter();
        let shown = described
            .map(|export| export.address)
            .filter(|address| address.starts_with("ublk") && self.block_devices.is_any_shown());
        listened.chain(shown).chain(self.attachments.paths()).collect()
    }

    fn stats(&self) -> Stats {
        let report = self.volume.report();
        let first = report.cache.as_ref().or(report.tier.as_ref());
        let since = first.map(|it| SystemTime::now() - Duration::from_secs_f64(it.counted_s));
        Stats { name: self.volume.description().name, counted_since: since.map(utc), report }
    }

    fn metrics(&self) -> Snapshot {
        let begun = self.runtime.now();
        let (status, counts) = (self.status(), self.volume.counts());
        let took = self.runtime.now().since(begun);
        Snapshot { status, served: Some(Served { counts, took }) }
    }

    async fn reset_stats(&self) -> Result<Stats> {
        let stats = self.stats();
        self.volume.reset_stats();
        Ok(stats)
    }

    /// The answer comes when the members know it.
    async fn clear_errors(&self, body: ClearBody) -> Result<Status> {
        self.volume.clear_errors(body.device.as_deref()).await.map_err(Failure::usage)?;
        Ok(self.status())
    }

    /// Settings are persistent.
    async fn set(&self, body: &SetBody) -> Result<Status> {
        let _at_full_rate = self.flush_at_full_rate(body.pace);
        let outcome = match body.flush {
            true => self.volume.set_and_clean(&body.changes).await,
            false => self.volume.set(&body.changes).await,
        };
        // If only the cleaning failed, the settings are in effect.
        self.save().await?;
        let client_memory = self.volume.description().array.client_memory;
        self.server.set_memory(clients::memory_bytes(client_memory));
        outcome.map_err(|error| match error {
            SetError::Settings(SettingsError::Setting(error)) => Failure::usage(error),
            error => Failure::of(error, SetError::is_refusal),
        })?;
        Ok(self.status())
    }

    /// The next start has them.
    async fn set_exports(&self, body: ExportsBody) -> Result<Status> {
        export::check(&body.exports)?;
        self.follow_exports(&body.exports).await?;
        self.volume.set_exports(body.exports).map_err(Failure::refused)?;
        self.save().await?;
        Ok(self.status())
    }

    async fn flush(&self, pace: FlushPace) -> Result<Flushed> {
        let _at_full_rate = self.flush_at_full_rate(pace);
        let cleaned_bytes = self.volume.clean_all().await?;
        Ok(Flushed { cleaned_bytes })
    }

    /// Holds the flush rate for a command, until it is dropped.
    pub fn flush_at_full_rate(&self, pace: FlushPace) -> Option<impl Sized> {
        (pace == FlushPace::Max).then(|| self.volume.flush_at_full_rate())
    }
}

/// The shutdown, by the rules of `docs/serving.md`.
impl ControlService {
    async fn stop(&self, body: &StopBody) -> Result<Stopped> {
        if body.wait {
            self.work.until_done().await;
        }
        if !body.force {
            self.refuse_stop(body.wait).await?;
        }
        if body.flush {
            let flushed = self.flush(FlushPace::Max).await;
            // Another stop may have completed.
            if !self.is_closing() {
                flushed?;
            }
        }
        if !body.force {
            // A client may have connected since.
            self.refuse_stop(body.wait).await?;
        }
        if self.is_closing() {
            self.until_over().await;
            return self.outcome().map(|_| Stopped {});
        }
        self.tell_of_stopping();
        let closed = self.close().await;
        let error = closed.as_ref().err().map(told);
        self.tell_of_stopped(error.as_deref()).await;
        self.end.stage.replace(Stage::Over(error));
        self.end.is_over.notify_all();
        closed.map(|()| Stopped {})
    }

    /// `waits`: for commands that were started since.
    async fn refuse_stop(&self, waits: bool) -> Result<()> {
        loop {
            let peers = self.clients_that_stay().await;
            let devices = self.block_devices.in_use().await?;
            let commands = self.work.names();
            let is_unused = peers.is_empty() && devices.is_empty();
            if self.is_closing() || is_unused && commands.is_empty() {
                return Ok(());
            }
            if is_unused && waits {
                self.work.until_done().await;
                continue;
            }
            return Err(self.in_the_way(&peers, &devices, &commands));
        }
    }

    fn in_the_way(&self, peers: &[String], devices: &[String], commands: &[&str]) -> anyhow::Error {
        let mut reasons: Vec<String> = devices.to_vec();
        if !peers.is_empty() {
            let named = peers[..peers.len().min(NAMED_MAX)].join(", ");
            let more = if peers.len() > NAMED_MAX { ", ..." } else { "" };
            reasons.push(format!("{} connected ({named}{more})", counted(peers.len(), "client")));
        }
        if !commands.is_empty() {
            reasons.push(format!("under way: `{}`", commands.join("`, `")));
        }
        let name = self.volume.name();
        let (unmount, waiting) = match devices.is_empty() {
            true => ("", ""),
            false => (" and unmount", " (requests of block devices wait for the next start)"),
        };
        Failure::refused(format!(
            "{name} is in use; {}: disconnect clients{unmount} first, --wait waits for commands, \
             and --force ends all of it without losing acknowledged data{waiting}",
            reasons.join("; ")
        ))
    }

    fn tell_of_stopping(&self) {
        let text = "the volume is being stopped";
        self.events.tell(Event::new(EventKind::VolumeStopping, Severity::Info, text));
    }

    /// Before the stop is answered: a daemon that is started then goes on after these events.
    async fn tell_of_stopped(&self, error: Option<&str>) {
        self.events.tell_held();
        let (severity, text) = match error {
            None => (Severity::Info, "the volume is stopped".to_owned()),
            Some(error) => (Severity::Error, format!("not shut down cleanly: {error}")),
        };
        self.events.tell(Event::new(EventKind::VolumeStopped, severity, text));
        self.events.written().await;
    }

    /// Connected clients, without those whose disconnection is not detected yet.
    async fn clients_that_stay(&self) -> Vec<String> {
        let end = self.runtime.now() + LEAVING_TIME;
        loop {
            let connections = self.server.report().connections;
            let clients = connections.into_iter().filter(|client| client.export.is_some());
            let peers: Vec<_> = clients.map(|client| client.peer).collect();
            if peers.is_empty() || self.runtime.now() > end {
                return peers;
            }
            self.runtime.sleep(LEAVING_POLL).await;
        }
    }

    /// Commands end first, then clients, so that completed commands are in the volume. An error is
    /// reported at the end and does not skip later steps.
    async fn close(&self) -> Result<()> {
        self.go_on_to("commands");
        self.volume.end_flushes().await;
        // A command that hangs in a read of a device changes nothing.
        let end = self.runtime.now() + COMMANDS_TIME;
        let work = Rc::clone(&self.work);
        let _ = self.runtime.deadline(end, async move { work.until_done().await }).await;
        self.go_on_to("the recording to complete");
        let end = self.runtime.now() + RECORDING_TIME;
        let ending = end_recordings(Rc::clone(&self.samples), Rc::clone(&self.recording));
        let recorded = match self.runtime.deadline(end, ending).await {
            Ok(recorded) => recorded,
            Err(_) => Err(anyhow!("the recording was not complete within {RECORDING_TIME:?}")),
        };
        self.go_on_to("clients to take their answers, and devices to flush");
        let served = self.server.stop().await;
        self.block_devices.close(self.volume.is_taken_over()).await;
        if self.volume.is_taken_over() {
            // Another host owns the volume: nothing can be flushed here.
            return recorded;
        }
        let context = "its daemon ends regardless, and the next start replays the cache's log";
        if matches!(served, Err(StopError::Hanging { .. })) {
            // The volume would wait for the same device as the client.
            return served.context(context);
        }
        self.go_on_to("the cache to save its state, and the array to be marked clean");
        let stopped = self.volume.stop().await;
        self.go_on_to("files of the state folder");
        if stopped.is_ok() {
            // What was in memory alone is on the array.
            let _ = self.files.unmark_memory(self.volume.description().name).await;
            let (name, status) = (self.volume.description().name, self.volume.status());
            let dirty_bytes = status.cache.map_or(0, |cache| cache.unsafe_bytes());
            let left = Left { dirty_bytes: Some(dirty_bytes), size_bytes: Some(status.size_bytes) };
            if let Err(error) = self.files.note_left(name, left).await {
                tracing::warn!("{error:#}: `status` will not know the amount of dirty data");
            }
        }
        stopped.context(context)?;
        served.context(context)?;
        recorded
    }

    /// The outcome of the shutdown.
    ///
    /// # Errors
    /// The cause of an unclean shutdown.
    pub fn outcome(&self) -> Result<Exit> {
        match &*self.end.stage.borrow() {
            Stage::Over(Some(error)) => Err(anyhow!("not shut down cleanly: {error}")),
            _ => Ok(Exit::Ok),
        }
    }

    pub fn is_closing(&self) -> bool {
        !matches!(*self.end.stage.borrow(), Stage::Serving)
    }

    async fn until_over(&self) {
        while !matches!(*self.end.stage.borrow(), Stage::Over(_)) {
            self.end.is_over.wait().await;
        }
    }

    fn go_on_to(&self, what: &'static str) {
        self.end.stage.replace(Stage::Closing(what));
        self.publish_stop();
    }

    /// Publishes to other threads, and to the service manager, what a stop waits for. A device that
    /// does not respond is no reason for more time.
    fn publish_stop(&self) {
        let waits_for = self.held_up_by();
        if let Some(what) = &waits_for {
            self.notifier.stopping(what);
            if self.volume.silent_devices().is_empty() {
                self.notifier.extend(PROGRESS_TIME);
            }
        }
        self.pulse.wait_for(waits_for);
    }

    /// What a stop waits for, with the members that do not respond.
    fn held_up_by(&self) -> Option<String> {
        let Stage::Closing(what) = *self.end.stage.borrow() else { return None };
        let slow = self.volume.silent_devices();
        Some(match slow.is_empty() {
            true => what.to_owned(),
            false => format!("{what}; not answering: {}", slow.join(", ")),
        })
    }

    /// Keeps that up to date.
    pub async fn tell_of_stop(&self) {
        loop {
            self.runtime.sleep(LOOKED_EVERY).await;
            if self.is_closing() {
                self.publish_stop();
            }
        }
    }
}

fn answer<A>(reply: Reply<A>, outcome: Result<A>) {
    // The client may have disconnected.
    let _ = reply.send(outcome.map_err(Refusal::from));
}

async fn end_recordings(samples: Rc<Recording>, recording: Rc<Recording>) -> Result<()> {
    if samples.output().is_some() {
        let _ = samples.stop().await;
    }
    match recording.output() {
        Some(_) => recording.stop().await.map(drop),
        None => Ok(()),
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what} is") } else { format!("{count} {what}s are") }
}
