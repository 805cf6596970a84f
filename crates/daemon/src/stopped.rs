//! Changing the settings of a volume that is not served.

use super::assembly::{Assembly, assemble};
use super::systemd::Notifier;
use crate::device::Opener;
use crate::host;
use crate::wall_clock::rfc3339;
use anyhow::Result;
use headpond_api::events::{Event, EventFiles, EventKind, EventWriter, Severity};
use headpond_api::outcome::Failure;
use headpond_api::place::Places;
use headpond_block::{BufferPool, PoolConfig};
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
    let pool = BufferPool::new(&PoolConfig::default());
    let changed = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let opener = Opener::new(ring, runtime.clone());
        // What the members say is changed, not what the file says.
        let assembly = assemble(&opener, &runtime, described).await?;
        let Assembly { description, devices, differences, .. } = assembly;
        differences.iter().for_each(|difference| tracing::warn!("{difference}"));
        let changed = change(description)?;
        let claimant = Some(host::claimant(&Notifier::default()));
        let recorded = Volume::record_stopped(&runtime, &changed, devices, claimant).await;
        recorded.map_err(|error| Failure::of(error, |it| !is_device_error(it)))?;
        Ok::<_, anyhow::Error>(changed)
    })??;
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

fn is_device_error(error: &RecordStoppedError) -> bool {
    use headpond_volume::RecordError;
    matches!(error, RecordStoppedError::Record(RecordError::Device(_)))
}
