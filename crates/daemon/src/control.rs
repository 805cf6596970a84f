//! The control thread: HTTP on a Unix socket, and signals.
//!
//! **Invariants**
//! - This thread never touches the volume; it only sends messages. It watches the data
//!   thread by the [`Pulse`].
//! - The resources of a client are bounded: connections, and the time for a request to arrive.
//!   Those who may only look take no connection from those who may change.

mod asked;
mod peer;
mod routes;

use super::command::{Command, Message, Reply};
use super::events::Events;
use super::pulse::Pulse;
use crate::log;
use anyhow::{Context, Result};
use asked::Asked;
use axum::{Extension, Router};
use headpond_api::Refusal;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::readers::Readers;
use headpond_api::requests::StopBody;
use headpond_block::Runtime;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use peer::Peer;
use routes::{routes, without_room};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Requests in progress at the end are answered within this time, or not at all.
const ANSWERS_MAX: Duration = Duration::from_secs(10);
const LOOKED_EVERY: Duration = Duration::from_millis(2);
/// Connections at a time, of those who may change something and of those who may only look; some
/// more get an error, and further ones are closed.
const CONNECTIONS_MAX: usize = 64;
const LOOKERS_MAX: usize = 32;
const REFUSED_MAX: usize = 64;
/// Commands in progress at a time; the other connections are for `GET`.
const COMMANDS_MAX: usize = 48;
/// Timeout for the head of a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Timeout of the data thread for a `GET`, which then gets an error.
const LOOK_TIME_MAX: Duration = Duration::from_millis(1500);
/// For the last line of the log.
const LOG_TIME: Duration = Duration::from_secs(1);
/// Delay after a failed accept, such as for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The control thread, while it runs.
pub struct Control {
    thread: JoinHandle<Result<()>>,
    ended: oneshot::Sender<()>,
}

/// The data thread as the control thread sees it. Cloning shares the limits.
#[derive(Clone)]
pub struct DataThread {
    volume: Arc<str>,
    messages: mpsc::Sender<Message>,
    pulse: Arc<Pulse>,
    events: Events,
    permits: Arc<Semaphore>,
}

impl Control {
    /// Listens on `socket`, for its owner and the readers, and starts the thread.
    ///
    /// # Errors
    /// Where the socket cannot be made.
    pub fn start(
        socket: &Path,
        readers: Readers,
        volume: &str,
        messages: mpsc::Sender<Message>,
        pulse: Arc<Pulse>,
        events: Events,
    ) -> Result<Self> {
        let listener = listen(socket, readers)?;
        let (ended, wait) = oneshot::channel();
        let permits = Arc::new(Semaphore::new(COMMANDS_MAX));
        let data = DataThread { volume: volume.into(), messages, pulse, events, permits };
        let left = socket.to_owned();
        let serve = move || run(listener, &left, data, wait);
        let thread = std::thread::Builder::new().name("control".into()).spawn(serve)?;
        Ok(Self { thread, ended })
    }

    /// Delivers pending answers for a limited time, and ends the thread. The data thread may have
    /// to give them, so it must not be blocked.
    ///
    /// # Errors
    /// What ended the thread early.
    pub async fn stop(self, runtime: &Runtime) -> Result<()> {
        // The thread may have ended already.
        let _ = self.ended.send(());
        let end = runtime.now() + ANSWERS_MAX;
        while !self.thread.is_finished() {
            if runtime.now() > end {
                return Ok(());
            }
            runtime.sleep(LOOKED_EVERY).await;
        }
        self.thread.join().expect("the control thread does not panic")
    }
}

impl DataThread {
    /// Executes a command, without a timeout.
    pub async fn execute<A>(&self, make: impl FnOnce(Reply<A>) -> Command) -> Result<A, Refusal> {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return Err(failed(format!(
                "{COMMANDS_MAX} commands wait for {} already: retry when one has ended",
                self.volume
            )));
        };
        self.deliver(make, Some(permit)).await
    }

    /// The same for read-only requests: with a timeout for a thread that does not answer.
    pub async fn look<A>(&self, make: impl FnOnce(Reply<A>) -> Command) -> Result<A, Refusal> {
        match tokio::time::timeout(LOOK_TIME_MAX, self.send(make)).await {
            Ok(answer) => answer,
            Err(_) => {
                let error = format!("{} {}", self.volume, self.silence());
                Err(Refusal { error, exit: Exit::NotServed as u8 })
            }
        }
    }

    /// The same without the limit on waiting commands.
    pub async fn send<A>(&self, make: impl FnOnce(Reply<A>) -> Command) -> Result<A, Refusal> {
        self.deliver(make, None).await
    }

    async fn deliver<A>(
        &self,
        make: impl FnOnce(Reply<A>) -> Command,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<A, Refusal> {
        let gone = || {
            let error = "the volume is being stopped".into();
            Refusal { error, exit: Exit::NotServed as u8 }
        };
        let (reply, answer) = oneshot::channel();
        let message = Message { command: make(reply), permit };
        self.messages.send(message).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// The outcome of a command, whose event is told.
    fn told<A>(&self, asked: Asked, outcome: Result<A, Refusal>) -> Result<A, Refusal> {
        asked.ended(&outcome).into_iter().for_each(|event| self.events.tell(event));
        outcome
    }

    /// Describes how long the data thread has not answered, and why, if known.
    fn silence(&self) -> String {
        let seconds = self.pulse.silent_for().max(LOOK_TIME_MAX).as_secs_f64();
        let mut text = format!("has not answered for {seconds:.1} s");
        if let Some(what) = self.pulse.waits_for() {
            text += &format!("; it is being stopped and waits for {what}");
        }
        text
    }
}

fn failed(error: String) -> Refusal {
    Refusal { error, exit: Exit::Error as u8 }
}

/// A socket for its owner and the readers. A stale socket file is removed.
fn listen(socket: &Path, readers: Readers) -> Result<std::os::unix::net::UnixListener> {
    let shown = socket.display();
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(Failure::refused(format!("another daemon answers on {shown}: stop it first")));
    }
    if socket.exists() {
        std::fs::remove_file(socket).with_context(|| format!("cannot remove {shown}"))?;
    }
    let listener = std::os::unix::net::UnixListener::bind(socket)
        .with_context(|| format!("cannot listen on {shown}"))?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    if let Err(error) = readers.open_socket(socket) {
        tracing::warn!("{shown} cannot be given to its group: only root may look: {error}");
    }
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn run(
    listener: std::os::unix::net::UnixListener,
    socket: &Path,
    data: DataThread,
    ended: oneshot::Receiver<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = UnixListener::from_std(listener)?;
        tokio::spawn(heed_signals(data.clone()));
        accept(listener, socket, data, ended).await;
        Ok(())
    })
}

/// Serves connections until the end, and then completes pending requests.
async fn accept(
    listener: UnixListener,
    socket: &Path,
    data: DataThread,
    mut ended: oneshot::Receiver<()>,
) {
    let admission = Admission::new(data);
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            _ = &mut ended => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let peer = Peer::of(&stream);
                // Otherwise it is closed.
                if let Some((router, permit)) = admission.admit(peer) {
                    connections.spawn(serve(stream, peer, router, permit, stopping.clone()));
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    // A socket that stays behind is that of a daemon which was killed. It is removed while this one
    // still listens: no other daemon's is there.
    let _ = std::fs::remove_file(socket);
    // Without a connection there is no receiver.
    let _ = stop.send(true);
    connections.join_all().await;
}

/// What a connection is answered by: the operations, or that there is no room for it.
struct Admission {
    operations: Router,
    changers: Room,
    lookers: Room,
    refused: Arc<Semaphore>,
}

struct Room {
    permits: Arc<Semaphore>,
    full: Router,
}

impl Admission {
    fn new(data: DataThread) -> Self {
        let room =
            |most| Room { permits: Arc::new(Semaphore::new(most)), full: without_room(most) };
        Self {
            operations: routes(data),
            changers: room(CONNECTIONS_MAX),
            lookers: room(LOOKERS_MAX),
            refused: Arc::new(Semaphore::new(REFUSED_MAX)),
        }
    }

    fn admit(&self, peer: Option<Peer>) -> Option<(Router, OwnedSemaphorePermit)> {
        let may_change = peer.as_ref().is_some_and(Peer::may_change);
        let room = if may_change { &self.changers } else { &self.lookers };
        if let Ok(permit) = Arc::clone(&room.permits).try_acquire_owned() {
            return Some((self.operations.clone(), permit));
        }
        let permit = Arc::clone(&self.refused).try_acquire_owned().ok()?;
        Some((room.full.clone(), permit))
    }
}

/// Serves a connection; each of its requests says who it is from.
async fn serve(
    stream: UnixStream,
    peer: Option<Peer>,
    router: Router,
    _permit: OwnedSemaphorePermit,
    mut stopping: watch::Receiver<bool>,
) {
    let router = match peer {
        Some(peer) => router.layer(Extension(peer)),
        None => router,
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // A client that disconnects is not an error.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// SIGTERM and SIGINT shut the daemon down cleanly, despite clients and commands in progress; a
/// second one ends it immediately, as a kill does. SIGHUP changes nothing.
async fn heed_signals(data: DataThread) {
    let (Ok(mut term), Ok(mut interrupt), Ok(mut hangup)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::hangup()),
    ) else {
        return;
    };
    let mut is_ending = false;
    loop {
        tokio::select! {
            _ = hangup.recv() => {
                tracing::info!("SIGHUP is ignored: `headpond set` changes settings");
                continue;
            }
            _ = term.recv() => tracing::info!("SIGTERM: the volume is to be stopped"),
            _ = interrupt.recv() => tracing::info!("SIGINT: the volume is to be stopped"),
        }
        if std::mem::replace(&mut is_ending, true) {
            end_at_once(&data);
        }
        let data = data.clone();
        tokio::spawn(async move {
            let body = StopBody { force: true, ..StopBody::default() };
            let stop = |reply| Command::Stop(body, reply);
            if let Err(refusal) = data.send(stop).await {
                let error = refusal.error;
                tracing::error!(
                    "not stopped: {error}; another signal ends the daemon as a kill does"
                );
            }
        });
    }
}

fn end_at_once(data: &DataThread) -> ! {
    let stuck = match data.pulse.waits_for() {
        Some(what) => format!("it waited for {what}"),
        None => format!("{} {}", data.volume, data.silence()),
    };
    tracing::error!(
        "ended by a second signal before the volume was closed: {stuck}; the next start replays \
         the cache's log"
    );
    log::await_written(LOG_TIME);
    std::process::exit(i32::from(Exit::Error as u8))
}

#[cfg(test)]
impl DataThread {
    /// Of a volume that is being stopped.
    fn ending() -> Self {
        let (messages, _) = mpsc::channel(1);
        let (pulse, permits) = (Arc::new(Pulse::new()), Arc::new(Semaphore::new(COMMANDS_MAX)));
        Self { volume: "v".into(), messages, pulse, events: Events::unheard(), permits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_may_only_look_take_no_connection_from_those_who_may_change() {
        let admission = Admission::new(DataThread::ending());
        let peer = |uid| Some(Peer { uid, gid: uid, pid: None });
        let foreign = peer(rustix::process::geteuid().as_raw() + 4711);
        let open = |peer| (0..200).filter_map(|_| admission.admit(peer)).collect::<Vec<_>>();
        let lookers = open(foreign);
        assert_eq!(lookers.len(), LOOKERS_MAX + REFUSED_MAX);
        assert_eq!(admission.changers.permits.available_permits(), CONNECTIONS_MAX);
        assert_eq!(open(peer(0)).len(), CONNECTIONS_MAX);
        drop(lookers);
        assert_eq!(open(None).len(), LOOKERS_MAX + REFUSED_MAX, "one that is not known looks");
    }
}
