//! The control API over HTTP: the command of each operation, and its answer.
//!
//! **Invariants**
//! - For any error the answer is `{"schema", "error", "exit"}`.
//! - What is no `GET` is for root and the daemon's own user: [`authorize`] lies around all routes,
//!   so that none can be forgotten.

use super::DataThread;
use super::asked::Asked;
use super::peer::Peer;
use crate::command::{ArrayCommand, Command, Reply};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use headpond_api::Refusal;
use headpond_api::answers::{Status, Versioned};
use headpond_api::operations::{self as api, METRICS_PATH, METRICS_TYPE, Operation};
use headpond_api::outcome::Exit;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest body: rules of classes are the longest.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Timeout for its arrival.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// All operations.
pub fn routes(to: DataThread) -> Router {
    let no_path = async || refuse(StatusCode::NOT_FOUND, "no such path");
    let no_method =
        async || refuse(StatusCode::METHOD_NOT_ALLOWED, "this path needs another method");
    Routes::all()
        .router
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(authorize))
        .with_state(to)
}

/// Whoever may connect may look; a change needs a peer that is known and may change.
async fn authorize(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    if request.method().is_safe() || peer.as_ref().is_some_and(Peer::may_change) {
        return next.run(request).await;
    }
    let peer = peer.map_or("not known".to_owned(), |peer| peer.to_string());
    let operation = request.uri().path().trim_start_matches("/v1/").replace('/', " ");
    let error = format!(
        "{operation} needs root, or the user that runs the daemon; others may only look (this peer \
         is {peer})"
    );
    let refusal = Refusal { error, exit: Exit::Refused as u8 };
    (StatusCode::FORBIDDEN, Json(Versioned::new(refusal))).into_response()
}

/// The answer to a connection above this limit.
pub fn without_room(connections_max: usize) -> Router {
    let text = format!("{connections_max} control connections are open: retry later");
    let error = Versioned::new(Refusal { error: text, exit: Exit::Error as u8 });
    Router::new().fallback(async move || (StatusCode::SERVICE_UNAVAILABLE, Json(error.clone())))
}

#[derive(Default)]
struct Routes {
    router: Router<DataThread>,
    paths: Vec<&'static str>,
}

impl Routes {
    fn all() -> Self {
        Self::default()
            .look(api::STATUS, Command::Status)
            .look(api::STATS, Command::Stats)
            .metrics()
            .plain(api::RESET_STATS, Command::ResetStats)
            .command(api::CLEAR_ERRORS, Command::ClearErrors)
            .command(api::SET, Command::Set)
            .command(api::SET_EXPORTS, Command::SetExports)
            .command(api::ATTACH_DEVICE, Command::AttachDevice)
            .command(api::DETACH_DEVICE, Command::DetachDevice)
            .command(api::FLUSH, Command::Flush)
            .stop()
            .command(api::ATTACH_CACHE, Command::AttachCache)
            .command(api::DETACH_CACHE, Command::DetachCache)
            .command(api::REPLACE_CACHE, Command::ReplaceCache)
            .command(api::RESIZE_CACHE, Command::ResizeCache)
            .command(api::PURGE_CACHE, Command::PurgeCache)
            .plain(api::SCRUB_CACHE, Command::ScrubCache)
            .command(api::ADD_CORE, Command::AddCore)
            .command(api::REMOVE_CORE, Command::RemoveCore)
            .command(api::START_RECORDING, Command::StartRecording)
            .plain(api::STOP_RECORDING, Command::StopRecording)
            .command(api::SAMPLE, Command::Sample)
            .array(api::ADD_SPARE, ArrayCommand::AddSpare)
            .array(api::RE_ADD, ArrayCommand::ReAdd)
            .array(api::REPLACE, ArrayCommand::Replace)
            .array(api::GROW, ArrayCommand::Grow)
            .array(api::FAIL, ArrayCommand::Fail)
            .array(api::REMOVE, ArrayCommand::Remove)
            .array(api::DROP_COPY, ArrayCommand::DropCopy)
            .array(api::SET_JOURNAL, ArrayCommand::SetJournal)
            .array(api::DROP_JOURNAL, ArrayCommand::DropJournal)
            .array(api::SCRUB, ArrayCommand::Scrub)
            .array(api::PAUSE, ArrayCommand::Pause)
            .array(api::RESUME, ArrayCommand::Resume)
            .array(api::RATE, ArrayCommand::Rate)
    }

    fn at(mut self, path: &'static str, method: MethodRouter<DataThread>) -> Self {
        self.router = self.router.route(path, method);
        self.paths.push(path);
        self
    }

    /// A read-only operation, with a timeout.
    fn look<A>(self, operation: Operation<(), A>, make: fn(Reply<A>) -> Command) -> Self
    where
        A: Serialize + Send + 'static,
    {
        let handler = async move |State(to): State<DataThread>| respond(to.look(make).await);
        self.at(operation.path, get(handler))
    }

    /// Text, which is rendered here and not on the data thread.
    fn metrics(self) -> Self {
        let handler =
            async move |State(to): State<DataThread>| match to.look(Command::Metrics).await {
                Ok(snapshot) => ([(CONTENT_TYPE, METRICS_TYPE)], snapshot.render()).into_response(),
                refused => respond(refused.map(drop)),
            };
        self.at(METRICS_PATH, get(handler))
    }

    /// A command without a body.
    fn plain<A>(self, operation: Operation<(), A>, make: fn(Reply<A>) -> Command) -> Self
    where
        A: Serialize + Send + 'static,
    {
        let handler = async move |State(to): State<DataThread>,
                                  Extension(peer): Extension<Peer>| {
            let asked = Asked::of(operation.path, &(), peer);
            respond(to.told(asked, to.execute(make).await))
        };
        self.at(operation.path, post(handler))
    }

    fn command<B, A>(self, operation: Operation<B, A>, make: fn(B, Reply<A>) -> Command) -> Self
    where
        B: Serialize + DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
    {
        let handler = async move |State(to): State<DataThread>,
                                  Extension(peer): Extension<Peer>,
                                  Body(body): Body<B>| {
            let asked = Asked::of(operation.path, &body, peer);
            respond(to.told(asked, to.execute(|reply| make(body, reply)).await))
        };
        self.at(operation.path, post(handler))
    }

    fn array<B>(self, operation: Operation<B, Status>, make: fn(B) -> ArrayCommand) -> Self
    where
        B: Serialize + DeserializeOwned + Send + 'static,
    {
        let handler = async move |State(to): State<DataThread>,
                                  Extension(peer): Extension<Peer>,
                                  Body(body): Body<B>| {
            let asked = Asked::of(operation.path, &body, peer);
            let command = |reply| Command::Array(make(body), reply);
            respond(to.told(asked, to.execute(command).await))
        };
        self.at(operation.path, post(handler))
    }

    /// Without the limit on waiting commands: it may end them.
    fn stop(self) -> Self {
        let handler = async move |State(to): State<DataThread>,
                                  Extension(peer): Extension<Peer>,
                                  Body(body): Body<_>| {
            to.events.tell(Asked::of(api::STOP.path, &body, peer).begun());
            respond(to.send(|reply| Command::Stop(body, reply)).await)
        };
        self.at(api::STOP.path, post(handler))
    }
}

/// A JSON body that arrives within the timeout.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let body = Json::<T>::from_request(request, state);
        match tokio::time::timeout(BODY_TIME_MAX, body).await {
            Ok(Ok(Json(body))) => Ok(Self(body)),
            Ok(Err(JsonRejection::JsonDataError(error))) => {
                Err(refuse(StatusCode::BAD_REQUEST, error.body_text()))
            }
            Ok(Err(error)) => Err(refuse(error.status(), error.body_text())),
            Err(_) => {
                let text = format!("the body did not arrive within {BODY_TIME_MAX:?}");
                Err(refuse(StatusCode::REQUEST_TIMEOUT, text))
            }
        }
    }
}

fn respond<A: Serialize>(answer: Result<A, Refusal>) -> Response {
    match answer {
        Ok(answer) => Json(Versioned::new(answer)).into_response(),
        Err(refusal) => {
            let status = match Exit::of_code(refusal.exit) {
                Exit::Refused => StatusCode::CONFLICT,
                Exit::Usage => StatusCode::BAD_REQUEST,
                Exit::NotServed => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, Json(Versioned::new(refusal))).into_response()
        }
    }
}

/// Requests that are not commands.
fn refuse(status: StatusCode, error: impl ToString) -> Response {
    let refusal = Refusal { error: error.to_string(), exit: Exit::Usage as u8 };
    (status, Json(Versioned::new(refusal))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body as Bytes, to_bytes};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use std::collections::BTreeSet;

    /// What a peer is answered, by a volume that is being stopped.
    fn answer(method: &str, path: &str, peer: Option<Peer>) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let mut request = request.body(Bytes::from("{}")).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let answer =
                TowerToHyperService::new(routes(DataThread::ending())).call(request).await.unwrap();
            let status = answer.status();
            let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        })
    }

    #[test]
    fn whoever_connects_may_look_and_only_root_and_the_owner_change() {
        let own = rustix::process::geteuid().as_raw();
        let peer = |uid| Some(Peer { uid, gid: uid, pid: None });
        let foreign = peer(own + 4711);
        let (mut looks, mut changes) = (0, 0);
        for (path, methods) in api::document()["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys().map(|it| it.to_uppercase()) {
                // The data thread is reached.
                let reached = |peer| answer(&method, path, peer).0 != StatusCode::FORBIDDEN;
                assert!(reached(peer(0)) && reached(peer(own)), "{method} {path}");
                if method == "GET" {
                    looks += 1;
                    let (status, _) = answer(&method, path, foreign);
                    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
                    continue;
                }
                changes += 1;
                for refused in [foreign, None] {
                    let (status, body) = answer(&method, path, refused);
                    assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {body}");
                    let refusal: Refusal = serde_json::from_str(&body).unwrap();
                    assert_eq!(refusal.exit, Exit::Refused as u8);
                    let operation = path.replace("/v1/", "").replace('/', " ");
                    let text = format!("{operation} needs root, or the user that runs the daemon");
                    assert!(refusal.error.starts_with(&text), "{}", refusal.error);
                }
            }
        }
        assert!(looks >= 2 && changes >= 25, "{looks} and {changes}");
    }

    #[test]
    fn a_change_by_a_method_that_no_route_has_is_refused_first() {
        let (status, _) = answer("DELETE", "/v1/status", None);
        assert_eq!(status, StatusCode::FORBIDDEN);
        let (status, _) = answer("POST", "/v1/status", Some(Peer { uid: 0, gid: 0, pid: None }));
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn each_operation_of_the_document_has_a_route() {
        let document = api::document();
        let documented = document["paths"].as_object().unwrap().keys().map(String::as_str);
        let routed = Routes::all().paths.into_iter().collect();
        assert_eq!(documented.collect::<BTreeSet<&str>>(), routed);
    }
}
