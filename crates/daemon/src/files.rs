//! Files of the state folder, written outside the data thread.
//!
//! **Invariant**: files are written in the order of the calls.

use anyhow::{Context, Result, anyhow};
use headpond_api::place::{Left, Places};
use headpond_block::LocalFuture;
use headpond_volume::Description;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::mpsc;
use tokio::sync::oneshot;
use uuid::Uuid;

/// The files of this daemon's volume. Cloning shares their order.
#[derive(Clone)]
pub struct Files {
    work: mpsc::Sender<Work>,
}

type Work = Box<dyn FnOnce(&Places) + Send>;

impl Files {
    /// Starts the writer thread, before memory may be short; it ends with the last handle.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(places: Places) -> Result<Self> {
        let (work, wanted) = mpsc::channel::<Work>();
        let write = move || wanted.into_iter().for_each(|work| work(&places));
        std::thread::Builder::new().name("files".into()).spawn(write)?;
        Ok(Self { work })
    }

    /// Writes a description atomically.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn save(&self, description: Description) -> LocalFuture<'static, Result<()>> {
        self.in_turn(move |places| places.save(&description))
    }

    /// Saves what `status` tells of a volume that was stopped.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn note_left(&self, name: String, left: Left) -> LocalFuture<'static, Result<()>> {
        self.in_turn(move |places| places.note_left(&name, &left))
    }

    /// Saves which devices a volume is, for the next daemon.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn note_attached(
        &self,
        name: String,
        kept: impl Serialize + Send + 'static,
    ) -> LocalFuture<'static, Result<()>> {
        self.in_turn(move |places| places.note_attached(&name, &kept))
    }

    /// Whether a volume of this name is described that is not the core `uuid` alone.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn is_taken(&self, name: String, uuid: Uuid) -> LocalFuture<'static, Result<bool>> {
        // A volume that has a cache since is more than that.
        let is_core_alone =
            move |it: Description| it.uuid == uuid && it.cache.is_none() && it.tier.is_none();
        let look = move |places: &Places| {
            Ok(places.exists(&name) && !places.load(&name).is_ok_and(is_core_alone))
        };
        self.in_turn(look)
    }

    /// The head of an existing device that becomes a further core.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn head_of_core(
        &self,
        volume: String,
        core: String,
        uuid: Uuid,
    ) -> LocalFuture<'static, Result<PathBuf>> {
        self.in_turn(move |places| Ok(places.head_of_core(&volume, &core, uuid)))
    }

    /// Removes what is of no volume.
    pub fn remove(&self, path: PathBuf) -> LocalFuture<'static, Result<()>> {
        self.in_turn(move |_| Ok(std::fs::remove_file(path)?))
    }

    /// Removes a description, where there is one.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub fn forget_if_there(&self, name: String) -> LocalFuture<'static, Result<()>> {
        let forget = move |places: &Places| match places.exists(&name) {
            true => places.forget(&name),
            false => Ok(()),
        };
        self.in_turn(forget)
    }

    /// Marks that writes are acknowledged in memory alone.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn mark_memory(&self, name: String) -> LocalFuture<'static, Result<()>> {
        self.in_turn(move |places| {
            let mark = places.memory_mark(&name);
            std::fs::write(&mark, "").with_context(|| {
                format!(
                    "cannot write {}, which keeps for a start after a crash that writes are \
                     acknowledged in memory alone",
                    mark.display()
                )
            })
        })
    }

    /// Removes that mark, where it is there.
    pub fn unmark_memory(&self, name: String) -> LocalFuture<'static, Result<()>> {
        self.in_turn(move |places| {
            let _ = std::fs::remove_file(places.memory_mark(&name));
            Ok(())
        })
    }

    /// All earlier writes have completed.
    pub async fn written(&self) {
        // A thread that has ended writes nothing.
        let _ = self.in_turn(|_| Ok(())).await;
    }

    /// Queues the work now, not when the result is awaited.
    fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Places) -> Result<T> + Send + 'static,
    ) -> LocalFuture<'static, Result<T>> {
        let (tell, done) = oneshot::channel();
        // The receiver may be gone.
        let work = Box::new(move |places: &Places| drop(tell.send(work(places))));
        let sent = self.work.send(work);
        let ended = || anyhow!("the thread that writes files has ended");
        Box::pin(async move {
            sent.map_err(|_| ended())?;
            done.await.map_err(|_| ended())?
        })
    }
}
