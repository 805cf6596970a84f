//! The metrics of a machine on a TCP address, which a monitoring system scrapes.
//!
//! It is a process of its own, which needs no right but to look (`headpond metrics --listen`): what
//! is open to the network is not the process that has the data.
//!
//! 1. A connection sends one request; 2. [`Access`] judges it; 3. it gets the newest text, which is
//!    a second old at most.
//!
//! **Invariants**
//! - The resources of clients are bounded: connections, the size and the time of a request, and the
//!   time for its answer. A client that is slow delays no other.
//! - However often clients ask, the volumes are asked once a second.

mod access;

pub use access::{Access, Token};
use anyhow::Result;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use headpond_api::operations::{METRICS_PATH, METRICS_TYPE};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinError;

/// At a time; further ones are closed.
const CONNECTIONS_MAX: usize = 16;
/// For the head of a request, and for all of a connection.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);
/// For the head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Answers within this time have the same figures.
const SAME_FOR: Duration = Duration::from_secs(1);
/// After a failed accept, such as for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Asks all volumes, blocking.
type Scrape = Arc<dyn Fn() -> String + Send + Sync>;

/// A text, and when it came.
type Answer = (Instant, Arc<str>);

/// The newest answer.
#[derive(Clone)]
struct Newest {
    scrape: Scrape,
    text: Arc<Mutex<Option<Answer>>>,
}

/// Serves what `scrape` returns until the process ends.
///
/// # Errors
/// Where the system gives no runtime.
pub fn serve(
    listener: std::net::TcpListener,
    access: Access,
    scrape: impl Fn() -> String + Send + Sync + 'static,
) -> Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = TcpListener::from_std(listener)?;
        let router = router(access, Arc::new(scrape));
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
            let router = router.clone();
            tokio::spawn(async move {
                // A client that is too slow, or leaves, is not an error.
                let _ = tokio::time::timeout(CONNECTION_TIME_MAX, answer(stream, router)).await;
                drop(permit);
            });
        }
    })
}

fn router(access: Access, scrape: Scrape) -> Router {
    let no_path = async || (StatusCode::NOT_FOUND, "here is /metrics alone\n");
    let no_method = async || {
        (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")], "metrics are asked for by GET\n")
    };
    Router::new()
        .route(METRICS_PATH, get(newest))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::new(access), judge))
        .with_state(Newest { scrape, text: Arc::default() })
}

/// One request: a client that keeps its connection would keep others out.
async fn answer(stream: TcpStream, router: Router) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    builder.keep_alive(false).max_buf_size(HEAD_BYTES_MAX);
    let service = TowerToHyperService::new(router);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn judge(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    match access.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err((StatusCode::UNAUTHORIZED, why)) => {
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], why).into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

/// A request that comes while the volumes are being asked waits for that answer.
async fn newest(State(Newest { scrape, text }): State<Newest>) -> Response {
    let mut newest = text.lock_owned().await;
    let known = newest.as_ref().filter(|(at, _)| at.elapsed() < SAME_FOR);
    let known = known.map(|(_, text)| Arc::clone(text));
    let text = match known {
        Some(text) => text,
        None => {
            // It ends also for a client that leaves: the next one is not to ask beside it.
            let asking = tokio::spawn(async move {
                let text: Arc<str> = tokio::task::spawn_blocking(move || scrape()).await?.into();
                // It was as long in coming as the slowest volume.
                *newest = Some((Instant::now(), Arc::clone(&text)));
                Ok::<_, JoinError>(text)
            });
            let Ok(Ok(text)) = asking.await else {
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            };
            text
        }
    };
    ([(CONTENT_TYPE, METRICS_TYPE)], text.to_string()).into_response()
}
