//! Client of a volume's daemon: HTTP and JSON over its control socket.

use crate::answers::Versioned;
use crate::operations::{METRICS_PATH, Operation};
use crate::outcome::Failure;
use crate::place::Places;
use crate::refusal::Refusal;
use anyhow::{Context, Result, anyhow};
use headpond_volume::check_name;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;

/// A daemon answers a read-only request within this time, or that it cannot: it has 1.5 s for it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);

/// A daemon that may not be running.
pub struct Client {
    volume: String,
    socket: PathBuf,
}

impl Client {
    /// # Errors
    /// Where the volume is not known.
    pub fn of(places: &Places, volume: &str) -> Result<Self> {
        check_name(volume).map_err(Failure::usage)?;
        let socket = places.control_socket(volume)?;
        // One that is served needs no description.
        if !socket.exists() && !places.exists(volume) {
            places.load(volume)?;
        }
        Ok(Self { volume: volume.to_owned(), socket })
    }

    /// Whether a daemon listens; also one that only another user may ask.
    pub fn is_served(&self) -> bool {
        let connected = std::os::unix::net::UnixStream::connect(&self.socket);
        connected.map_or_else(|error| error.kind() == ErrorKind::PermissionDenied, |_| true)
    }

    /// Calls an operation without a body.
    ///
    /// # Errors
    /// If no daemon answers, or it refuses.
    pub fn call<A: DeserializeOwned>(&self, operation: &Operation<(), A>) -> Result<A> {
        self.send(operation, Bytes::new())
    }

    /// Calls an operation.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn call_with<B: Serialize, A: DeserializeOwned>(
        &self,
        operation: &Operation<B, A>,
        body: &B,
    ) -> Result<A> {
        self.send(operation, serde_json::to_vec(body)?.into())
    }

    /// The metrics, as text.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn scrape(&self) -> Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (status, answer) = runtime.block_on(self.look(METRICS_PATH))?;
        match status.is_success() {
            true => Ok(String::from_utf8(answer.into())?),
            false => Err(refusal(status, &answer)),
        }
    }

    fn send<B, A: DeserializeOwned>(&self, to: &Operation<B, A>, body: Bytes) -> Result<A> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (status, answer) = runtime.block_on(async {
            if to.is_look {
                return self.look(to.path).await;
            }
            // A command may take long, so a daemon that does nothing is found before it.
            self.look(crate::operations::STATUS.path).await?;
            self.exchange(Method::POST, to.path, body).await
        })?;
        if status.is_success() {
            let answer: Versioned<A> = serde_json::from_slice(&answer)
                .context("the daemon's answer is not understood: does it run another version?")?;
            return Ok(answer.answer);
        }
        Err(refusal(status, &answer))
    }

    async fn look(&self, path: &str) -> Result<(hyper::StatusCode, Bytes)> {
        let looking = self.exchange(Method::GET, path, Bytes::new());
        let silent = |_| {
            Failure::not_served(format!(
                "the daemon of {} does not answer: no answer for {} s (is it stopped, or its \
                 machine overloaded?)",
                self.volume,
                ANSWER_TIME_MAX.as_secs()
            ))
        };
        tokio::time::timeout(ANSWER_TIME_MAX, looking).await.map_err(silent)?
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(hyper::StatusCode, Bytes)> {
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|error| self.unreachable(error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "headpond")
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        let closed = "the daemon closed the connection";
        let response = sender.send_request(request).await.context(closed)?;
        let status = response.status();
        let answer = response.into_body().collect().await.context(closed)?;
        connection.abort();
        Ok((status, answer.to_bytes()))
    }

    fn unreachable(&self, error: std::io::Error) -> anyhow::Error {
        let name = &self.volume;
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::not_served(format!(
                "{name} is not being served: start it with `headpond serve {name}`"
            )),
            ErrorKind::PermissionDenied => Failure::refused(format!(
                "{name} may be looked at by root, the user that runs its daemon, and members of \
                 the group of the configuration (`headpond check-config`): {}: {error}",
                self.socket.display()
            )),
            _ => anyhow::Error::new(error).context(format!("{}", self.socket.display())),
        }
    }
}

fn refusal(status: hyper::StatusCode, answer: &[u8]) -> anyhow::Error {
    match serde_json::from_slice::<Refusal>(answer) {
        Ok(refusal) => refusal.into_error(),
        Err(_) => anyhow!("the daemon answered {status}: {}", String::from_utf8_lossy(answer)),
    }
}
