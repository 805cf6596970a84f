//! Changing a volume that is not served: its settings, and the errors that its members keep.

use super::assembly::{Assembly, assemble};
use super::systemd::Notifier;
use crate::device::Opener;
use crate::host;
use crate::wall_clock::rfc3339;
use anyhow::Result;
use headpond_api::events::{Event, EventFiles, EventKind, EventWriter, Severity};
use headpond_api::outcome::Failure;
use headpond_api::place::Places;
use headpond_block::{BufferPool, PoolConfig, Runtime};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::{Description, RecordStoppedError, SettingChange, Volume};
use std::time::SystemTime;

/// Changes the description of a volume that is not served, on its members and in its file.
///
/// # Errors
/// What `change` refuses, or where the members cannot be written.
pub fn set_stopped(
    places: &Places,
    described: &Description,
    change: impl FnOnce(Description) -> Result<Description>,
) -> Result<Description> {
    let changed = with_members(described, async |runtime, assembly| {
        // What the members say is changed, not what the file says.
        let Assembly { description, devices, differences, .. } = assembly;
        differences.iter().for_each(|difference| tracing::warn!("{difference}"));
        let changed = change(description)?;
        let claimant = Some(host::claimant(&Notifier::default()));
        let recorded = Volume::record_stopped(&runtime, &changed, devices, claimant).await;
        recorded.map_err(refusal)?;
        Ok(changed)
    })?;
    places.save(&changed)?;
    Ok(changed)
}

/// Keeps the event of settings that this process has changed while the volume was not served.
///
/// # Errors
/// Where the state folder cannot be written.
pub fn keep_event_of_set(
    places: &Places,
    volume: &str,
    changes: &[SettingChange],
) -> std::io::Result<()> {
    let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let (uid, pid) = (rustix::process::getuid().as_raw(), std::process::id());
    let text = format!("settings {} by user {uid}, process {pid}; not served", words.join(" "));
    let mut event = Event::new(EventKind::SettingsChanged, Severity::Info, text)
        .with("uid", uid)
        .with("pid", pid)
        .with("asked", serde_json::json!({ "changes": words }));
    event.time = rfc3339(SystemTime::now());
    event.volume = volume.to_owned();
    EventWriter::open(EventFiles::of(places, volume))?.0.append(&mut event)
}

/// Clears the errors of a device, or all, that the members of a volume that is not served keep.
///
/// # Errors
/// Where it has no such device, or the members cannot be written.
pub fn clear_stopped(described: &Description, device: Option<&str>) -> Result<()> {
    with_members(described, async |runtime, assembly| {
        let Assembly { description, devices, .. } = assembly;
        let claimant = Some(host::claimant(&Notifier::default()));
        let cleared =
            Volume::clear_errors_stopped(&runtime, &description, devices, claimant, device).await;
        cleared.map_err(refusal)
    })
}

fn with_members<A>(
    described: &Description,
    work: impl AsyncFnOnce(Runtime, Assembly) -> Result<A>,
) -> Result<A> {
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let opener = Opener::new(ring, runtime.clone());
        let assembly = assemble(&opener, &runtime, described).await?;
        work(runtime, assembly).await
    })?
}

fn refusal(error: RecordStoppedError) -> anyhow::Error {
    match error {
        RecordStoppedError::Clear(error) => Failure::usage(error),
        error => Failure::of(error, |it| !is_device_error(it)),
    }
}

fn is_device_error(error: &RecordStoppedError) -> bool {
    use headpond_volume::RecordError;
    matches!(error, RecordStoppedError::Record(RecordError::Device(_)))
}
