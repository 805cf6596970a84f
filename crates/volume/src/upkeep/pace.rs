//! How fast work beside the requests may go.

use crate::Size;
use headpond_block::Instant;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Limits in bytes a second, of each member for a rebuild, else of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// While clients ask something of the array.
    #[serde(default = "usual_floor")]
    pub floor: Size,
    /// While nobody does; as fast as the members can, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Size>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { floor: usual_floor(), ceiling: None }
    }
}

/// A drive of 4 TB is done in five days that know no rest. Linux md goes down to a tenth of that.
fn usual_floor() -> Size {
    Size(10 << 20)
}

/// A step of the work.
pub(super) struct Step {
    begun: Instant,
    /// Submitted until then.
    requests: u64,
}

impl Step {
    pub fn begin(begun: Instant, requests: u64) -> Self {
        Self { begun, requests }
    }

    /// How long to wait after it, with so much done and so many requests submitted by now.
    pub fn end(&self, pace: Pace, bytes: u64, now: Instant, requests: u64) -> Duration {
        let is_quiet = requests == self.requests;
        let rate = if is_quiet { pace.ceiling } else { Some(pace.floor) };
        let Some(Size(rate)) = rate else { return Duration::ZERO };
        let due = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        due.saturating_sub(now.since(self.begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn wait(pace: Pace, requests: u64) -> Duration {
        let begun = Instant::from_nanos(0);
        let now = Instant::from_nanos(10_000_000);
        Step::begin(begun, 5).end(pace, MIB, now, requests)
    }

    #[test]
    fn beside_requests_it_goes_at_the_floor_and_alone_at_the_ceiling() {
        let pace = Pace { floor: Size(10 * MIB), ceiling: Some(Size(50 * MIB)) };
        assert_eq!(wait(pace, 6), Duration::from_millis(90));
        assert_eq!(wait(pace, 5), Duration::from_millis(10));
        assert_eq!(wait(Pace { ceiling: None, ..pace }, 5), Duration::ZERO);
    }

    #[test]
    fn a_step_that_took_longer_than_it_may_is_followed_by_the_next() {
        assert_eq!(wait(Pace { floor: Size(1000 * MIB), ceiling: None }, 6), Duration::ZERO);
    }
}
