//! The data thread: assembles the volume, serves it, grants wishes.

use super::control::Control;
use super::cores::offer;
use super::loading::{LoadTeller, look};
use super::message::{Answer, Message, Wish};
use super::recording::Recording;
use crate::client::{Client, Refusal};
use crate::commands::class::read_named_file;
use crate::device::{DeviceSpec, Opener};
use crate::export::{self, Address};
use crate::host;
use crate::outcome::{Exit, Failure, told};
use crate::place::Places;
use crate::wall_clock::utc;
use anyhow::{Context, Result, anyhow};
use headpond_block::{BlockDevice, BufferPool, Listener, PoolConfig, Runtime, memory};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server};
use headpond_trace::CaptureDevice;
use headpond_uring::{Ring, RingConfig, SocketListener, run_with_pool};
use headpond_volume::{
    Description, DescriptionKeeper, Devices, ExportDescription, LoadWatch, Note, OpenError,
    OpenOptions, Risk, SetError, SettingChange, Tolerance, Volume,
};
use serde_json::{Value, json};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Wishes that may wait for the data thread.
const MESSAGES_MAX: usize = 64;
/// For requests that are under way when the system gives no memory any more: what the cleaner has
/// under way at most, and as much again.
const RESERVE_BYTES: usize = 32 << 20;

/// Serves a volume until it is stopped.
///
/// # Errors
/// What kept it from being served, or from being stopped cleanly.
pub fn serve(places: &Places, name: &str, tolerance: Tolerance) -> Result<Exit> {
    let mut description = places.load(name)?;
    if Client::of(places, name)?.is_served() {
        return Err(Failure::refused(format!(
            "{name} is being served already: `headpond status {name}` shows it"
        )));
    }
    if look(places, name).is_some() {
        return Err(Failure::refused(format!("{name} is being loaded by another daemon already")));
    }
    if let Some(cache) = &mut description.cache {
        read_named_file(&mut cache.settings.classes)?;
    }
    places.make_run_folder()?;
    memory::set_aside(RESERVE_BYTES).context("no memory to set aside")?;
    let pool = BufferPool::new(&PoolConfig::default());
    let lend = pool.clone();
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let data = Data::open(places, description, tolerance, ring, runtime, lend).await?;
        data.serve().await
    })?
}

/// Everything the data thread owns.
struct Data {
    volume: Rc<Volume>,
    server: Rc<Server>,
    recording: Recording,
    looks: Recording,
    listeners: Vec<Rc<dyn Listener>>,
    runtime: Runtime,
    control: Control,
    messages: mpsc::Receiver<Message>,
    places: Places,
    opener: Opener,
    exports: Rc<Exports>,
    pool: BufferPool,
}

impl Data {
    async fn open(
        places: &Places,
        description: Description,
        tolerance: Tolerance,
        ring: Ring,
        runtime: Runtime,
        pool: BufferPool,
    ) -> Result<Self> {
        let (to_data, messages) = mpsc::channel(MESSAGES_MAX);
        let opener = Opener::new(ring.clone(), runtime.clone());
        let devices = open_devices(&opener, &description)?;
        let absent = devices.absent.clone();
        let options = OpenOptions {
            tolerance,
            pool: pool.clone(),
            new_cache: Uuid::new_v4(),
            around_core: None,
            watch_load: Some(watch_load(places, &description.name)),
            claimant: Some(host::claimant()),
        };
        let volume = Volume::open(&runtime, &description, devices, options).await;
        let volume = volume.map_err(|error| match error.is_refusal() {
            true => refused(places, &description.name, &error, &absent),
            false => error.into(),
        })?;
        places.forget_refusal(&description.name);
        // Before any client: what is written from now on may be in the cache alone.
        places.forget_left(&description.name)?;
        volume.warnings().iter().for_each(|warning| eprintln!("headpond: note: {warning}"));
        keep_description(&volume, places);
        let volume = Rc::new(volume);
        let looked_at = Rc::new(CaptureDevice::new(volume.clone(), runtime.clone(), 0));
        let watched = Rc::new(CaptureDevice::new(looked_at.clone(), runtime.clone(), 0));
        let exports = Rc::new(Exports::new());
        exports.add(Export::new(&description.name, watched.clone()))?;
        for core in &description.further_cores {
            offer(&volume, &exports, &core.name)?;
        }
        let (lent, offered) = (pool.clone(), Rc::clone(&exports));
        let server = Server::new(runtime.clone(), lent, offered, Limits::default());
        let listeners = listen(places, &ring, &description)?;
        // Last, so that an answer of the control socket means: it is served.
        let control = Control::start(&places.control_socket(&description.name)?, to_data)?;
        let recording = Recording::new(watched, description.name.clone());
        let looks = Recording::new(looked_at, description.name.clone());
        let server = Rc::new(server);
        let places = places.clone();
        Ok(Self {
            volume,
            server,
            recording,
            looks,
            listeners,
            runtime,
            control,
            messages,
            places,
            opener,
            exports,
            pool,
        })
    }

    async fn serve(self) -> Result<Exit> {
        for listener in &self.listeners {
            println!("serving {} at {}", self.volume.name(), listener.address());
            let (server, listener) = (Rc::clone(&self.server), Rc::clone(listener));
            drop(self.runtime.spawn(async move {
                if let Err(error) = server.serve(listener).await {
                    eprintln!("headpond: error: a listener ended: {error}");
                }
            }));
        }
        let Self { volume, server, recording, looks, runtime, control, listeners, .. } = self;
        let Self { places, opener, exports, pool, .. } = self;
        let mut messages = self.messages;
        let (granting, ending) = (runtime.clone(), runtime.clone());
        let desk = Rc::new(Desk {
            volume,
            server,
            recording,
            looks,
            runtime: granting,
            listeners,
            places,
            opener,
            exports,
            pool,
            is_closed: Cell::default(),
        });
        let mut ended = Ok(Exit::Ok);
        while let Some(Message { wish, reply }) = messages.recv().await {
            if let Wish::Stop(body) = wish {
                let stopped = desk.stop(body.flush).await;
                // A volume that is half closed serves nobody: it ends as by a kill, and says so.
                let is_over = stopped.is_ok() || desk.is_closed.get();
                if let Err(error) = &stopped {
                    ended = Err(anyhow!("not stopped in order: {}", told(error)));
                }
                // A client that has gone away meanwhile does not want to know.
                let _ =
                    reply.send(stopped.map(|()| json!({ "stopped": true })).map_err(Refusal::from));
                if is_over {
                    break;
                }
                ended = Ok(Exit::Ok);
                continue;
            }
            let desk = Rc::clone(&desk);
            drop(runtime.spawn(async move {
                let _ = reply.send(desk.grant(wish).await);
            }));
        }
        // Who asked something meanwhile is told that there is nobody any more; what was granted
        // before may still come to its end.
        drop(messages);
        control.stop(&ending).await?;
        ended
    }
}

/// What the volume changes by itself, when a spare has taken the place of a member, outlives the
/// daemon as well.
fn keep_description(volume: &Volume, places: &Places) {
    let places = places.clone();
    let keep = move |description: &Description| {
        if let Err(error) = places.save(description) {
            eprintln!("headpond: error: the description could not be saved: {error:#}");
        }
    };
    let name_of = |word: &str| match word.parse::<DeviceSpec>() {
        Ok(spec) => spec.device_name(),
        Err(_) => word.to_owned(),
    };
    let (keep, name_of) = (Box::new(keep), Box::new(name_of));
    volume.keep_description(DescriptionKeeper { keep, name_of });
}

/// Shows how far the volume is that is being opened, until that ends.
fn watch_load(places: &Places, name: &str) -> LoadWatch {
    let teller = LoadTeller::new(places, name);
    Rc::new(move |loading| teller.tell(loading))
}

/// Where wishes are granted.
pub(super) struct Desk {
    pub volume: Rc<Volume>,
    pub server: Rc<Server>,
    recording: Recording,
    looks: Recording,
    runtime: Runtime,
    listeners: Vec<Rc<dyn Listener>>,
    pub places: Places,
    pub opener: Opener,
    pub exports: Rc<Exports>,
    pool: BufferPool,
    /// No client is served any more.
    is_closed: Cell<bool>,
}

impl Desk {
    async fn grant(&self, wish: Wish) -> Answer {
        let granted: Result<Value> = match wish {
            Wish::Status => self.status(),
            Wish::Stats => self.stats(),
            Wish::ResetStats => self.stats().inspect(|_| self.volume.reset_stats()),
            Wish::Set { changes, flush } => self.set(&changes, flush).await,
            Wish::Flush => self.flush().await,
            Wish::ScrubCache => self.scrub_cache().await,
            Wish::AttachCache(body) => self.attach(&body).await,
            Wish::DetachCache(body) => self.detach(&body).await,
            Wish::ReplaceCache(body) => self.replace(&body).await,
            Wish::ResizeCache(body) => self.resize(body.size).await,
            Wish::PurgeCache(body) => self.purge(&body).await,
            Wish::AddCore(body) => self.add_core(&body).await,
            Wish::Array(wish) => self.change_array(&wish).await,
            Wish::RemoveCore(body) => self.remove_core(&body).await,
            Wish::StartRecording(body) => {
                let started = self.recording.start(&body.output);
                started.map(|()| json!({ "output": body.output }))
            }
            Wish::StopRecording => {
                self.recording.stop().await.and_then(|summary| Ok(serde_json::to_value(summary)?))
            }
            Wish::Look(body) => {
                let looked = self.looks.look(&self.runtime, &body).await;
                looked.and_then(|summary| Ok(serde_json::to_value(summary)?))
            }
            Wish::Stop(_) => unreachable!("a stop ends the loop itself"),
        };
        granted.map_err(Refusal::from)
    }

    pub fn pool(&self) -> BufferPool {
        self.pool.clone()
    }

    pub fn status(&self) -> Result<Value> {
        let mut status = serde_json::to_value(self.volume.status())?;
        let report = self.server.report();
        let exports: Vec<_> = self.listeners.iter().map(|listener| listener.address()).collect();
        let clients = report.connections.iter().map(|client| {
            json!({ "peer": client.peer, "in_flight": client.in_flight,
                    "requests": client.totals.requests })
        });
        status["served"] = true.into();
        status["exports"] = exports.into();
        status["clients"] = clients.collect();
        status["recording"] = serde_json::to_value(self.recording.output())?;
        Ok(status)
    }

    fn stats(&self) -> Result<Value> {
        let report = self.volume.report();
        let first = report.cache.as_ref().or(report.tier.as_ref());
        let counted_s = first.map(|cache| cache.counted_s);
        let mut stats = serde_json::to_value(report)?;
        stats["name"] = self.volume.description().name.into();
        if let Some(counted_s) = counted_s {
            let since = SystemTime::now() - Duration::from_secs_f64(counted_s);
            stats["counted_since"] = utc(since).into();
        }
        Ok(stats)
    }

    /// What was set outlives the daemon.
    async fn set(&self, changes: &[SettingChange], flush: bool) -> Result<Value> {
        let outcome = match flush {
            true => self.volume.set_and_clean(changes).await,
            false => self.volume.set(changes),
        };
        // Where only the cleaning failed the settings hold.
        self.places.save(&self.volume.description())?;
        outcome.map_err(|error| match error {
            SetError::Setting(error) => Failure::usage(error),
            error => Failure::of(error, SetError::is_refusal),
        })?;
        self.status()
    }

    async fn flush(&self) -> Result<Value> {
        let cleaned_bytes = self.volume.clean_all().await?;
        Ok(json!({ "cleaned_bytes": cleaned_bytes }))
    }

    /// Clients finish first: what they were told is done is then in the volume.
    async fn stop(&self, flush: bool) -> Result<()> {
        if self.looks.output().is_some() {
            // Whoever looks is told.
            let _ = self.looks.stop().await;
        }
        if self.recording.output().is_some() {
            self.recording.stop().await?;
        }
        if flush {
            self.flush().await?;
        }
        self.is_closed.set(true);
        let served = self.server.stop().await;
        if self.volume.is_taken_over() {
            // Nothing can be flushed here any more, as the alert says; what is dirty is not ours.
            return Ok(());
        }
        let context =
            "its daemon ends all the same, and the next start takes up what the cache holds";
        served.context(context)?;
        self.volume.stop().await.context(context)?;
        if let Some(cache) = self.volume.status().cache {
            let name = self.volume.description().name;
            if let Err(error) = self.places.note_left(&name, cache.unsafe_bytes()) {
                eprintln!("headpond: note: {error:#}: `status` will not know what is dirty");
            }
        }
        Ok(())
    }
}

fn open_devices(opener: &Opener, description: &Description) -> Result<Devices> {
    let open = |name: &str| -> Result<Rc<dyn BlockDevice>> { opener.open(&name.parse()?) };
    let mut devices = Devices::default();
    if let Some(tier) = &description.tier {
        match open(&tier.device) {
            Ok(device) => devices.tier = Some(device),
            // It begins empty anyhow.
            Err(error) => {
                devices.absent.push(format!("tier {}: {}", tier.device, told(&error)).into());
            }
        }
    }
    if let Some(cache) = &description.cache {
        for word in cache.devices() {
            match open(word) {
                Ok(device) if cache.mirror.is_some() => devices.copies.push(device),
                Ok(device) => devices.cache = Some(device),
                Err(error) => devices.absent.push(format!("cache {word}: {}", told(&error)).into()),
            }
        }
    }
    for member in description.members() {
        match open(member) {
            Ok(device) => devices.members.push(device),
            // The array decides whether it can do without.
            Err(error) => {
                let name = member.parse::<DeviceSpec>()?.device_name();
                devices.absent.push(Note::of_member(name, told(&error)));
            }
        }
    }
    for journal in description.journals() {
        match open(journal) {
            Ok(device) => devices.journals.push(device),
            Err(error) => devices.absent.push(format!("stripe journal: {}", told(&error)).into()),
        }
    }
    Ok(devices)
}

fn listen(
    places: &Places,
    ring: &Ring,
    description: &Description,
) -> Result<Vec<Rc<dyn Listener>>> {
    if description.exports.is_empty() {
        let nbd = format!("unix:{}", places.nbd_socket(&description.name)?.display());
        return Ok(vec![listen_at(ring, &ExportDescription { nbd, insecure: false })?]);
    }
    description.exports.iter().map(|export| listen_at(ring, export)).collect()
}

fn listen_at(ring: &Ring, export: &ExportDescription) -> Result<Rc<dyn Listener>> {
    let listener = match export::address(export)? {
        Address::Unix(path) => SocketListener::bind_unix(ring, &path),
        Address::Tcp(address) => SocketListener::bind_tcp(ring, address),
    };
    Ok(Rc::new(listener.with_context(|| format!("cannot listen at {}", export.nbd))?))
}

/// Keeps a refusal for `status`, with what is known of the risk.
fn refused(places: &Places, name: &str, error: &OpenError, absent: &[Note]) -> anyhow::Error {
    let mut alert = error.alert(name);
    if error.is_about_the_cache() {
        alert.at_risk = Risk::of_left(places.left_dirty_bytes(name), alert.at_risk);
    }
    // Which devices they are that are missing, an array cannot say.
    absent.iter().for_each(|note| alert.happened += &format!("; {}", note.text()));
    places.note_refusal(name, &alert);
    Failure::refused(alert)
}
