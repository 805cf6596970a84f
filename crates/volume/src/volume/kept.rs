//! The description, kept by the caller as it changes.

use crate::description::Description;
use headpond_block::LocalFuture;
use std::cell::RefCell;
use std::future::ready;

/// Keeps a description that has changed.
type KeepChanged = dyn Fn(&Description) -> LocalFuture<'static, ()>;

/// Whoever keeps the description.
pub struct DescriptionKeeper {
    /// Is given the description when it has changed without being asked; what is answered ends when
    /// it is kept durably. Those that are given later are kept later.
    pub keep: Box<KeepChanged>,
    /// The name of a device, by what the description calls it.
    pub name_of: Box<dyn Fn(&str) -> String>,
}

/// The keeper, where there is one.
#[derive(Default)]
pub(crate) struct KeptDescription {
    pub(crate) keeper: RefCell<Option<DescriptionKeeper>>,
}

impl KeptDescription {
    /// Ends when the description is kept.
    pub(crate) fn tell(&self, description: &Description) -> LocalFuture<'static, ()> {
        match &*self.keeper.borrow() {
            Some(keeper) => (keeper.keep)(description),
            None => Box::pin(ready(())),
        }
    }

    pub(crate) fn name_of(&self, word: &str) -> String {
        let keeper = self.keeper.borrow();
        keeper.as_ref().map_or_else(|| word.to_owned(), |keeper| (keeper.name_of)(word))
    }
}
