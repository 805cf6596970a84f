//! `headpond witness probe`.

use super::args::ProbeArgs;
use super::target::Target;
use crate::device::{Consent, DeviceSpec};
use crate::telling::print_json;
use anyhow::{Context, Result};
use headpond_api::answers::Versioned;
use headpond_api::outcome::Exit;
use headpond_block::{BufferPool, PoolConfig};
use headpond_drive::{CacheState, Drive, Facts, Protection};
use headpond_uring::safety::inspect;
use headpond_uring::{RingConfig, run_with_pool};
use headpond_witness::probe::{
    Explanation, Judgement, Measured, Options, OwnCache, Reported, judge, measure,
};
use serde_json::json;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

/// The seed of the addresses, so that measurements are repeatable.
const SEED: u64 = 1;

/// # Errors
/// Refusals before anything is written, and what the device answers.
pub fn run(args: &ProbeArgs) -> Result<Exit> {
    let target: &Target = &args.device.parse()?;
    let pool = BufferPool::new(&PoolConfig::default());
    let (reported, measured) =
        run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
            let consent = if args.force { Consent::Forced } else { Consent::Careful };
            let device = match args.destructive {
                true => target.open_to_write(&ring, &runtime, consent).await?,
                false => target.open_to_read(&ring, &runtime).await?,
            };
            let mut reported = reported(target)?;
            reported.rotational = reported.rotational.or(Some(device.geometry().rotational));
            let written = args.size.bytes().min(device.size_bytes());
            let options = Options {
                write_bytes: if args.destructive { written } else { 0 },
                time: Duration::from_secs(args.time.max(1)),
            };
            let progress = |what: &str| eprintln!("headpond: probing {}: {what}", args.device);
            let measured = measure(&*device, &runtime, options, SEED, &progress).await?;
            Ok::<_, anyhow::Error>((reported, measured))
        })??;
    let judgement = judge(&reported, &measured);
    if args.json {
        let report = json!({ "reported": reported, "measured": measured, "judgement": judgement });
        print_json(&Versioned::new(report))?;
    } else {
        print(args, &reported, &measured, &judgement);
    }
    Ok(exit(&judgement))
}

fn exit(judgement: &Judgement) -> Exit {
    match judgement.named.as_slice() {
        [] => Exit::Degraded,
        [Explanation::IgnoresFlushes] => Exit::Error,
        named if named.contains(&Explanation::IgnoresFlushes) => Exit::Degraded,
        _ => Exit::Ok,
    }
}

/// Properties reported by the kernel.
fn reported(target: &Target) -> Result<Reported> {
    let Target::Device(DeviceSpec::Path(path)) = target else { return Ok(Reported::default()) };
    let facts = inspect(path)?;
    let mut reported = Reported {
        rotational: facts.rotational,
        write_cache: facts.write_cache,
        volatile: facts.volatile.map(|reason| reason.to_string()),
        ..Reported::default()
    };
    let is_device =
        path.metadata().with_context(|| path.display().to_string())?.file_type().is_block_device();
    // A device that is not a drive, such as an md array, has none of its own.
    if let (true, Ok(drive)) = (is_device, Drive::find(path)) {
        add(&mut reported, &Facts::of(&drive));
    }
    Ok(reported)
}

/// Properties reported by the drive, and known of its name and its driver.
fn add(reported: &mut Reported, facts: &Facts) {
    let Facts { kernel, own, .. } = facts;
    reported.fua = kernel.fua.value().copied();
    reported.model = kernel.model.value().cloned();
    reported.turns_per_minute = kernel.rotations_per_minute.value().copied();
    reported.non_volatile_cache = own.non_volatile_cache.value().copied();
    reported.own_cache = own.write_cache.value().map(|state| match state {
        CacheState::Absent => OwnCache::Absent,
        CacheState::Off => OwnCache::Off,
        CacheState::On => OwnCache::On,
    });
    reported.is_sold_as_protected = Protection::family_of(kernel).map(|hint| hint.says);
    reported.controller = Protection::controller_of(kernel).map(|hint| hint.says);
}

fn print(args: &ProbeArgs, reported: &Reported, measured: &Measured, judgement: &Judgement) {
    println!("{}: {}", args.device, headline(judgement, measured));
    if let Some(reason) = &reported.volatile {
        println!("  in any case it is volatile: {reason}");
    }
    let told = |what: Option<bool>| what.map_or("unknown", |it| if it { "yes" } else { "no" });
    println!(
        "  reported: {}rotational {}, volatile write cache {} (reported by the drive: {}), FUA {}",
        reported.model.as_ref().map(|model| format!("{model}, ")).unwrap_or_default(),
        told(reported.rotational),
        told(reported.write_cache),
        match reported.own_cache {
            None => "not reported",
            Some(OwnCache::Absent) => "none",
            Some(OwnCache::Off) => "off",
            Some(OwnCache::On) => "on",
        },
        told(reported.fua)
    );
    for (explanation, likelihood) in &judgement.likelihoods {
        println!("  {:>4.0} %  {}", likelihood * 100.0, words(*explanation));
    }
    println!("because");
    judgement.reasons.iter().for_each(|reason| println!("  - {}", reason.seen));
    println!(
        "The likelihoods are estimates, and timing is no proof: a device may wait for its medium \
         and still lose flushed data. `headpond witness write` tests that with a power cut."
    );
}

fn headline(judgement: &Judgement, measured: &Measured) -> String {
    if measured.writes.is_none() {
        return "reads alone do not show how it handles flushes; --destructive writes to it".into();
    }
    let named: Vec<&str> = judgement.named.iter().map(|it| words(*it)).collect();
    match named.len() {
        1 => format!("most likely it {}", named[0]),
        _ => format!("timing cannot tell; it {}", named.join(", or it ")),
    }
}

fn words(explanation: Explanation) -> &'static str {
    match explanation {
        Explanation::HonoursFlushes => "has a volatile cache and writes it out at a flush",
        Explanation::WritesThrough => "has no volatile cache",
        Explanation::ProtectedCache => "has a cache that survives a power cut",
        Explanation::BehindACache => "is hidden behind a controller's or another layer's cache",
        Explanation::IgnoresFlushes => "ignores flushes",
    }
}
