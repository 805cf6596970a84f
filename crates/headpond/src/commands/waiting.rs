//! Waiting for a long answer with a bar that shows how far it is.

use anyhow::{Result, anyhow};
use headpond_api::client::Client;
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

/// Waits with a bar until work beside the requests of one of these kinds is done that goes on by
/// itself, and answers with the status then; `is_to_do` says whether any of it is left.
///
/// # Errors
/// The daemon's.
pub fn until_done(
    client: &Client,
    acts: &[&str],
    core: Option<&str>,
    is_to_do: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template(TEMPLATE)?);
    loop {
        let status = client.get::<Value>("/v1/status")?;
        let is_one = |it: &Value| acts.iter().any(|act| it["act"] == *act);
        let is_it = |it: &&Value| is_one(it) && it["core"].as_str() == core;
        let under_way = status["acts"].as_array().into_iter().flatten().find(is_it);
        if let Some(act) = under_way {
            show_act(&bar, act);
        } else if !is_to_do(&status) {
            bar.finish_and_clear();
            return Ok(status);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What somebody waits for; what goes on by itself goes on beside everything.
fn show(bar: &ProgressBar, status: &Value) {
    let acts = status["acts"].as_array().into_iter().flatten();
    let is_waited_for = |act: &&Value| ["cleaning", "scrubbing"].iter().any(|it| act["act"] == *it);
    acts.filter(is_waited_for).for_each(|act| show_act(bar, act));
}

fn show_act(bar: &ProgressBar, act: &Value) {
    let bytes = |field: &str| act[field].as_u64().unwrap_or(0);
    bar.set_message(super::status::name_of_act(act));
    bar.set_length(bytes("total_bytes"));
    bar.set_position(bytes("done_bytes"));
}
