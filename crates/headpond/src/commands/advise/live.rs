//! `headpond advise --live`: watches a served volume.
//!
//! 1. The daemon records a short sample periodically ([`LiveVolume::look`]).
//! 2. The watch (`headpond_advise::live`) decides.
//! 3. Each action is in the volume's journal before it is taken.
//!
//! **Invariants**: the search runs in this process at the lowest CPU priority; the daemon only
//! records requests and applies settings.

use super::journal::Journal;
use super::machine::served;
use super::{advise, wish};
use crate::args::AdviseArgs;
use crate::commands::simulate::progress::simulate_shown;
use crate::interrupt;
use anyhow::{Context, Result};
use headpond_advise::advice::shadow;
use headpond_advise::live::{Event, Look, Orders, Proposal, Served, Watch, Weakening, weakens};
use headpond_advise::search::Gain;
use headpond_advise::{Goal, Sample, Sampler, Setting, Signature, Situation};
use headpond_api::answers::{CoreAnswer, Status};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_api::requests::{SampleBody, SetBody};
use headpond_raid::ArrayStatus;
use headpond_report::shell_words;
use headpond_trace::{ReadOptions, TraceFormat, TraceReader};
use headpond_volume::{CacheStatus, Description, SettingChange, ShownSetting};
use headpond_whatif::Stack;
use std::io::ErrorKind;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Limits of a sample. Twenty thousand requests a minute are less than 1 % of a busy volume's, and
/// ten seconds a sixth of the minute of an idle one.
const REQUESTS_MAX: u64 = 20_000;
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The search must not compete with the daemon.
const NICENESS: i32 = 19;

/// Watches until it is interrupted, or for a number of samples.
///
/// # Errors
/// Where the volume is not served any more, or the journal cannot be written.
pub fn run(places: &Places, args: &AdviseArgs, name: &str) -> Result<Exit> {
    // Without it, the search only competes with the daemon.
    let _ = rustix::process::nice(NICENESS);
    let client = Client::of(places, name)?;
    check(name, args, &client.call(&operations::STATUS)?)?;
    let journal = Journal::open(places.journal(name), args.json)?;
    let mut volume = LiveVolume { places, args, name, client, journal };
    volume.take_back_what_was_left()?;
    let full = REQUESTS_MAX as usize;
    let mut watch = Watch::new(Orders { goal: args.goal, apply: args.live.apply, full });
    let (end, asked_to_end) = channel();
    let note = "ending: a setting on trial is set back; a second signal does not wait for that";
    interrupt::ends(note, move || {
        // The receiver may be gone.
        let _ = end.send(());
    });
    let mut go_on = || -> Result<()> {
        for taken in 1.. {
            if args.live.looks.is_some_and(|looks| looks < taken) {
                break;
            }
            let look = volume.look()?;
            watch.next(look, &mut volume)?;
            // An interrupt takes effect at the end of the search.
            let is_last = args.live.looks == Some(taken);
            let pause = Duration::from_secs(if is_last { 0 } else { args.live.every });
            if crate::telling::is_unheard() || asked_to_end.recv_timeout(pause).is_ok() {
                break;
            }
        }
        Ok(())
    };
    let went_on = go_on();
    // At the end nothing is left on trial, if possible.
    let ended = watch.end(&mut volume);
    went_on.and(ended)?;
    Ok(Exit::Ok)
}

/// A watch needs a cache, and a measurable goal to apply settings.
fn check(name: &str, args: &AdviseArgs, status: &Status) -> Result<()> {
    if status.cache.is_none() {
        return Err(Failure::usage(format!(
            "{name} has no cache to advise on: `headpond trace record {name}` and \
             `headpond advise TRACE --volume {name}` say what one would do"
        )));
    }
    if args.live.apply && matches!(args.goal, Goal::Safety | Goal::Endurance) {
        return Err(Failure::usage(format!(
            "--goal {} cannot be measured in a trial: without --apply there is advice, and \
             throughput, mean and p99 can be applied",
            args.goal
        )));
    }
    Ok(())
}

struct LiveVolume<'a> {
    places: &'a Places,
    args: &'a AdviseArgs,
    name: &'a str,
    client: Client,
    journal: Journal,
}

impl LiveVolume<'_> {
    /// The present requests.
    fn look(&self) -> Result<Look> {
        let output = std::path::absolute(self.places.look(self.name))?;
        match std::fs::remove_file(&output) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", output.display()));
            }
            _ => {}
        }
        let body = SampleBody {
            output: output.clone(),
            requests_max: REQUESTS_MAX,
            milliseconds_max: LOOK_MAX.as_millis() as u64,
        };
        self.client.call_with(&operations::SAMPLE, &body)?;
        let mut reader = TraceReader::open(&output, ReadOptions::default())?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        std::fs::remove_file(&output)?;
        Ok(Look::of(records))
    }

    fn situation(&self) -> Result<Situation> {
        let status = self.client.call(&operations::STATUS)?;
        let mut situation = served(&self.places.load(self.name)?, &status, self.args)?;
        wish(&mut situation, self.args);
        situation.keeps_promises = self.args.live.apply && !self.args.may_lose_dirty;
        Ok(situation)
    }

    /// A killed watch left settings without a verdict.
    fn take_back_what_was_left(&mut self) -> Result<()> {
        let Some((settings, back)) = self.journal.left_on_trial()? else { return Ok(()) };
        if !self.args.live.apply {
            eprintln!(
                "headpond: note: a watch was killed while {} was on trial: --apply rolls it back",
                shell_words(&settings)
            );
            return Ok(());
        }
        let why = "the previous watch was killed before its verdict".to_owned();
        self.note(Event::RollingBack { why, settings: back.clone() })?;
        self.take_back(&settings, &back)?;
        self.note(Event::RolledBack { settings: back })
    }
}

impl Served for LiveVolume<'_> {
    type Error = anyhow::Error;

    fn advise(&mut self, looks: &[Look]) -> Result<Proposal> {
        let situation = self.situation()?;
        let (signature, sample) = condensed(looks, &situation);
        let advice = advise(&signature, (sample, TraceFormat::Recording), &situation)?;
        let reason =
            |it: &headpond_advise::advice::Reason| format!("{}: {}", it.setting, it.reason);
        Ok(Proposal {
            gain: advice.standing.as_ref().and_then(|standing| standing.gain),
            is_worth_changing: advice.is_worth_changing(),
            reasons: advice.reasons.iter().map(reason).collect(),
            requests_per_second: advice.with_advice.requests_per_second,
            settings: advice.settings,
        })
    }

    fn weakened_by(&mut self, settings: &[Setting]) -> Result<Option<Weakening>> {
        let description = self.places.load(self.name)?;
        let Some(cache) = description.cache else { return Ok(None) };
        Ok(weakens(&cache.settings, settings).filter(|_| !self.args.may_lose_dirty))
    }

    fn way_back(&mut self, settings: &[Setting]) -> Result<Vec<String>> {
        let settings: Vec<String> = settings.iter().map(Setting::to_string).collect();
        way_back(&self.places.load(self.name)?, &settings)
    }

    fn unsettled(&mut self) -> Result<Option<String>> {
        let status = self.client.call(&operations::STATUS)?;
        Ok(unsettled(&status).map(str::to_owned))
    }

    fn take_back(&mut self, settings: &[String], back: &[String]) -> Result<()> {
        let still = still_set(&self.places.load(self.name)?, settings, back)?;
        if still.is_empty() { Ok(()) } else { self.set(&still) }
    }

    fn set(&mut self, settings: &[String]) -> Result<()> {
        let body = SetBody { changes: parsed(settings)?, ..SetBody::default() };
        self.client.call_with(&operations::SET, &body).map(drop)
    }

    fn shadow(&mut self, looks: &[Look], back: &[String]) -> Result<Gain> {
        let situation = self.situation()?;
        let (signature, sample) = condensed(looks, &situation);
        let before = with(&situation.stack, back)?;
        let sample = (sample, TraceFormat::Recording);
        Ok(shadow(&signature, sample, &situation, &before, &mut simulate_shown)?)
    }

    fn note(&mut self, event: Event) -> Result<()> {
        self.journal.note(event)
    }
}

fn condensed(looks: &[Look], situation: &Situation) -> (Signature, Sample) {
    let records = Look::joined(looks);
    let mut sampler = Sampler::new(situation.effort.requests_max());
    records.iter().for_each(|record| sampler.add(record));
    (Signature::of_records(&records), sampler.finish())
}

fn parsed(settings: impl IntoIterator<Item = impl ToString>) -> Result<Vec<SettingChange>> {
    let parse = |setting: &dyn ToString| Ok(setting.to_string().parse()?);
    settings.into_iter().map(|setting| parse(&setting)).collect()
}

/// The same machine with other settings.
fn with(stack: &Stack, settings: &[String]) -> Result<Stack> {
    let changes = parsed(settings)?;
    let of = SettingChange::by_owner(&changes);
    let mut stack = stack.clone();
    stack.array = stack.array.with_all(&of.array)?;
    if let Some(cache) = &mut stack.cache {
        cache.settings = cache.settings.with_all(&of.cache)?;
    }
    Ok(stack)
}

/// The present values of these settings.
fn way_back(now: &Description, settings: &[String]) -> Result<Vec<String>> {
    let changes = parsed(settings)?;
    let of = SettingChange::by_owner(&changes);
    let mut back = Vec::new();
    if let Some(cache) = &now.cache {
        let then = cache.settings.with_all(&of.cache)?;
        back.extend(differences(&cache.settings.shown(), &then.shown()));
    }
    back.extend(differences(&now.array.shown(), &now.array.with_all(&of.array)?.shown()));
    Ok(back)
}

/// Of a rollback, the settings that are still those of the trial: others were changed since.
fn still_set(now: &Description, settings: &[String], back: &[String]) -> Result<Vec<String>> {
    let key = |change: &str| change.split('=').next().unwrap_or_default().to_owned();
    let others: Vec<String> = way_back(now, settings)?.iter().map(|it| key(it)).collect();
    Ok(back.iter().filter(|change| !others.contains(&key(change))).cloned().collect())
}

/// A temporary state of the volume that makes a comparison meaningless.
fn unsettled(status: &Status) -> Option<&'static str> {
    let cache = status.live_cache();
    let is = |state: fn(&CacheStatus) -> bool| cache.is_some_and(state);
    let is_at_work = |core: &CoreAnswer| {
        let is_paused = core.background.as_ref().is_some_and(|background| background.paused);
        !is_paused && core.array.as_ref().is_some_and(has_work)
    };
    match () {
        () if is(|cache| cache.failed) => Some("the cache has failed"),
        () if is(|cache| cache.in_fallback) => {
            Some("the cache device reports errors and is in pass-through")
        }
        () if is(|cache| cache.draining) => Some("dirty data is being cleaned"),
        () if status.cores.iter().any(is_at_work) => Some("background work runs on the array"),
        () => None,
    }
}

fn has_work(array: &ArrayStatus) -> bool {
    array.progress.initialising.is_some()
        || array.progress.scrubbing.is_some()
        || array.reshape.is_some()
        || array.members.iter().any(|member| member.filling.is_some())
}

/// A preset is only a name for other settings.
fn differences(now: &[ShownSetting], then: &[ShownSetting]) -> Vec<String> {
    let is_other = |setting: &&ShownSetting| {
        let same =
            |other: &ShownSetting| (&other.key, &other.value) == (&setting.key, &setting.value);
        !matches!(&*setting.key, "preset" | "tier.preset") && !then.iter().any(same)
    };
    let told = |setting: &ShownSetting| format!("{}={}", setting.key, setting.value);
    now.iter().filter(is_other).map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(settings: &str) -> Description {
        let text = format!(
            "name = \"v\"\nuuid = \"7f9c24e8-3b12-4fef-91e0-1f2d0c7f1f5a\"\nslices = 1\n\
             [cache]\ndevice = \"/c\"\n{settings}\n\
             [core]\nraid = 0\nstrip = \"64K\"\nmembers = [\"/a\", \"/b\"]\n"
        );
        Description::parse(&text).unwrap()
    }

    #[test]
    fn there_is_a_way_back_from_every_setting_of_a_preset_and_from_no_other() {
        let now = description(
            "mode = \"write-through\"\nseq_cutoff = \"2M\"\n[cache.cleaning]\npolicy = \"alru\"\nalru = { staleness_s = 77 }",
        );
        let settings = [
            "mode=write-back",
            "preset=acp-very-aggressive",
            "seq-cutoff=full",
            "merge-wait-us=off",
        ]
        .map(str::to_owned);
        let back = way_back(&now, &settings).unwrap();
        for expected in
            ["mode=write-through", "cleaning=alru", "seq-cutoff=2M", "merge-wait-us=auto"]
        {
            assert!(back.iter().any(|it| it == expected), "{expected}: {back:?}");
        }
        assert!(!back.iter().any(|it| it.starts_with("eviction") || it.starts_with("preset")));
        let changes = parsed(&settings).unwrap();
        let of = SettingChange::by_owner(&changes);
        let changed = now.cache.as_ref().unwrap().settings.with_all(&of.cache).unwrap();
        let returned = changed.with_all(&SettingChange::by_owner(&parsed(&back).unwrap()).cache);
        assert_eq!(returned.unwrap(), now.cache.unwrap().settings);
    }

    #[test]
    fn what_somebody_else_has_set_in_a_trial_is_not_taken_back() {
        let settings = ["mode=write-around".to_owned(), "seq-cutoff=never".to_owned()];
        let back = ["mode=write-back".to_owned(), "seq-cutoff=full".to_owned()];
        let still = |now: &str| still_set(&description(now), &settings, &back).unwrap();
        assert_eq!(still("mode = \"write-around\"\nseq_cutoff = \"never\""), back);
        assert_eq!(still("mode = \"write-through\"\nseq_cutoff = \"never\""), back[1..]);
        assert!(still("mode = \"write-through\"\nseq_cutoff = \"1M\"").is_empty());
    }
}
