//! Waiting for a long answer with a bar that shows how far it is.

use crate::client::Client;
use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Posts, and shows a bar until the answer is there; `done` tells from a status how much of how
/// much is done.
///
/// # Errors
/// The daemon's.
pub fn post(
    client: &Client,
    path: &str,
    body: &(impl Serialize + Sync),
    template: &str,
    done: impl Fn(&Value) -> (u64, u64),
) -> Result<Value> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template(template)?);
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| client.post::<Value>(path, body));
        while !answer.is_finished() {
            std::thread::sleep(LOOK_EVERY / 10);
            if bar.elapsed() > LOOK_EVERY
                && let Ok(status) = client.get("/v1/status")
            {
                let (position, total) = done(&status);
                bar.set_length(total);
                bar.set_position(position);
            }
        }
        bar.finish_and_clear();
        answer.join().map_err(|_| anyhow!("the command was interrupted"))?
    })
}
