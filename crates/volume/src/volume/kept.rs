//! The description, kept as it changes: on the members, and by the caller.
//!
//! **Invariants**
//! - A record on the members is newer than all that were begun before it.

use super::Volume;
use crate::assembly::cores::Cores;
use crate::description::Description;
use crate::record::{RecordError, VolumeRecord};
use headpond_block::LocalFuture;
use headpond_block::sync::{Busy, join_all};
use headpond_raid::Array;
use std::cell::{Cell, RefCell};
use std::future::ready;
use std::rc::{Rc, Weak};

/// An error of the caller.
pub type CallerError = Box<dyn std::error::Error + Send + Sync>;

/// Saves a description, durably, before it takes effect.
pub type Keep<'a> = &'a dyn Fn(&Description) -> Keeping<'a>;

/// A description being saved.
pub type Keeping<'a> = LocalFuture<'a, Result<(), CallerError>>;

/// Keeps a description that has changed.
type KeepChanged = dyn Fn(&Description) -> LocalFuture<'static, ()>;

/// The caller's way to keep descriptions.
pub struct DescriptionKeeper {
    /// Is given the description when it has changed without being asked; what is answered ends when
    /// it is kept durably. Those that are given later are kept later.
    pub keep: Box<KeepChanged>,
    /// The name of a device, by what the description calls it.
    pub name_of: Box<dyn Fn(&str) -> String>,
}

/// Where the description of a volume is kept.
pub(crate) struct KeptDescription {
    pub(crate) keeper: RefCell<Option<DescriptionKeeper>>,
    /// Of the volume, whose background work has a handle of this.
    cores: Weak<RefCell<Rc<Cores>>>,
    /// Of the newest record.
    generation: Cell<u64>,
    /// Of the newest one that was written.
    written: Cell<u64>,
    writing: Busy,
}

impl KeptDescription {
    pub(crate) fn new(cores: &Rc<RefCell<Rc<Cores>>>) -> Self {
        let cores = Rc::downgrade(cores);
        let (keeper, writing) = (RefCell::default(), Busy::default());
        let [generation, written] = Default::default();
        Self { keeper, cores, generation, written, writing }
    }

    /// Keeps it on the members and by the keeper; ends when it is kept.
    pub(crate) fn tell(self: &Rc<Self>, description: &Description) -> LocalFuture<'static, ()> {
        let recorded = self.record(description);
        let kept: LocalFuture<'static, ()> = match &*self.keeper.borrow() {
            Some(keeper) => (keeper.keep)(description),
            None => Box::pin(ready(())),
        };
        Box::pin(async move {
            // An array that has lost too many members takes no record, and its state says so.
            let _ = recorded.await;
            kept.await;
        })
    }

    /// Keeps it on the members and by a command, before it takes effect.
    ///
    /// # Errors
    /// Where either is not possible.
    pub(crate) async fn keep_with(
        self: &Rc<Self>,
        keep: Keep<'_>,
        description: &Description,
    ) -> Result<(), CallerError> {
        self.record(description).await?;
        keep(description).await
    }

    /// Writes the record of a description to the members of all arrays, stably.
    pub(crate) fn record(
        self: &Rc<Self>,
        description: &Description,
    ) -> LocalFuture<'static, Result<(), RecordError>> {
        let generation = self.generation.get() + 1;
        self.generation.set(generation);
        let bytes = VolumeRecord::new(generation, description).to_bytes();
        let kept = Rc::clone(self);
        Box::pin(async move {
            let bytes = bytes?;
            while !kept.writing.is_idle() {
                kept.writing.until_idle().await;
            }
            if generation < kept.written.get() {
                return Ok(());
            }
            let _turn = kept.writing.begin();
            kept.written.set(generation);
            let writes = kept.arrays().into_iter().map(|array| {
                let bytes = bytes.clone();
                Box::pin(async move { array.write_volume_record(&bytes).await })
            });
            let outcomes = join_all(writes.collect()).await;
            // The newest one of all arrays counts.
            match outcomes.iter().any(Result::is_ok) {
                true => Ok(()),
                false => outcomes.into_iter().collect::<Result<(), _>>().map_err(Into::into),
            }
        })
    }

    /// Continues after a record that the members have.
    pub(crate) fn continue_after(&self, generation: u64) {
        self.generation.set(generation);
        self.written.set(generation);
    }

    fn arrays(&self) -> Vec<Rc<Array>> {
        // A volume that is closed has none.
        let Some(cores) = self.cores.upgrade() else { return Vec::new() };
        let cores = Rc::clone(&cores.borrow());
        cores.iter().map(|(core, _)| Rc::clone(&core.array)).collect()
    }

    pub(crate) fn name_of(&self, word: &str) -> String {
        let keeper = self.keeper.borrow();
        keeper.as_ref().map_or_else(|| word.to_owned(), |keeper| (keeper.name_of)(word))
    }
}

/// Brings the record on the members of all arrays up to date, before a cache makes use of them; its
/// generation.
///
/// # Errors
/// Where it is too long.
pub(crate) async fn begin_records(
    cores: &Cores,
    description: &Description,
) -> Result<u64, RecordError> {
    let arrays: Vec<&Array> = cores.iter().map(|(core, _)| &*core.array).collect();
    let parse = |array: &&Array| VolumeRecord::parse(&array.volume_record()?).ok();
    let found: Vec<Option<VolumeRecord>> = arrays.iter().map(parse).collect();
    let newest = found.iter().flatten().map(|record| record.generation).max().unwrap_or(0);
    let is_current = |record: &Option<VolumeRecord>| {
        record.as_ref().is_some_and(|it| it.generation == newest && it.agrees(description))
    };
    if found.iter().all(is_current) {
        return Ok(newest);
    }
    let bytes = VolumeRecord::new(newest + 1, description).to_bytes()?;
    let writes = arrays.iter().map(|array| Box::pin(array.write_volume_record(&bytes)));
    // The state of an array that takes no record says so.
    let _ = join_all(writes.collect()).await;
    Ok(newest + 1)
}

impl Volume {
    /// Writes the present description to the members.
    ///
    /// # Errors
    /// Where that is not possible.
    pub async fn record(&self) -> Result<(), RecordError> {
        self.kept.record(&self.description()).await
    }
}
