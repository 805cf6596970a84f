//! Waiting for a long command with a progress bar.

use crate::interrupt;
use anyhow::{Result, anyhow};
use headpond_api::answers::Status;
use headpond_api::client::Client;
use headpond_api::operations::{self, Operation};
use headpond_daemon::progress_bar;
use headpond_volume::{JobKind, JobStatus};
use indicatif::ProgressBar;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Shorter commands show no bar.
const BAR_AFTER: Duration = Duration::from_millis(500);
const NOT_WAITED_FOR: &str =
    "not waited for any more: the daemon continues, and `headpond status` shows the progress";
const TEMPLATE: &str = "{msg} {bar:30} {bytes} of {total_bytes}, left: {left}";

/// Executes a command, and shows a progress bar until it is answered.
///
/// # Errors
/// The daemon's.
pub fn post<B, A>(client: &Client, operation: &Operation<B, A>, body: &B) -> Result<A>
where
    B: Serialize + Sync,
    A: DeserializeOwned + Send,
{
    interrupt::exits(NOT_WAITED_FOR);
    let bar = ProgressBar::new(0);
    bar.set_style(progress_bar::style(TEMPLATE));
    std::thread::scope(|scope| {
        let (tell, answer) = channel();
        // The receiver may be gone.
        scope.spawn(move || drop(tell.send(client.call_with(operation, body))));
        loop {
            match answer.recv_timeout(LOOK_EVERY) {
                Ok(answer) => {
                    bar.finish_and_clear();
                    return answer;
                }
                Err(RecvTimeoutError::Timeout) if bar.elapsed() > BAR_AFTER => {
                    // A daemon that is ending no longer answers.
                    if let Ok(status) = client.call(&operations::STATUS) {
                        show(&bar, &status);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!("the command was interrupted"));
                }
            }
        }
    })
}

/// Waits with a progress bar until background work of these kinds is done, and returns the status
/// then; `is_to_do` reports whether any of it is left.
///
/// # Errors
/// The daemon's.
pub fn until_done(
    client: &Client,
    jobs: &[JobKind],
    core: Option<&str>,
    is_to_do: impl Fn(&Status) -> bool,
) -> Result<Status> {
    interrupt::exits(NOT_WAITED_FOR);
    let bar = ProgressBar::new(0);
    bar.set_style(progress_bar::style(TEMPLATE));
    loop {
        let status = client.call(&operations::STATUS)?;
        let is_it = |it: &&JobStatus| jobs.contains(&it.job) && it.core.as_deref() == core;
        if let Some(job) = status.jobs.iter().find(is_it) {
            show_job(&bar, job, &status);
        } else if !is_to_do(&status) {
            bar.finish_and_clear();
            return Ok(status);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Jobs that belong to a command, not background work.
fn show(bar: &ProgressBar, status: &Status) {
    let is_waited_for =
        |job: &&JobStatus| matches!(job.job, JobKind::Cleaning | JobKind::Scrubbing);
    status.jobs.iter().filter(is_waited_for).for_each(|job| show_job(bar, job, status));
}

fn show_job(bar: &ProgressBar, job: &JobStatus, status: &Status) {
    bar.set_message(super::status::name_of_job(job, super::status::level_of(job, status)));
    bar.set_length(job.total_bytes);
    bar.set_position(job.done_bytes);
}
