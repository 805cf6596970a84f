//! Reads of the core for insertion into the log.

use crate::engine::Engine;
use crate::log::Fill;
use crate::types::BlockRun;
use std::rc::Rc;

/// Watches over blocks while they are read, until dropped.
pub(crate) struct FillGuard {
    engine: Rc<Engine>,
    fill: Rc<Fill>,
}

impl FillGuard {
    pub fn begin(engine: &Rc<Engine>, run: BlockRun) -> Self {
        let fill = engine.log.borrow_mut().begin_fill(run);
        Self { engine: Rc::clone(engine), fill }
    }

    pub fn fill(&self) -> Rc<Fill> {
        Rc::clone(&self.fill)
    }
}

impl Drop for FillGuard {
    fn drop(&mut self) {
        self.engine.log.borrow_mut().end_fill(&self.fill);
    }
}
