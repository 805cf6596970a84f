//! Showing that a `self_check` notices what it is there for.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the check says, in part, and a way to break the state on purpose so that it says that.
pub type Break<T> = (&'static str, fn(&mut T));

/// Breaks the state of an owner in one way after the other, each time from the start: the check has
/// to pass before, and to say afterwards which invariant does not hold.
///
/// # Panics
/// Where it does not.
pub fn assert_trips<T>(make: impl Fn() -> T, self_check: impl Fn(&T), breaks: &[Break<T>]) {
    assert!(breaks.len() >= 3, "one break shows little");
    for (says, break_it) in breaks {
        let mut owner = make();
        self_check(&owner);
        break_it(&mut owner);
        let checked = catch_unwind(AssertUnwindSafe(|| self_check(&owner)));
        // What is broken may well panic when it is dropped, too.
        std::mem::forget(owner);
        let payload = checked.expect_err(says);
        let said = text_of(&*payload);
        assert!(said.contains(says), "expected `{says}`, and it says `{said}`");
    }
}

fn text_of(payload: &dyn Any) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum, and what is added up.
    type Sum = (u32, Vec<u32>);

    fn check(&(sum, ref parts): &Sum) {
        assert_eq!(sum, parts.iter().sum(), "the sum is that of its parts");
    }

    fn try_with(last: Break<Sum>) -> std::thread::Result<()> {
        let says = "the sum is that of its parts";
        let breaks: [Break<Sum>; 3] = [(says, |it| it.0 += 1), (says, |it| it.1[0] += 1), last];
        catch_unwind(|| assert_trips(|| (3, vec![1, 2]), check, &breaks))
    }

    #[test]
    fn breaks_that_are_noticed_pass() {
        try_with(("the sum is that", |it| it.1.clear())).unwrap();
    }

    #[test]
    fn a_break_that_goes_unnoticed_or_trips_something_else_fails() {
        assert!(try_with(("the sum is that", |it| it.1.reverse())).is_err());
        assert!(try_with(("another one", |it| it.0 += 1)).is_err());
    }
}
