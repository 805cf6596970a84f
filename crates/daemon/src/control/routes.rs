//! The control API over HTTP: the command of each operation, and its answer.
//!
//! **Invariant**: for any error the answer is `{"schema", "error", "exit"}`.

use super::asked::Asked;
use super::peer::Peer;
use super::{CONNECTIONS_MAX, DataThread};
use crate::command::{ArrayCommand, Command, Reply};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use headpond_api::Refusal;
use headpond_api::answers::{Status, Versioned};
use headpond_api::operations::{self as api, Operation};
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
        .with_state(to)
}

/// The answer to a connection above the limit.
pub fn without_room() -> Router {
    let text = format!("{CONNECTIONS_MAX} control connections are open: retry later");
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
            .plain(api::RESET_STATS, Command::ResetStats)
            .command(api::SET, Command::Set)
            .command(api::SET_EXPORTS, Command::SetExports)
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
    use std::collections::BTreeSet;

    #[test]
    fn each_operation_of_the_document_has_a_route() {
        let document = api::document();
        let documented = document["paths"].as_object().unwrap().keys().map(String::as_str);
        let routed = Routes::all().paths.into_iter().collect();
        assert_eq!(documented.collect::<BTreeSet<&str>>(), routed);
    }
}
