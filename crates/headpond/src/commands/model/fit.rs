//! `headpond model fit`.

use super::args::{FitArgs, FitKindChoice};
use crate::device::{Consent, DeviceSpec, Opener, not_opened, vet};
use crate::telling::{document, print_json};
use anyhow::{Context, Result};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_block::{BlockDevice, BufferPool, PoolConfig};
use headpond_uring::{Access, FileDevice, FileOptions, Ownership, RingConfig, run_with_pool};
use headpond_whatif::fit::{FitKind, FitOptions, Measured, measure};
use serde_json::json;
use std::rc::Rc;

/// The seed of the addresses, so that measurements are repeatable.
const SEED: u64 = 1;

/// # Errors
/// Refusals before anything is written, and what the device answers.
pub fn run(args: &FitArgs) -> Result<Exit> {
    let spec: DeviceSpec = args.device.parse().map_err(Failure::usage)?;
    if args.destructive {
        let consent = if args.force { Consent::Forced } else { Consent::Careful };
        vet(&spec, consent)?;
    }
    let measured = carry_out(args, &spec)?;
    let name = args.output.as_ref().and_then(|path| path.file_stem());
    let name = name.map_or("fitted".into(), |stem| stem.to_string_lossy().into_owned());
    let text = measured.model_text(&name, &spec.to_string())?;
    if let Some(path) = &args.output {
        std::fs::write(path, &text).with_context(|| path.display().to_string())?;
    }
    if args.json {
        let report = json!({ "measured": measured, "model": text });
        print_json(&Versioned::new(report))?;
    } else if let Some(path) = &args.output {
        println!("{}: a model of {spec}", path.display());
    } else {
        document(&text);
    }
    Ok(Exit::Ok)
}

fn carry_out(args: &FitArgs, spec: &DeviceSpec) -> Result<Measured> {
    let options = FitOptions {
        destructive: args.destructive,
        kind: args.kind.map(|kind| match kind {
            FitKindChoice::Hdd => FitKind::Hdd,
            FitKindChoice::Ssd => FitKind::Ssd,
            FitKindChoice::Remote => FitKind::Remote,
        }),
        seed: SEED,
    };
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let device: Rc<dyn BlockDevice> = match (spec, args.destructive) {
            // A reader needs no lock.
            (DeviceSpec::Path(path), false) => {
                let options = FileOptions::new(path).access(Access::ReadOnly);
                let options = options.ownership(Ownership::Shared);
                Rc::new(FileDevice::open(&ring, &options).map_err(not_opened)?)
            }
            _ => Opener::new(ring, runtime.clone()).open(spec).await?,
        };
        let progress = |what: &str| eprintln!("measuring {spec}: {what}");
        let measured = measure(&device, &runtime, options, &progress).await;
        measured.with_context(|| spec.to_string())
    })?
}
