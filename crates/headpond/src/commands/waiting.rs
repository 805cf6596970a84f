//! Waiting for a long answer with a bar that shows how far it is.

use crate::client::Client;
use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What comes to its end sooner shows no bar.
const BAR_AFTER: Duration = Duration::from_millis(500);
const TEMPLATE: &str = "{msg} {bar:30} {bytes} of {total_bytes}, {eta} left";

/// Posts a wish, and shows a bar until the answer is there.
///
/// # Errors
/// The daemon's.
pub fn post(client: &Client, path: &str, body: &(impl Serialize + Sync)) -> Result<Value> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template(TEMPLATE)?);
    std::thread::scope(|scope| {
        let (tell, answer) = channel();
        // Nobody may want to know any more.
        scope.spawn(move || drop(tell.send(client.post::<Value>(path, body))));
        loop {
            match answer.recv_timeout(LOOK_EVERY) {
                Ok(answer) => {
                    bar.finish_and_clear();
                    return answer;
                }
                Err(RecvTimeoutError::Timeout) if bar.elapsed() > BAR_AFTER => {
                    // A daemon that is about to end says nothing any more.
                    let status = client.get::<Value>("/v1/status").unwrap_or_default();
                    show(&bar, &status);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!("the command was interrupted"));
                }
            }
        }
    })
}

/// What somebody waits for; parity is computed beside everything.
fn show(bar: &ProgressBar, status: &Value) {
    let acts = status["acts"].as_array().into_iter().flatten();
    for act in acts.filter(|act| act["act"] != "parity") {
        let bytes = |field: &str| act[field].as_u64().unwrap_or(0);
        bar.set_message(super::status::name_of_act(act));
        bar.set_length(bytes("total_bytes"));
        bar.set_position(bytes("done_bytes"));
    }
}
