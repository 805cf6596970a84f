//! The members of a served volume's array, and its background work.

use super::every::on_each;
use crate::commands::create::spec;
use crate::commands::{status, waiting};
use crate::device::Consent;
use crate::device::claims::{self, Claim};
use crate::telling::print_json;
use anyhow::Result;
use clap::Args;
use headpond_api::answers::{CoreAnswer, Status, Versioned};
use headpond_api::client::Client;
use headpond_api::operations::{self, Operation};
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_api::requests::{GrowBody, MemberBody, OfCoreBody, PauseBody, RateBody};
use headpond_daemon::MISSING;
use headpond_raid::{ArrayState, ArrayStatus, Level};
use headpond_report::size;
use headpond_volume::{BackgroundStatus, CACHE_COPIES, JobKind, MirrorStatus, Size};
use serde::Serialize;
use uuid::Uuid;

/// Background work, by kind.
const JOBS: [JobKind; 5] =
    [JobKind::StandIn, JobKind::Rebuild, JobKind::Parity, JobKind::Reshape, JobKind::ArrayScrub];

/// Add a hot spare to a served volume's array; all data on the device is lost. It replaces a
/// missing or failed member, or the next one that fails.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond array add-spare hv0 /dev/sdk\n  \
    headpond array add-spare hv0 /dev/sdk --wait     # for a lost member: until it is replaced")]
pub struct AddSpareArgs {
    #[command(flatten)]
    of: OfArgs,
    #[arg(value_name = "DEV")]
    device: String,
    /// Overwrite data on the device.
    #[arg(long)]
    force: bool,
    /// Wait, with a progress bar, until a lost member is rebuilt.
    #[arg(long)]
    wait: bool,
}

/// Re-add a member that was missing or failed: only the writes that it missed are resynced.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond array re-add hv0 /dev/sdd --wait   # its cable is \
        reconnected")]
pub struct ReAddArgs {
    #[command(flatten)]
    of: OfArgs,
    #[arg(value_name = "DEV")]
    device: String,
    /// Wait, with a progress bar, until it is in sync.
    #[arg(long)]
    wait: bool,
}

/// Replace a member by another device in the background. The member is in use until the new device
/// is in sync, and free afterwards.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond array replace hv0 /dev/sdc --with /dev/sdk --wait\n  \
    headpond array replace hv0 /dev/sdc              # by a hot spare\n  \
    headpond array replace hv0 /dev/nvme0n1 --with /dev/nvme2n1 --cache   # a copy of the cache"
)]
pub struct ReplaceArgs {
    #[command(flatten)]
    of: OfArgs,
    /// The member.
    #[arg(value_name = "DEV")]
    device: String,
    /// The replacement; all data on it is lost. Default: a hot spare.
    #[arg(long, value_name = "DEV")]
    with: Option<String>,
    /// Overwrite data on the new device.
    #[arg(long)]
    force: bool,
    /// Wait, with a progress bar, until it is done.
    #[arg(long)]
    wait: bool,
}

/// Reshape the array of a served volume to more members: its data is restriped over all of them in
/// the background. Clients that connect after that see the new size. RAID 1 gets more copies.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond array grow hv0 /dev/sdk --wait\n  \
    headpond array grow hv0 /dev/sdk /dev/sdl        # by two members together\n  \
    headpond array grow mirror /dev/sdk --wait       # a third copy of a RAID 1 of two\n\n\
    Levels 10, 50 and 60 grow by whole groups. A cache stays where it is.")]
pub struct GrowArgs {
    #[command(flatten)]
    of: OfArgs,
    /// The new members, all data on them is lost; or hot spares.
    #[arg(value_name = "DEV", required = true)]
    devices: Vec<String>,
    /// Overwrite data on the new devices.
    #[arg(long)]
    force: bool,
    /// Wait, with a progress bar, until the reshape is done and the new size is available, or the
    /// copies are in sync.
    #[arg(long)]
    wait: bool,
}

/// Mark a member failed, or remove a spare or a failed member.
#[derive(Args)]
pub struct MemberArgs {
    #[command(flatten)]
    of: OfArgs,
    #[arg(value_name = "DEV")]
    device: String,
}

/// Remove a copy of a RAID 1 of three or more; the device is free afterwards. `grow` adds copies.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond array drop-copy hv0 /dev/sdd\n  \
    headpond array drop-copy hv0 missing             # its device is gone and has no name\n\n\
    Given once more it ends what a power cut has left.")]
pub struct DropCopyArgs {
    #[command(flatten)]
    of: OfArgs,
    /// The device, or the UUID of the member (`status --json`), or `missing` for a copy without a
    /// known device.
    #[arg(value_name = "DEV|UUID|missing")]
    copy: String,
}

/// Scrub every stripe in the background: rewrite unreadable blocks, and repair mismatches where the
/// redundancy locates the wrong block. `status` shows the result.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond array scrub hv0 --wait\n  \
    headpond array scrub --all                       # every array with redundancy that is served\n\n\
    One that was interrupted goes on where it was.")]
pub struct ScrubArgs {
    #[command(flatten)]
    each: EachArgs,
    /// Wait, with a progress bar, until it is done.
    #[arg(long, conflicts_with = "all")]
    wait: bool,
}

/// Pause background work on the array: rebuild, reshape, initial sync, scrub. It ends with the
/// daemon.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond array pause hv0\n  \
    headpond array pause --all --scrub               # the end of the hours for scrubs")]
pub struct PauseArgs {
    #[command(flatten)]
    each: EachArgs,
    /// Only scrubs; other work goes on.
    #[arg(long)]
    scrub: bool,
}

/// Resume paused background work, and work that had failed.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond array resume hv0\n  headpond array resume hv0 --wait\n  \
    headpond array resume --all --scrub              # all work but scrubs stays as it is"
)]
pub struct ResumeArgs {
    #[command(flatten)]
    each: EachArgs,
    /// Only scrubs.
    #[arg(long)]
    scrub: bool,
    /// Wait, with a progress bar, until all of it has ended.
    #[arg(long, conflicts_with = "all")]
    wait: bool,
}

/// Set the limits of the rate of background work: rebuild, reshape, initial sync, scrub. Between
/// them it runs at a rate that hardly changes client latency.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond array rate hv0 --min 50M\n  \
    headpond array rate hv0 --max 200M\n\n\
    Bytes a second, of each member for a rebuild or a reshape, else of the array.")]
pub struct RateArgs {
    #[command(flatten)]
    of: OfArgs,
    /// Minimum under client load; mirrors on disks reach it on average over a whole rebuild, which
    /// starts at 30 % of it.
    #[arg(long)]
    min: Option<Size>,
    /// Maximum.
    #[arg(long, conflicts_with = "no_max")]
    max: Option<Size>,
    /// No maximum: as fast as the members allow.
    #[arg(long)]
    no_max: bool,
}

/// The array that is meant.
#[derive(Args)]
pub struct OfArgs {
    volume: String,
    /// The core; default: the first.
    #[arg(long, value_name = "NAME")]
    core: Option<String>,
    /// The cache mirror instead. It cannot be scrubbed, grown, rate-limited or reduced this way,
    /// and has no journal.
    #[arg(long, conflicts_with = "core")]
    cache: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// The array that is meant, or all.
#[derive(Args)]
pub struct EachArgs {
    #[arg(required_unless_present = "all")]
    volume: Option<String>,
    /// The core; default: the first.
    #[arg(long, value_name = "NAME")]
    core: Option<String>,
    /// The cache mirror instead. It cannot be scrubbed this way.
    #[arg(long, conflicts_with = "core")]
    cache: bool,
    /// All arrays with redundancy of all volumes that are served.
    #[arg(long, conflicts_with_all = ["volume", "core", "cache", "json"])]
    all: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl EachArgs {
    /// The one; `None`: all.
    fn one(&self) -> Option<OfArgs> {
        let Self { volume, core, cache, json, .. } = self;
        let (volume, core) = (volume.clone()?, core.clone());
        Some(OfArgs { volume, core, cache: *cache, json: *json })
    }
}

impl OfArgs {
    pub(super) fn core(&self) -> Option<String> {
        if self.cache { Some(CACHE_COPIES.into()) } else { self.core.clone() }
    }

    /// Checks that no other volume's device is overwritten silently.
    fn check_claims(&self, places: &Places, word: &str, force: bool) -> Result<Vec<Claim>> {
        let consent = if force { Consent::Forced } else { Consent::Careful };
        claims::check(places, &[spec(word)?], &self.volume, consent)
    }

    fn what(&self) -> &'static str {
        if self.cache { "cache" } else { "array" }
    }

    /// Refuses `--cache`, with the command that is meant.
    pub(super) fn check_no_cache(&self, way_out: &str) -> Result<()> {
        match self.cache {
            true => Err(Failure::refused(format!("not possible with --cache: {way_out}"))),
            false => Ok(()),
        }
    }

    pub(super) fn post<B: Serialize + Sync>(
        &self,
        places: &Places,
        operation: &Operation<B, Status>,
        body: &B,
    ) -> Result<Status> {
        waiting::post(&Client::of(places, &self.volume)?, operation, body)
    }

    pub(super) fn body(&self) -> OfCoreBody {
        OfCoreBody { core: self.core() }
    }

    fn member(&self, device: &str) -> Result<MemberBody> {
        let (core, device) = (self.core(), spec(device)?.to_string());
        Ok(MemberBody { core, device, ..MemberBody::default() })
    }

    /// Whether work of this kind remains.
    fn is_left(&self, status: &Status, job: JobKind) -> bool {
        let Some(array) = self.array(status) else { return false };
        let is_degraded = array.state == ArrayState::Degraded && array.parity_initialised;
        match job {
            // A hot spare is about to replace a lost member.
            JobKind::Rebuild => {
                let is_filled = array.members.iter().any(|member| member.filling.is_some());
                (is_degraded && !array.spares.is_empty()) || is_filled
            }
            JobKind::StandIn => {
                is_degraded && array.declustered.is_some_and(|it| it.spares_free > 0)
            }
            JobKind::Parity => {
                let is_healthy = array.state == ArrayState::Optimal;
                !array.parity_initialised && is_healthy && array.level != Level::Raid0
            }
            JobKind::Reshape => array.reshape.is_some(),
            _ => self.background(status).is_some_and(|background| background.scrub_wanted),
        }
    }

    /// Waits until work of these kinds has ended.
    fn wait(&self, places: &Places, jobs: &[JobKind]) -> Result<Status> {
        let client = Client::of(places, &self.volume)?;
        let is_left = |status: &Status| jobs.iter().any(|job| self.is_left(status, *job));
        let is_resting = |status: &Status| {
            self.background(status)
                .is_some_and(|background| background.paused || background.failure.is_some())
        };
        let is_paused = |status: &Status, job: JobKind| {
            job == JobKind::ArrayScrub
                && self.background(status).is_some_and(|background| background.scrub_paused)
        };
        let is_to_do = |status: &Status| {
            let is_it = |job: &&JobKind| self.is_left(status, **job) && !is_paused(status, **job);
            jobs.iter().any(|job| is_it(&job)) && !is_resting(status)
        };
        let status = waiting::until_done(&client, jobs, self.core().as_deref(), is_to_do)?;
        match self.background(&status).and_then(|background| background.failure.as_ref()) {
            Some(failure) => Err(Failure::refused(failure)),
            None if is_left(&status) => Err(Failure::refused(format!(
                "it is paused: `headpond array resume {}` resumes it",
                self.volume
            ))),
            None => Ok(status),
        }
    }

    fn array<'a>(&self, status: &'a Status) -> Option<&'a ArrayStatus> {
        match self.mirror(status) {
            Some(mirror) => Some(&mirror.array),
            None => self.core_of(status)?.array.as_ref(),
        }
    }

    fn background<'a>(&self, status: &'a Status) -> Option<&'a BackgroundStatus> {
        match self.mirror(status) {
            Some(mirror) => Some(&mirror.background),
            None => self.core_of(status)?.background.as_ref(),
        }
    }

    fn mirror<'a>(&self, status: &'a Status) -> Option<&'a MirrorStatus> {
        status.live_cache()?.mirror.as_ref().filter(|_| self.cache)
    }

    fn core_of<'a>(&self, status: &'a Status) -> Option<&'a CoreAnswer> {
        status.core(self.core.as_deref()).filter(|_| !self.cache)
    }

    pub(super) fn tell(&self, done: &str, status: &Status) -> Result<Exit> {
        match (self.json, self.mirror(status), self.core_of(status)) {
            (true, Some(mirror), _) => print_json(&Versioned::new(mirror))?,
            (true, None, core) => print_json(&core.map(Versioned::new))?,
            (false, ..) => {
                println!("{}: {done}", self.volume);
                match (&status.cache, self.core_of(status)) {
                    (Some(cache), _) if self.cache => status::print_copies(cache),
                    (_, core) => {
                        let has_errors = status.has_array_errors();
                        let array = core.and_then(|core| Some((core, core.array.as_ref()?)));
                        array.into_iter().for_each(|(core, array)| {
                            status::print_array(core, array, has_errors);
                        });
                    }
                }
                status::print_jobs(status);
            }
        }
        Ok(Exit::Ok)
    }
}

pub fn add_spare(places: &Places, args: &AddSpareArgs) -> Result<Exit> {
    let body = MemberBody { force: args.force, ..args.of.member(&args.device)? };
    let claims = args.of.check_claims(places, &args.device, args.force)?;
    let mut status = args.of.post(places, &operations::ADD_SPARE, &body)?;
    claims::tell_lost(&claims);
    if args.wait {
        status = args.of.wait(places, &[JobKind::Rebuild])?;
    }
    args.of.tell(&format!("{} is added to the {}", body.device, args.of.what()), &status)
}

pub fn re_add(places: &Places, args: &ReAddArgs) -> Result<Exit> {
    let body = args.of.member(&args.device)?;
    let mut status = args.of.post(places, &operations::RE_ADD, &body)?;
    if args.wait {
        status = args.of.wait(places, &[JobKind::Rebuild])?;
        return args.of.tell(&format!("{} is re-added and in sync", body.device), &status);
    }
    args.of.tell(&format!("{} is re-added, and being resynced", body.device), &status)
}

pub fn replace(places: &Places, args: &ReplaceArgs) -> Result<Exit> {
    let with = args.with.as_deref().map(|word| Ok::<_, anyhow::Error>(spec(word)?.to_string()));
    let (with, force) = (with.transpose()?, args.force);
    let claims = match &args.with {
        Some(with) => args.of.check_claims(places, with, force)?,
        None => Vec::new(),
    };
    let body = MemberBody { with, force, ..args.of.member(&args.device)? };
    let mut status = args.of.post(places, &operations::REPLACE, &body)?;
    claims::tell_lost(&claims);
    if args.wait {
        status = args.of.wait(places, &[JobKind::Rebuild])?;
        return args.of.tell(&format!("{} is replaced and free", body.device), &status);
    }
    args.of.tell(&format!("{} is being replaced", body.device), &status)
}

pub fn grow(places: &Places, args: &GrowArgs) -> Result<Exit> {
    args.of.check_no_cache(
        "all copies of a mirror are alike; `headpond array add-spare` adds a device",
    )?;
    let words = args.devices.iter().map(|word| Ok(spec(word)?.to_string()));
    let devices = words.collect::<Result<Vec<String>>>()?;
    let body = GrowBody { core: args.of.core.clone(), devices, force: args.force };
    let mut status = args.of.post(places, &operations::GROW, &body)?;
    if args.of.array(&status).is_some_and(|array| array.level == Level::Raid1) {
        return grow_copies(places, args, status);
    }
    if args.wait {
        status = args.of.wait(places, &[JobKind::Reshape])?;
        let size = size(args.of.array(&status).map_or(0, |array| array.size_bytes));
        let done = format!("reshape done; clients that connect from now on see {size}");
        return args.of.tell(&done, &status);
    }
    args.of.tell("the reshape has started", &status)
}

fn grow_copies(places: &Places, args: &GrowArgs, mut status: Status) -> Result<Exit> {
    if args.wait {
        status = args.of.wait(places, &[JobKind::Rebuild])?;
        return args.of.tell("the new copies are in sync", &status);
    }
    args.of.tell("the new copies are being synced", &status)
}

pub fn fail(places: &Places, args: &MemberArgs) -> Result<Exit> {
    let body = args.of.member(&args.device)?;
    let status = args.of.post(places, &operations::FAIL, &body)?;
    args.of.tell(&format!("{} is marked failed", body.device), &status)
}

pub fn remove(places: &Places, args: &MemberArgs) -> Result<Exit> {
    let body = args.of.member(&args.device)?;
    let status = args.of.post(places, &operations::REMOVE, &body)?;
    args.of.tell(&format!("{} is removed from the {}", body.device, args.of.what()), &status)
}

pub fn drop_copy(places: &Places, args: &DropCopyArgs) -> Result<Exit> {
    args.of.check_no_cache("`headpond cache replace` makes a cache on other devices")?;
    let is_device = args.copy != MISSING && args.copy.parse::<Uuid>().is_err();
    let body = match is_device {
        true => args.of.member(&args.copy)?,
        false => {
            MemberBody { core: args.of.core(), device: args.copy.clone(), ..MemberBody::default() }
        }
    };
    let status = args.of.post(places, &operations::DROP_COPY, &body)?;
    let done = match is_device {
        true => format!("{} is removed from the array and free", body.device),
        false => "one copy is removed from the array".to_owned(),
    };
    args.of.tell(&done, &status)
}

pub fn scrub(places: &Places, args: &ScrubArgs) -> Result<Exit> {
    let Some(of) = args.each.one() else {
        let body = |core| OfCoreBody { core };
        return on_each(places, &operations::SCRUB, body, "the scrub has started");
    };
    of.check_no_cache("`headpond cache scrub` finds the right copy by checksums")?;
    let mut status = of.post(places, &operations::SCRUB, &of.body())?;
    if !args.wait {
        return of.tell("the scrub has started", &status);
    }
    status = of.wait(places, &[JobKind::ArrayScrub])?;
    let scrub = of.array(&status).map(|array| array.scrub_report()).unwrap_or_default();
    let done = format!(
        "{} stripes scrubbed: {} strips rewritten, {} sectors repaired ({} of them located \
         by checksum), {} unexplained sectors, {} unreadable stripes",
        scrub.stripes,
        scrub.rewritten,
        scrub.corrected_sectors,
        scrub.located_by_checksum,
        scrub.unexplained_sectors,
        scrub.unreadable_stripes
    );
    of.tell(&done, &status)?;
    let is_sound = scrub.unexplained_sectors + scrub.unreadable_stripes == 0;
    Ok(if is_sound { Exit::Ok } else { Exit::Refused })
}

pub fn pause(places: &Places, args: &PauseArgs) -> Result<Exit> {
    let scrub = args.scrub;
    let work = if scrub { "scrubs" } else { "background work" };
    let Some(of) = args.each.one() else {
        let body = |core| PauseBody { core, scrub };
        return on_each(places, &operations::PAUSE, body, &format!("{work}: paused"));
    };
    let status = of.post(places, &operations::PAUSE, &PauseBody { core: of.core(), scrub })?;
    let what = of.what();
    of.tell(&format!("{work} on the {what}: paused until `headpond array resume`"), &status)
}

pub fn resume(places: &Places, args: &ResumeArgs) -> Result<Exit> {
    let scrub = args.scrub;
    let work = if scrub { "scrubs" } else { "background work" };
    let Some(of) = args.each.one() else {
        let body = |core| PauseBody { core, scrub };
        return on_each(places, &operations::RESUME, body, &format!("{work}: resumed"));
    };
    let status = of.post(places, &operations::RESUME, &PauseBody { core: of.core(), scrub })?;
    match args.wait {
        true => wait(places, &of),
        false => of.tell(&format!("{work} on the {}: resumed", of.what()), &status),
    }
}

pub fn wait(places: &Places, of: &OfArgs) -> Result<Exit> {
    let status = of.wait(places, &JOBS)?;
    of.tell(&format!("no background work on the {} is left", of.what()), &status)
}

pub fn rate(places: &Places, args: &RateArgs) -> Result<Exit> {
    args.of.check_no_cache("a cache mirror is resynced at a fixed rate of its own")?;
    let RateArgs { min, max, no_max, .. } = *args;
    let body = RateBody { core: args.of.core.clone(), min, max, no_max };
    let status = args.of.post(places, &operations::RATE, &body)?;
    let background = args.of.background(&status).cloned().unwrap_or_default();
    let max = background.max_bytes_per_s.map(|it| format!("at most {}/s", Size(it)));
    let (min, max) = (Size(background.min_bytes_per_s), max.unwrap_or("no maximum".into()));
    args.of.tell(&format!("background work: at least {min}/s under client load, {max}"), &status)
}
