//! The generation on the members' superblocks: how a failed cache is disowned.

use headpond_block::sync::join_all;
use headpond_block::{LocalFuture, Outcome};
use headpond_cache::CoreLabel;
use headpond_raid::Array;
use std::rc::Rc;

/// The labels of all arrays, as their cache needs them. One that is raised is enough: the cache
/// fits the sum of them.
pub struct ArrayLabels(pub Vec<Rc<Array>>);

impl CoreLabel for ArrayLabels {
    fn disown_cache(&self) -> LocalFuture<'_, Outcome> {
        Box::pin(async {
            let raise = |array: &Rc<Array>| -> LocalFuture<'_, Outcome> {
                let array = Rc::clone(array);
                Box::pin(async move { array.raise_owner_generation(1).await })
            };
            let raised = join_all(self.0.iter().map(raise).collect()).await;
            raised.into_iter().reduce(|one, other| one.or(other)).expect("a volume has a core")
        })
    }
}
