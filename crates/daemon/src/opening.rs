//! From a description to a volume that is served: devices, volume, exports, control socket.
//!
//! All of this happens before there is a client: it may wait for files.

use super::assembly::{Assembly, assemble};
use super::attached::{Attachments, Means};
use super::block_devices::BlockDevices;
use super::clients;
use super::control::Control;
use super::cores::offer;
use super::events::{EventThreads, Events, raised};
use super::files::Files;
use super::loading::{ProgressFile, look, parts};
use super::pulse::Pulse;
use super::recording::Recording;
use super::service::{ControlService, End};
use super::serving::Data;
use super::systemd::{Notifier, Notifying, PROGRESS_TIME};
use crate::device::{DeviceSpec, Opener};
use crate::export::{self, Address};
use crate::{host, log, threads};
use anyhow::{Context, Result};
use headpond_api::Client;
use headpond_api::config::SettingDefaults;
use headpond_api::events::{Event, EventKind, Severity};
use headpond_api::outcome::{Exit, Failure, told};
use headpond_api::place::Places;
use headpond_block::{BlockDevice, BufferPool, Listener, LocalFuture, PoolConfig, Runtime, memory};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server};
use headpond_trace::CaptureDevice;
use headpond_uring::{Ring, RingConfig, SocketListener, run_with_pool};
use headpond_volume::{
    Alert, Description, DescriptionKeeper, ExportDescription, LoadWatch, Note, OpenError,
    OpenOptions, Risk, Tolerance, Volume,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Commands that may wait for the data thread.
const MESSAGES_MAX: usize = 64;
/// For requests in flight when memory is exhausted: twice the maximum that the cleaner has in
/// flight.
const RESERVE_BYTES: usize = 32 << 20;
/// From one look for missing devices to the next.
const WAIT_PAUSE: Duration = Duration::from_secs(1);
/// As the first thread usually has.
const STACK_BYTES: usize = 8 << 20;

/// How a volume is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    pub tolerance: Tolerance,
    /// Of a cache or tier that is attached.
    pub defaults: SettingDefaults,
    /// Without an administrator: how long devices are waited for that are missing. After that a
    /// start without them has to be safe, or they are waited for on; members that come later are
    /// resynced.
    pub wait_for_devices: Option<Duration>,
    /// For connections; where nothing is said, as many as the machine suggests.
    pub threads: Option<u32>,
}

/// Serves a volume until it is stopped.
///
/// # Errors
/// If it cannot be served, or the shutdown is not clean.
pub fn serve(places: &Places, description: Description, options: ServeOptions) -> Result<Exit> {
    let name = &description.name;
    if Client::of(places, name)?.is_served() {
        return Err(Failure::refused(format!(
            "{name} is being served already: `headpond status {name}` shows it"
        )));
    }
    export::check_kernel(&description.exports)?;
    if look(places, name).is_some() {
        return Err(Failure::refused(format!("{name} is being loaded by another daemon already")));
    }
    places.make_run_folder()?;
    if let Err(error) = places.open_to_readers(name) {
        tracing::warn!("its group cannot look at {name}: {}", told(&error));
    }
    memory::set_aside(RESERVE_BYTES).context("no memory to set aside")?;
    log::set_volume(name);
    let threads = EventThreads::begin(places, name)?;
    let notifying = Notifying::begin().context("cannot start a thread")?;
    let notifier = notifying.notifier();
    // The stack of the first thread grows on demand, which without memory ends the process; that of
    // another thread is allocated at its start.
    let thread = std::thread::Builder::new().name("data".into()).stack_size(STACK_BYTES);
    let served = std::thread::scope(|scope| {
        let data =
            thread.spawn_scoped(scope, || run(places, description, options, notifier, &threads))?;
        data.join().expect("the data thread does not panic")
    });
    if let Err(error) = &served {
        notifier.status(&told(error));
    }
    served
}

/// The data thread.
fn run(
    places: &Places,
    description: Description,
    options: ServeOptions,
    notifier: &Notifier,
    event_threads: &EventThreads,
) -> Result<Exit> {
    let pool = BufferPool::new(&PoolConfig::default());
    let lend = pool.clone();
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let opening =
            Opening { places, options, ring, runtime, pool: lend, notifier, event_threads };
        let data = Data::open(opening, description).await.inspect_err(|error| {
            let failed = Event::new(EventKind::StartFailed, Severity::Error, told(error));
            event_threads.events().tell(failed);
        })?;
        data.serve().await
    })?
}

/// What a volume is opened with.
struct Opening<'a> {
    places: &'a Places,
    options: ServeOptions,
    ring: Ring,
    runtime: Runtime,
    pool: BufferPool,
    notifier: &'a Notifier,
    event_threads: &'a EventThreads,
}

impl Data {
    async fn open(opening: Opening<'_>, described: Description) -> Result<Self> {
        let Opening { places, options, ring, runtime, pool, notifier, event_threads } = opening;
        let events = event_threads.events();
        let (to_data, messages) = mpsc::channel(MESSAGES_MAX);
        let opener = Opener::new(ring.clone(), runtime.clone());
        let start = Start {
            places,
            opener: &opener,
            runtime: &runtime,
            pool: &pool,
            options: &options,
            notifier,
            events,
        };
        let (volume, description) = start.until_open(&described).await?;
        places.forget_refusal(&description.name);
        // Before any client: from now on there may be dirty data.
        places.forget_left(&description.name)?;
        tell_of_start(event_threads, &volume);
        let files = Files::new(places.clone())?;
        keep_description(&volume, &files);
        save_if_changed(&volume, &described, &files).await;
        let volume = Rc::new(volume);
        let looked_at = Rc::new(CaptureDevice::new(volume.clone(), runtime.clone(), 0));
        let watched = Rc::new(CaptureDevice::new(looked_at.clone(), runtime.clone(), 0));
        let exports = Rc::new(Exports::new());
        offer_all(&exports, &volume, &watched, &description)?;
        let limits = limits(&description);
        let server = Server::new(runtime.clone(), pool.clone(), Rc::clone(&exports), limits);
        threads::start(&server, options.threads).context("cannot start a thread")?;
        let listeners = listen(places, &ring, &description)?;
        let lost = lost(places, &description.name, options.tolerance);
        let block_devices = BlockDevices::new(&runtime, &ring, events, lost);
        let pulse = Arc::new(Pulse::new());
        let recording = Rc::new(Recording::new(watched, description.name.clone()));
        let samples = Rc::new(Recording::new(looked_at, description.name.clone()));
        let means = Means::of(&server, &ring, &runtime, &files, events);
        let service = Rc::new(ControlService {
            volume,
            server: Rc::new(server),
            recording,
            samples,
            runtime: runtime.clone(),
            listeners,
            block_devices: Rc::new(block_devices),
            files,
            opener,
            exports,
            attachments: Attachments::take_over(places, &description.name, means, lost).await,
            pool,
            defaults: options.defaults,
            pulse: Arc::clone(&pulse),
            events: events.clone(),
            notifier: notifier.clone(),
            work: Rc::default(),
            end: End::default(),
        });
        keep_watch(&service);
        service.show_block_devices().await?;
        if options.wait_for_devices.is_some() {
            drop(runtime.spawn(Rc::clone(&service).await_members()));
        }
        notifier.watch(Arc::clone(&pulse));
        // Last, so that a volume whose control socket answers is being served.
        let socket = places.control_socket(&description.name)?;
        let readers = places.readers();
        let events = events.clone();
        let control = Control::start(&socket, readers, &description.name, to_data, pulse, events)?;
        Ok(Self { service, control, messages })
    }
}

async fn save_if_changed(volume: &Volume, described: &Description, files: &Files) {
    if volume.description() != *described
        && let Err(error) = files.save(volume.description()).await
    {
        tracing::warn!("{error:#}: what differs is told again at the next start");
    }
}

/// Of all clients.
fn limits(description: &Description) -> Limits {
    let memory_bytes_max = clients::memory_bytes(description.array.client_memory);
    Limits { memory_bytes_max, moves: threads::moves(), ..Limits::default() }
}

/// Why what the daemon before this one had acknowledged may be lost, if it may.
fn lost(places: &Places, volume: &str, tolerance: Tolerance) -> Option<&'static str> {
    if places.memory_mark(volume).exists() {
        Some("the daemon before this one ended with acknowledged writes in its memory alone")
    } else if tolerance != Tolerance::Careful {
        Some("the volume was started by force, which may have lost acknowledged writes")
    } else {
        None
    }
}

/// The volume, with what records its requests, and each further core.
fn offer_all(
    exports: &Exports,
    volume: &Rc<Volume>,
    watched: &Rc<CaptureDevice>,
    description: &Description,
) -> Result<()> {
    exports.add(Export::new(&description.name, watched.clone()))?;
    description.further_cores.iter().try_for_each(|core| offer(volume, exports, &core.name))
}

/// One volume being opened.
struct Start<'a> {
    places: &'a Places,
    opener: &'a Opener,
    runtime: &'a Runtime,
    pool: &'a BufferPool,
    options: &'a ServeOptions,
    notifier: &'a Notifier,
    events: &'a Events,
}

impl Start<'_> {
    /// Opens the volume, once its devices are there or nobody waits for them.
    async fn until_open(&self, described: &Description) -> Result<(Volume, Description)> {
        let begun = self.runtime.now();
        let mut told_last = String::new();
        loop {
            self.notifier.status("opening devices");
            let assembly = assemble(self.opener, self.runtime, described).await;
            let refusal = match (assembly, self.options.wait_for_devices) {
                (Ok(assembly), Some(wait))
                    if !assembly.lacking.is_empty()
                        && (self.runtime.now().since(begun) < wait
                            || assembly.lacks_more_than_members()) =>
                {
                    let what: Vec<&str> =
                        assembly.lacking.iter().map(|it| it.what.as_str()).collect();
                    Alert::waiting(&described.name, &what.join("; "))
                }
                (Ok(assembly), wait) => match self.open(assembly).await {
                    Err(NotOpened::Refused(alert)) if wait.is_some() => alert,
                    Err(error) => return Err(error.into()),
                    Ok(opened) => return Ok(opened),
                },
                (Err(error), _) => return Err(error),
            };
            self.places.note_refusal(&described.name, &refusal);
            let text = refusal.to_string();
            if text != told_last {
                self.events.tell(raised(&refusal));
                told_last = text;
            }
            self.notifier.status(&refusal.cause);
            self.notifier.extend(PROGRESS_TIME);
            self.runtime.sleep(WAIT_PAUSE).await;
        }
    }

    async fn open(&self, assembly: Assembly) -> Result<(Volume, Description), NotOpened> {
        let Assembly { description, devices, differences, .. } = assembly;
        differences.iter().for_each(|difference| tracing::warn!("{difference}"));
        let absent = devices.absent.clone();
        let options = OpenOptions {
            tolerance: self.options.tolerance,
            pool: self.pool.clone(),
            new_cache: Uuid::new_v4(),
            around_core: None,
            watch_load: Some(watch_load(self.places, &description.name, self.notifier)),
            claimant: Some(host::claimant(self.notifier)),
        };
        match Volume::open(self.runtime, &description, devices, options).await {
            Ok(volume) => Ok((volume, description)),
            Err(error) if error.is_refusal() => {
                Err(NotOpened::Refused(refused(self.places, &description.name, &error, &absent)))
            }
            Err(error) => Err(NotOpened::Failed(error)),
        }
    }
}

/// Why a volume is not open.
enum NotOpened {
    Refused(Alert),
    Failed(OpenError),
}

impl From<NotOpened> for anyhow::Error {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Refused(alert) => Failure::refused(alert),
            NotOpened::Failed(error) => error.into(),
        }
    }
}

/// Automatic changes, such as a spare that has replaced a member, are persistent too.
fn keep_description(volume: &Volume, files: &Files) {
    let files = files.clone();
    let keep = move |description: &Description| -> LocalFuture<'static, ()> {
        let saving = files.save(description.clone());
        Box::pin(async move {
            if let Err(error) = saving.await {
                tracing::error!("the description could not be saved: {error:#}");
            }
        })
    };
    let name_of = |word: &str| match word.parse::<DeviceSpec>() {
        Ok(spec) => spec.device_name(),
        Err(_) => word.to_owned(),
    };
    let (keep, name_of) = (Box::new(keep), Box::new(name_of));
    volume.keep_description(DescriptionKeeper { keep, name_of });
}

/// The data thread as seen by other threads.
fn keep_watch(service: &Rc<ControlService>) {
    let (pulse, runtime) = (Arc::clone(&service.pulse), service.runtime.clone());
    drop(service.runtime.spawn(async move { pulse.run(runtime).await }));
    let watched = Rc::clone(service);
    drop(service.runtime.spawn(async move { watched.tell_of_stop().await }));
    drop(service.runtime.spawn(Rc::clone(service).tell_changes()));
    drop(service.runtime.spawn(Rc::clone(&service.block_devices).keep_looking()));
}

/// That the volume is open, with what was noted meanwhile, and whether it had not been stopped.
fn tell_of_start(threads: &EventThreads, volume: &Volume) {
    let (events, notes) = (threads.events(), volume.warnings());
    if let Some(since) = &threads.left_since {
        let text = format!("the daemon before this one ended without a stop, after {since}");
        let event = Event::new(EventKind::UncleanShutdown, Severity::Warning, text);
        events.tell(event.with("notes", notes.clone()));
    }
    notes.iter().for_each(|note| tracing::warn!("{note}"));
    let text = format!("{} is open: {} bytes", volume.name(), volume.geometry().size_bytes);
    events.tell(Event::new(EventKind::VolumeStarted, Severity::Info, text).with("notes", notes));
}

/// Shows the progress of opening until it ends.
fn watch_load(places: &Places, name: &str, notifier: &Notifier) -> LoadWatch {
    let (teller, notifier) = (ProgressFile::new(places, name), notifier.clone());
    let slice = Cell::new(None);
    Rc::new(move |loading| {
        if slice.replace(Some(loading.slice)) != Some(loading.slice) {
            tracing::info!("reading the log of the cache{}", parts(&loading));
        }
        teller.tell(loading);
        notifier.loading(&loading);
    })
}

fn listen(
    places: &Places,
    ring: &Ring,
    description: &Description,
) -> Result<Vec<Rc<dyn Listener>>> {
    if description.exports.is_empty() {
        let address = format!("unix:{}", places.nbd_socket(&description.name)?.display());
        let export = ExportDescription { address, insecure: false };
        return Ok(listen_at(ring, &export)?.into_iter().collect());
    }
    let listeners = description.exports.iter().map(|export| listen_at(ring, export));
    listeners.filter_map(Result::transpose).collect()
}

/// None for a block device.
fn listen_at(ring: &Ring, export: &ExportDescription) -> Result<Option<Rc<dyn Listener>>> {
    let listener = match export::address(export)? {
        Address::Unix(path) => SocketListener::bind_unix(ring, &path),
        Address::Tcp(address) => SocketListener::bind_tcp(ring, address),
        Address::Ublk(_) => return Ok(None),
    };
    let listener = listener.with_context(|| format!("cannot listen at {}", export.address))?;
    Ok(Some(Rc::new(listener)))
}

/// Saves a refusal for `status`, with the known risk.
fn refused(places: &Places, name: &str, error: &OpenError, absent: &[Note]) -> Alert {
    let mut alert = error.alert(name);
    if error.is_about_the_cache() {
        alert.at_risk = Risk::of_left(places.left_dirty_bytes(name), alert.at_risk);
    }
    // An array does not know the names of missing devices.
    absent.iter().for_each(|note| alert.cause += &format!("; {}", note.text()));
    places.note_refusal(name, &alert);
    alert
}
