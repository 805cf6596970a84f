//! Conditions of a volume whose daemon ended by itself, or does not answer: told by `status`, which
//! looks at what the daemon left.

use super::{Alert, AlertKind, Risk};

impl Alert {
    /// The condition of a volume that no daemon serves, and that none has stopped; `is_known` if a
    /// daemon has left its files, otherwise no stop is recorded.
    pub fn of_ended_daemon(volume: &str, is_known: bool, has_cache: bool) -> Self {
        let cause = match is_known {
            true => format!("the daemon of {volume} ended without a stop"),
            false => format!(
                "no stop of {volume} is recorded: its daemon, or the machine, ended without one"
            ),
        };
        let what = match has_cache {
            true => {
                "nothing that was flushed, while the cache device is kept: it may hold dirty data"
            }
            false => "nothing that was flushed",
        };
        let action = format!(
            "keep its devices; `headpond serve {volume}` continues where it ended, and `headpond stop \
             {volume} --flush` then writes dirty data to the array"
        );
        Self { kind: AlertKind::DaemonEnded, cause, at_risk: Risk::none(what), action }
    }

    /// The condition of a volume whose daemon is there and does not answer.
    pub fn of_silent_daemon(volume: &str, cause: String) -> Self {
        Self {
            kind: AlertKind::DaemonSilent,
            cause,
            at_risk: Risk::none("nothing that was acknowledged; requests of clients may wait"),
            action: format!(
                "look whether the process of `headpond serve {volume}` is stopped (`kill -CONT`), or \
                 waits for a device (`dmesg`); if it is killed, the next start continues where it \
                 ended"
            ),
        }
    }
}
