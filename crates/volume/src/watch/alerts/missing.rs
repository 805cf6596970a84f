//! The condition of a volume whose start waits for devices.

use super::{Alert, AlertKind, Risk};

impl Alert {
    /// `what` is missing.
    pub fn waiting(volume: &str, what: &str) -> Self {
        Self {
            kind: AlertKind::DevicesMissing,
            cause: format!("{volume} is not started yet: {what} is missing"),
            at_risk: Risk::none("nothing: no device was written to"),
            action: format!(
                "connect it (`headpond scan` shows what is there), and the start goes on by itself; to start \
                 without it, stop the service and use `headpond serve {volume} --force`"
            ),
        }
    }
}
