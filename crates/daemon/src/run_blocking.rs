//! Work that may wait for a disk, a lock or another host, away from the thread that serves
//! requests.

use anyhow::{Context, Result, anyhow};
use tokio::sync::oneshot;

/// Does `work` on a thread of its own. What hangs there holds up nothing but who waits for it.
///
/// # Errors
/// Those of the work, and where there is no thread to be had.
pub async fn run_blocking<T, F>(work: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    let (tell, done) = oneshot::channel();
    let thread = std::thread::Builder::new().name("aside".into());
    // Nobody may want to know any more.
    let thread = thread.spawn(move || drop(tell.send(work())));
    thread.context("cannot start a thread")?;
    done.await.map_err(|_| anyhow!("work beside the requests ended without a word"))?
}
