//! What a plan may write to.

use crate::device::{Consent, DeviceSpec, vet};
use crate::outcome::Failure;
use anyhow::Result;
use headpond_lab::{Kind, Plan, Target};

/// The places of the targets that a plan writes to.
pub fn overwritten(plan: &Plan) -> impl Iterator<Item = String> + '_ {
    let prepares = plan.precondition.is_anything();
    let cells = plan.cells();
    let writes = prepares
        || plan.beside.iter().any(|beside| beside.rw.contains('w'))
        || cells.iter().any(|cell| cell.load.writes());
    let real = plan.targets.iter().filter(|target| target.kind() != Kind::Machine);
    real.filter(move |_| writes).filter_map(Target::place)
}

/// Checks that everything that is written to was named again, and holds nothing that anybody needs.
///
/// # Errors
/// A refusal; nothing was changed.
pub fn check(plan: &Plan, allowed: &[String]) -> Result<()> {
    let places: Vec<_> = overwritten(plan).collect();
    let missing: Vec<_> = places.iter().filter(|place| !allowed.contains(place)).collect();
    if let [place, ..] = missing[..] {
        return Err(Failure::refused(format!(
            "the plan overwrites {place}; if what is on it may be lost, name it again: --overwrite \
             {place}"
        )));
    }
    if let Some(stranger) = allowed.iter().find(|place| !places.contains(place)) {
        return Err(Failure::usage(format!(
            "--overwrite {stranger}: the plan does not write to that; `lab check` says to what"
        )));
    }
    for target in &plan.targets {
        let path = target.device.as_ref().or(target.file.as_ref());
        let Some(path) = path.filter(|path| path.exists()) else { continue };
        let is_written = target.place().is_some_and(|place| places.contains(&place));
        if is_written {
            vet(&DeviceSpec::Path(path.clone()), Consent::Careful)?;
        }
    }
    Ok(())
}
