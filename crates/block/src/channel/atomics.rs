//! The primitives of [`super::mailbox`], which a test replaces with those of a model checker.

pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
pub use std::sync::{Arc, Mutex};

/// Whether this bug is active.
macro_rules! is_broken {
    ($name:ident) => {
        $crate::defect!($name)
    };
}
pub(super) use is_broken;

/// Memory whose uses are marked, so that the model checker sees them.
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// The memory, to be written or moved out of.
    #[inline]
    pub fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}
