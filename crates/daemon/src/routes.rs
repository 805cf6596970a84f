//! The control API: its paths, what it takes and how it answers.
//!
//! `GET /v1/status` and `GET /v1/stats` tell; a `POST` to another path is a wish: `/v1/settings`,
//! `/v1/flush`, `/v1/stop`, and by what they concern `/v1/stats/...`, `/v1/recording/...`,
//! `/v1/look`, `/v1/cache/...`, `/v1/core/...` and `/v1/array/...`.
//!
//! **Invariant**: whatever is wrong with a request, the answer is `{"error", "exit"}`.

use super::control::{Asking, CONNECTIONS_MAX};
use super::message::{Answer, ArrayWish, Wish};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use headpond_api::Refusal;
use headpond_api::outcome::Exit;
use headpond_api::requests::{SetBody, StopBody};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest body: rules of classes are the longest thing that is sent.
const BODY_BYTES_MAX: usize = 1 << 20;
/// In which it has to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// All paths.
pub fn routes(asking: Asking) -> Router {
    let status = async |State(to): State<Asking>| respond(to.look(Wish::Status).await);
    let stats = async |State(to): State<Asking>| respond(to.look(Wish::Stats).await);
    let no_path = async || refuse(StatusCode::NOT_FOUND, "there is no such path");
    let no_method =
        async || refuse(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method");
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/stats", get(stats))
        .route("/v1/stats/reset", plain(|| Wish::ResetStats))
        .route("/v1/settings", settings())
        .route("/v1/flush", wish(Wish::Flush))
        .route("/v1/stop", stop())
        .route("/v1/cache/attach", wish(Wish::AttachCache))
        .route("/v1/cache/scrub", plain(|| Wish::ScrubCache))
        .route("/v1/cache/detach", wish(Wish::DetachCache))
        .route("/v1/cache/replace", wish(Wish::ReplaceCache))
        .route("/v1/cache/resize", wish(Wish::ResizeCache))
        .route("/v1/cache/purge", wish(Wish::PurgeCache))
        .route("/v1/core/add", wish(Wish::AddCore))
        .route("/v1/core/remove", wish(Wish::RemoveCore))
        .route("/v1/recording/start", wish(Wish::StartRecording))
        .route("/v1/recording/stop", plain(|| Wish::StopRecording))
        .route("/v1/look", wish(Wish::Look))
        .merge(array_routes())
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(asking)
}

/// What a connection is answered for which there is no room.
pub fn without_room() -> Router {
    let text = format!("{CONNECTIONS_MAX} control connections are open: try again later");
    let error = Refusal { error: text, exit: Exit::Error as u8 };
    Router::new().fallback(async move || (StatusCode::SERVICE_UNAVAILABLE, Json(error.clone())))
}

/// What concerns the members of an array, and the work on it beside the requests.
fn array_routes() -> Router<Asking> {
    fn of_array<B: DeserializeOwned + Send + 'static>(
        make: fn(B) -> ArrayWish,
    ) -> MethodRouter<Asking> {
        post(async move |State(to): State<Asking>, Body(body): Body<B>| {
            respond(to.ask(Wish::Array(make(body))).await)
        })
    }
    Router::new()
        .route("/v1/array/add-spare", of_array(ArrayWish::AddSpare))
        .route("/v1/array/re-add", of_array(ArrayWish::ReAdd))
        .route("/v1/array/replace", of_array(ArrayWish::Replace))
        .route("/v1/array/grow", of_array(ArrayWish::Grow))
        .route("/v1/array/fail", of_array(ArrayWish::Fail))
        .route("/v1/array/remove", of_array(ArrayWish::Remove))
        .route("/v1/array/drop-copy", of_array(ArrayWish::DropCopy))
        .route("/v1/array/set-journal", of_array(ArrayWish::SetJournal))
        .route("/v1/array/drop-journal", of_array(ArrayWish::DropJournal))
        .route("/v1/array/scrub", of_array(ArrayWish::Scrub))
        .route("/v1/array/pause", of_array(ArrayWish::Pause))
        .route("/v1/array/resume", of_array(ArrayWish::Resume))
        .route("/v1/array/pace", of_array(ArrayWish::Pace))
}

/// A wish that says something.
fn wish<B: DeserializeOwned + Send + 'static>(make: fn(B) -> Wish) -> MethodRouter<Asking> {
    post(async move |State(to): State<Asking>, Body(body): Body<B>| {
        respond(to.ask(make(body)).await)
    })
}

/// Whatever else waits: it may be what ends that.
fn stop() -> MethodRouter<Asking> {
    post(async move |State(to): State<Asking>, Body(body): Body<StopBody>| {
        respond(to.send(Wish::Stop(body)).await)
    })
}

/// A wish that says nothing but itself.
fn plain(make: fn() -> Wish) -> MethodRouter<Asking> {
    post(async move |State(to): State<Asking>| respond(to.ask(make()).await))
}

fn settings() -> MethodRouter<Asking> {
    post(async move |State(to): State<Asking>, Body(body): Body<SetBody>| {
        let changes: Result<Vec<_>, _> = body.changes.iter().map(|text| text.parse()).collect();
        match changes {
            Ok(changes) => respond(to.ask(Wish::Set { changes, body }).await),
            Err(error) => respond(Err(usage(error))),
        }
    })
}

/// A body of JSON that arrives in time.
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

/// What no wish comes of.
fn refuse(status: StatusCode, error: impl ToString) -> Response {
    (status, Json(usage(error))).into_response()
}

fn usage(error: impl ToString) -> Refusal {
    Refusal { error: error.to_string(), exit: Exit::Usage as u8 }
}
