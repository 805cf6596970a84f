//! The generation on the members' superblocks: how a failed cache is disowned.

use headpond_block::{LocalFuture, Outcome};
use headpond_cache::CoreLabel;
use headpond_raid::Array;
use std::rc::Rc;

/// The array's label, as its cache needs it.
pub struct ArrayLabel(pub Rc<Array>);

impl CoreLabel for ArrayLabel {
    fn disown_cache(&self) -> LocalFuture<'_, Outcome> {
        Box::pin(self.0.bump_owner_generation())
    }
}
