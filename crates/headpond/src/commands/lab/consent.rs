//! What a plan may write to.

use super::surroundings::Served;
use crate::device::{Consent, DeviceSpec, Export, vet};
use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_lab::{Kind, PlaceError, Plan, Surroundings, Target, check_places};
use std::io::ErrorKind;

/// The places of the targets that a plan writes to.
pub fn overwritten(plan: &Plan) -> impl Iterator<Item = String> + '_ {
    let prepares = plan.precondition.is_anything();
    let cells = plan.cells();
    let writes = prepares
        || plan.beside.iter().any(|beside| beside.rw.contains('w'))
        || cells.iter().any(|cell| cell.load.writes());
    let real = plan.targets.iter().filter(|target| target.kind() != Kind::Machine);
    let each = real.filter(move |_| writes).flat_map(Target::each);
    each.filter_map(|target| target.place())
}

/// Checks that every target that is written was confirmed, and holds no data.
///
/// # Errors
/// A refusal; nothing was changed.
pub fn check(plan: &Plan, allowed: &[String], served: &Served<'_>) -> Result<()> {
    let places: Vec<_> = overwritten(plan).collect();
    check_places(plan).map_err(wrong_place)?;
    let allowed: Vec<_> = allowed.iter().map(|word| named(word, &places)).collect();
    let missing: Vec<_> = places.iter().filter(|place| !allowed.contains(place)).collect();
    if let [place, ..] = missing[..] {
        return Err(Failure::refused(format!(
            "the plan overwrites {place}; if its data may be lost, confirm it: --overwrite \
             {place}"
        )));
    }
    if let Some(stranger) = allowed.iter().find(|place| !places.contains(place)) {
        return Err(Failure::usage(format!(
            "--overwrite {stranger}: the plan does not write to it; `lab check` lists what it \
             writes"
        )));
    }
    plan.targets.iter().flat_map(Target::each).try_for_each(|it| contents(plan, &it, served))
}

/// A place that is not what the plan takes it for is a mistake in the command, unless it cannot be
/// looked at.
pub fn wrong_place(error: PlaceError) -> anyhow::Error {
    match &error {
        PlaceError::Io { error: cause, .. } if cause.kind() != ErrorKind::NotFound => error.into(),
        _ => Failure::usage(error),
    }
}

/// A place as the plan has it: paths are whole there.
fn named(word: &str, places: &[String]) -> String {
    let whole = std::path::absolute(word).map(|path| path.display().to_string());
    whole.ok().filter(|path| places.contains(path)).unwrap_or_else(|| word.to_owned())
}

/// Checks that a target can be reached, and holds no data if it is written.
///
/// # Errors
/// A refusal; nothing was changed.
pub fn contents(plan: &Plan, target: &Target, served: &Served<'_>) -> Result<()> {
    let folder = target.file.as_ref().and_then(|file| file.parent());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let (name, folder) = (&target.name, folder.display());
        return Err(Failure::usage(format!("{name}: no folder {folder}: create it first")));
    }
    let is_written = overwritten(plan).any(|place| Some(place) == target.place());
    let path = target.device.as_ref().or(target.file.as_ref()).filter(|_| is_written);
    if let Some(path) = path.filter(|path| path.exists()) {
        vet(&DeviceSpec::Path(path.clone()), Consent::Never)?;
    }
    let export = match &target.volume {
        Some(volume) => Some(served.export_of(volume).map_err(Failure::usage)?),
        None => target.export.clone(),
    };
    let Some(export) = export else { return Ok(()) };
    let hazards = export.parse::<Export>()?.hazards()?;
    match hazards.is_empty() || !is_written {
        true => Ok(()),
        false => Err(Failure::refused(format!("{export}: {}", hazards.join("; ")))),
    }
}
