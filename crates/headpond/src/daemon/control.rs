//! The control API: HTTP and JSON on a Unix socket, served by a thread of its own.
//!
//! `GET /v1/status` and `GET /v1/stats` tell; a `POST` to another path is a wish: `/v1/settings`,
//! `/v1/flush`, `/v1/stop`, and by what they concern `/v1/stats/...`, `/v1/recording/...`,
//! `/v1/look`, `/v1/cache/...`, `/v1/core/...` and `/v1/array/...` (`array_routes`). A refusal is
//! `{"error", "exit"}`.
//!
//! **Invariants**: this thread never touches the volume; it only sends messages.

use super::message::{
    AddCoreBody, Answer, ArrayWish, AttachBody, DetachBody, LookBody, Message, PurgeBody,
    RecordBody, RemoveCoreBody, ResizeBody, SetBody, StopBody, Wish,
};
use crate::client::Refusal;
use crate::outcome::{Exit, Failure};
use anyhow::{Context, Result};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use headpond_block::Runtime;
use serde::de::DeserializeOwned;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// What was asked before the end is answered within this time, or not at all.
const ANSWERS_MAX: Duration = Duration::from_secs(10);
const LOOKED_EVERY: Duration = Duration::from_millis(2);

/// The control thread, while it runs.
pub struct Control {
    thread: JoinHandle<Result<()>>,
    ended: oneshot::Sender<()>,
}

impl Control {
    /// Listens on `socket` and starts the thread.
    ///
    /// # Errors
    /// Where the socket cannot be made.
    pub fn start(socket: &Path, messages: mpsc::Sender<Message>) -> Result<Self> {
        let listener = listen(socket)?;
        let (ended, wait) = oneshot::channel();
        let serve = move || run(listener, messages, wait);
        let thread = std::thread::Builder::new().name("control".into()).spawn(serve)?;
        Ok(Self { thread, ended })
    }

    /// Lets answers under way be delivered, for a while, and ends the thread. They may be the data
    /// thread's to give, which therefore must not be blocked.
    ///
    /// # Errors
    /// What ended the thread early.
    pub async fn stop(self, runtime: &Runtime) -> Result<()> {
        // The thread may have ended by itself; then nobody listens.
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

/// A socket that only its owner may use. A file that no daemon answers on is left over and removed.
fn listen(socket: &Path) -> Result<std::os::unix::net::UnixListener> {
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
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn run(
    listener: std::os::unix::net::UnixListener,
    messages: mpsc::Sender<Message>,
    ended: oneshot::Receiver<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = UnixListener::from_std(listener)?;
        tokio::spawn(heed_signals(messages.clone()));
        let served = axum::serve(listener, routes(messages));
        served.with_graceful_shutdown(async { drop(ended.await) }).await?;
        Ok(())
    })
}

/// SIGTERM and SIGINT stop the volume as `headpond stop` does; where that does not end, another one
/// ends the daemon as a kill does. SIGHUP finds nothing to read again, and changes nothing.
async fn heed_signals(messages: mpsc::Sender<Message>) {
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
                eprintln!("headpond: note: SIGHUP: nothing is read again; `headpond set` changes settings");
                continue;
            }
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        if std::mem::replace(&mut is_ending, true) {
            eprintln!(
                "headpond: error: ended by a second signal, before the volume had stopped: the next \
                 start takes up what the cache device holds"
            );
            std::process::exit(i32::from(Exit::Error as u8));
        }
        let messages = messages.clone();
        tokio::spawn(async move {
            if let Err(refusal) = ask(&messages, Wish::Stop(StopBody { flush: false })).await {
                eprintln!(
                    "headpond: error: not stopped: {}; another signal ends the daemon as a kill does",
                    refusal.error
                );
            }
        });
    }
}

fn routes(messages: mpsc::Sender<Message>) -> Router {
    type Sender = State<mpsc::Sender<Message>>;
    let status = async |State(to): Sender| respond(ask(&to, Wish::Status).await);
    let stats = async |State(to): Sender| respond(ask(&to, Wish::Stats).await);
    let reset = async |State(to): Sender| respond(ask(&to, Wish::ResetStats).await);
    let flush = async |State(to): Sender| respond(ask(&to, Wish::Flush).await);
    let start = async |State(to): Sender, Json(body): Json<RecordBody>| {
        respond(ask(&to, Wish::StartRecording(body)).await)
    };
    let end = async |State(to): Sender| respond(ask(&to, Wish::StopRecording).await);
    let look = async |State(to): Sender, Json(body): Json<LookBody>| {
        respond(ask(&to, Wish::Look(body)).await)
    };
    let stop = async |State(to): Sender, Json(body): Json<StopBody>| {
        respond(ask(&to, Wish::Stop(body)).await)
    };
    let scrub = async |State(to): Sender| respond(ask(&to, Wish::ScrubCache).await);
    let attach = async |State(to): Sender, Json(body): Json<AttachBody>| {
        respond(ask(&to, Wish::AttachCache(body)).await)
    };
    let detach = async |State(to): Sender, Json(body): Json<DetachBody>| {
        respond(ask(&to, Wish::DetachCache(body)).await)
    };
    let replace = async |State(to): Sender, Json(body): Json<AttachBody>| {
        respond(ask(&to, Wish::ReplaceCache(body)).await)
    };
    let resize = async |State(to): Sender, Json(body): Json<ResizeBody>| {
        respond(ask(&to, Wish::ResizeCache(body)).await)
    };
    let purge = async |State(to): Sender, Json(body): Json<PurgeBody>| {
        respond(ask(&to, Wish::PurgeCache(body)).await)
    };
    let add_core = async |State(to): Sender, Json(body): Json<AddCoreBody>| {
        respond(ask(&to, Wish::AddCore(body)).await)
    };
    let remove_core = async |State(to): Sender, Json(body): Json<RemoveCoreBody>| {
        respond(ask(&to, Wish::RemoveCore(body)).await)
    };
    let set = async |State(to): Sender, Json(body): Json<SetBody>| {
        let changes: Result<Vec<_>, _> = body.changes.iter().map(|text| text.parse()).collect();
        match changes {
            Ok(changes) => respond(ask(&to, Wish::Set { changes, flush: body.flush }).await),
            Err(error) => respond(Err(usage(&error))),
        }
    };
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/stats", get(stats))
        .route("/v1/stats/reset", post(reset))
        .route("/v1/settings", post(set))
        .route("/v1/flush", post(flush))
        .route("/v1/cache/attach", post(attach))
        .route("/v1/cache/scrub", post(scrub))
        .route("/v1/cache/detach", post(detach))
        .route("/v1/cache/replace", post(replace))
        .route("/v1/cache/resize", post(resize))
        .route("/v1/cache/purge", post(purge))
        .route("/v1/core/add", post(add_core))
        .route("/v1/core/remove", post(remove_core))
        .merge(array_routes())
        .route("/v1/stop", post(stop))
        .route("/v1/recording/start", post(start))
        .route("/v1/recording/stop", post(end))
        .route("/v1/look", post(look))
        .with_state(messages)
}

/// What concerns the members of an array, and the work on it beside the requests.
fn array_routes() -> Router<mpsc::Sender<Message>> {
    fn wish<B: DeserializeOwned + Send + 'static>(
        make: fn(B) -> ArrayWish,
    ) -> MethodRouter<mpsc::Sender<Message>> {
        post(async move |State(to): State<mpsc::Sender<Message>>, Json(body): Json<B>| {
            respond(ask(&to, Wish::Array(make(body))).await)
        })
    }
    Router::new()
        .route("/v1/array/add-spare", wish(ArrayWish::AddSpare))
        .route("/v1/array/re-add", wish(ArrayWish::ReAdd))
        .route("/v1/array/replace", wish(ArrayWish::Replace))
        .route("/v1/array/grow", wish(ArrayWish::Grow))
        .route("/v1/array/fail", wish(ArrayWish::Fail))
        .route("/v1/array/remove", wish(ArrayWish::Remove))
        .route("/v1/array/drop-copy", wish(ArrayWish::DropCopy))
        .route("/v1/array/set-journal", wish(ArrayWish::SetJournal))
        .route("/v1/array/drop-journal", wish(ArrayWish::DropJournal))
        .route("/v1/array/scrub", wish(ArrayWish::Scrub))
        .route("/v1/array/pause", wish(ArrayWish::Pause))
        .route("/v1/array/resume", wish(ArrayWish::Resume))
        .route("/v1/array/pace", wish(ArrayWish::Pace))
}

async fn ask(messages: &mpsc::Sender<Message>, wish: Wish) -> Answer {
    let gone = || Refusal { error: "the volume is being stopped".into(), exit: Exit::Error as u8 };
    let (reply, answer) = oneshot::channel();
    messages.send(Message { wish, reply }).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

fn respond(answer: Answer) -> Response {
    match answer {
        Ok(document) => Json(document).into_response(),
        Err(refusal) => {
            let is_conflict = refusal.exit == Exit::Refused as u8;
            let is_usage = refusal.exit == Exit::Usage as u8;
            let status = match (is_conflict, is_usage) {
                (true, _) => StatusCode::CONFLICT,
                (_, true) => StatusCode::BAD_REQUEST,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, Json(refusal)).into_response()
        }
    }
}

fn usage(error: &impl ToString) -> Refusal {
    Refusal { error: error.to_string(), exit: Exit::Usage as u8 }
}
