//! Blocking work (disk, lock, other host) outside the thread that serves requests.

use anyhow::{Context, Result, anyhow};
use tokio::sync::oneshot;

/// Runs `work` on a thread of its own. If it hangs, only its caller waits.
///
/// # Errors
/// Those of the work, and if no thread can be started.
pub async fn run_blocking<T, F>(work: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    let (tell, done) = oneshot::channel();
    let thread = std::thread::Builder::new().name("aside".into());
    // The receiver may be gone.
    let thread = thread.spawn(move || drop(tell.send(work())));
    thread.context("cannot start a thread")?;
    done.await.map_err(|_| anyhow!("blocking work ended without a result"))?
}
