//! `headpond witness campaign`: a witness that cuts the power.
//!
//! 1. It waits for a writer, and some time longer.
//! 2. It records that it is about to cut, and runs the hook.
//! 3. It waits until the device has been verified after the reboot, and repeats.
//!
//! **Invariants**: progress is in the rulings alone, so an interrupted campaign resumes.

use super::args::CampaignArgs;
use super::report::{rulings, summary, told};
use super::serve::{lock, start};
use super::{key, words};
use anyhow::{Context, Result, bail};
use headpond_api::outcome::{Exit, Failure};
use headpond_block::{BufferPool, PoolConfig, Runtime};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_witness::field::server::{Conductor, Endless, Server};
use headpond_witness::field::subject::Subject;
use headpond_witness::field::wire::{Task, is_name};
use std::cell::Cell;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The agent has a last request, and may have begun to write.
const FAREWELL_MAX: Duration = Duration::from_secs(30);

/// # Errors
/// If the hook fails, or the machine does not return.
pub fn run(args: &CampaignArgs) -> Result<Exit> {
    if !is_name(&args.name) {
        return Err(Failure::usage(format!("{:?} cannot be a device's name", args.name)));
    }
    let key = key::read(&args.listen.key)?;
    let _lock = lock(&args.listen)?;
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let end = Rc::new(Cell::new(End::NotYet));
        let conductor = Ends { name: args.name.clone(), end: Rc::clone(&end) };
        let (server, listener) = start(&args.listen, key, &ring, &runtime, Box::new(conductor))?;
        let serving = server.clone();
        drop(runtime.spawn(async move { serving.serve(listener).await }));
        let folder = args.listen.dir.join(&args.name);
        let campaign = Campaign { args, server, runtime: runtime.clone(), folder };
        let exit = campaign.carry_out().await?;
        campaign.say_farewell(&end).await;
        Ok(exit)
    })?
}

/// Whether the agent knows that the campaign is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotYet,
    Reached,
    Told,
}

/// Agents of the device are notified at the end.
struct Ends {
    name: String,
    end: Rc<Cell<End>>,
}

impl Conductor for Ends {
    fn task(&self, name: &str, subject: Option<&Subject>) -> Task {
        if name != self.name || self.end.get() == End::NotYet {
            return Endless.task(name, subject);
        }
        self.end.set(End::Told);
        Task::End
    }
}

struct Campaign<'a> {
    args: &'a CampaignArgs,
    server: Server,
    runtime: Runtime,
    folder: PathBuf,
}

impl Campaign<'_> {
    async fn carry_out(&self) -> Result<Exit> {
        // A campaign that was ended between a cut and its verification first waits for that.
        loop {
            let done = summary(&rulings(&self.folder)?);
            let looks = done.cuts + done.undecided;
            println!("{}: {}", self.args.name, told(&done));
            if looks >= self.args.cuts {
                return Ok(if done.losses > 0 { Exit::Error } else { Exit::Ok });
            }
            self.wait_for_a_writer().await;
            if self.writes_on().await? {
                println!("{}: cut {} of {}", self.args.name, looks + 1, self.args.cuts);
                self.cut_and_wait().await?;
            }
        }
    }

    /// Ends the agent, with a clean end of its writes.
    async fn say_farewell(&self, end: &Cell<End>) {
        end.set(End::Reached);
        let deadline = self.runtime.now() + FAREWELL_MAX;
        while end.get() != End::Told && self.runtime.now() < deadline {
            self.server.stop_writer(&self.args.name).await;
            self.runtime.sleep(LOOK_EVERY).await;
        }
        // The answer is on its way.
        self.runtime.sleep(LOOK_EVERY).await;
    }

    async fn wait_for_a_writer(&self) {
        let is_writing = |subject: Option<&mut Subject>| subject.is_some_and(|it| it.is_writing());
        while !self.server.with_subject(&self.args.name, is_writing) {
            self.runtime.sleep(LOOK_EVERY).await;
        }
    }

    /// Lets the writer run for some time; whether it still runs.
    async fn writes_on(&self) -> Result<bool> {
        let (least, most) = self.args.between;
        let random = key::random()?;
        let drawn = u32::from_le_bytes(random[..4].try_into().expect("four bytes"));
        let seconds = least + (most - least) * f64::from(drawn) / f64::from(u32::MAX);
        self.runtime.sleep(Duration::from_secs_f64(seconds)).await;
        Ok(self.server.with_subject(&self.args.name, |subject| {
            subject.is_some_and(|subject| subject.is_writing())
        }))
    }

    async fn cut_and_wait(&self) -> Result<()> {
        let before = rulings(&self.folder)?.len();
        self.server
            .with_subject(&self.args.name, |subject| subject.map_or(Ok(()), Subject::note_hook))?;
        self.run_hook().await?;
        let deadline = self.runtime.now() + Duration::from_secs(self.args.wait_boot);
        loop {
            let after = rulings(&self.folder)?;
            if let Some(ruling) = after.get(before..).and_then(<[_]>::last) {
                words::of(&self.args.name, ruling).iter().for_each(|line| println!("{line}"));
                return Ok(());
            }
            if self.runtime.now() > deadline {
                bail!(
                    "{}: the device was not verified within {} s of the cut: is the machine up, \
                     and does it run `headpond witness agent`? The campaign resumes from here when \
                     it is restarted",
                    self.args.name,
                    self.args.wait_boot
                );
            }
            self.runtime.sleep(LOOK_EVERY).await;
        }
    }

    async fn run_hook(&self) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", &self.args.cut_hook]).stdin(Stdio::null());
        command.env("HEADPOND_WITNESS_NAME", &self.args.name);
        let mut child = command.spawn().context("sh")?;
        loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!(
                    "the cut hook failed ({status}): {}; it must exit with 0 once the power is \
                     cut. The campaign resumes from here when it is restarted",
                    self.args.cut_hook
                ),
                None => self.runtime.sleep(LOOK_EVERY).await,
            }
        }
    }
}
