//! Stops a server without losing acknowledged data.
//!
//! 1. New requests get `ShuttingDown`, new handshakes and connections refused.
//! 2. Requests in flight complete.
//! 3. Every export is flushed, and only then the connections are closed.
//!
//! **Invariants**
//! - No step takes longer than [`super::Limits::stop_time_max`], even with stalled clients or
//!   devices.

use super::{Export, Server, Shared};
use headpond_block::DeviceError;
use std::rc::Rc;
use std::time::Duration;

/// How often connections are polled while they finish.
const PAUSE: Duration = Duration::from_millis(5);

/// The server stopped, but not all its data is durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    #[error("export {export:?} could not be flushed: {source}")]
    Flush { export: String, source: DeviceError },
    #[error("export {export:?} did not complete a flush within {after:?}")]
    FlushTimeout { export: String, after: Duration },
    #[error("{connections} connections still wait for a device that does not respond")]
    Hanging { connections: usize },
}

impl Server {
    /// Stops serving. [`Server::serve`] returns; all connections are closed when this does.
    ///
    /// # Errors
    /// The first [`StopError`]; every other export was flushed, every stream shut down.
    pub async fn stop(&self) -> Result<(), StopError> {
        self.shared.is_stopping.set(true);
        self.shared.changed.notify_all();
        let shared = &self.shared;
        let threads = shared.threads.borrow().clone();
        for thread in threads {
            let refuses = async move { thread.refuse_requests().await };
            let end = shared.runtime.now() + shared.limits.stop_time_max;
            // One that does not answer has connections that are not idle.
            let _ = shared.runtime.deadline(end, refuses).await;
        }
        shared.wait_until(|| shared.is_idle()).await;
        let flushed = shared.flush_exports().await;
        flushed.and(shared.close_connections().await)
    }
}

impl Shared {
    /// Waits for the condition, up to a limit.
    async fn wait_until(&self, is_met: impl Fn() -> bool) {
        let end = self.runtime.now() + self.limits.stop_time_max;
        while !is_met() && self.runtime.now() < end {
            self.runtime.sleep(PAUSE).await;
        }
    }

    fn is_idle(&self) -> bool {
        self.connections.borrow().values().all(|connection| connection.queue.is_idle())
    }

    async fn flush_exports(&self) -> Result<(), StopError> {
        let mut first_error = Ok(());
        for export in self.exports.all() {
            first_error = first_error.and(self.flush(&export).await);
        }
        first_error
    }

    async fn flush(&self, export: &Export) -> Result<(), StopError> {
        let name = export.info().name.clone();
        let after = self.limits.stop_time_max;
        let device = Rc::clone(export.device());
        let flushing = async move { device.flush().await };
        match self.runtime.deadline(self.runtime.now() + after, flushing).await {
            Ok(flushed) => flushed.map_err(|source| StopError::Flush { export: name, source }),
            Err(_late) => Err(StopError::FlushTimeout { export: name, after }),
        }
    }

    async fn close_connections(&self) -> Result<(), StopError> {
        let connections: Vec<_> = self.connections.borrow().values().map(Rc::clone).collect();
        connections.iter().for_each(|connection| connection.stream.shutdown());
        drop(connections);
        self.wait_until(|| self.connections.borrow().is_empty()).await;
        match self.connections.borrow().len() {
            0 => Ok(()),
            connections => Err(StopError::Hanging { connections }),
        }
    }
}
