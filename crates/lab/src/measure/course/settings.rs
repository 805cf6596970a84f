//! Settings of targets: as each cell wants them, and at the end as they were.
//!
//! **Invariants**
//! - What was changed is set back whatever became of the plan, even where the change itself failed:
//!   a served volume to what it had, anything else by the command that its target names for that.
//! - What cannot be set back does not keep the rest from it.

use super::{CourseError, Watcher};
use crate::environment::Surroundings;
use crate::plan::{ARRAYS, Cell, Plan, Target, plain};
use std::collections::BTreeMap;
use std::process::Command;

/// What settings are, and what there is to set back.
pub(super) struct Settings<'a> {
    plan: &'a Plan,
    surroundings: &'a dyn Surroundings,
    /// By target and name.
    now: BTreeMap<(usize, String), toml::Value>,
    before: BTreeMap<(usize, String), Before>,
}

/// Checks that every served volume has the settings that a plan changes; nothing is changed.
///
/// # Errors
/// The first that one does not have.
pub fn check_settings(plan: &Plan, surroundings: &dyn Surroundings) -> Result<(), CourseError> {
    let volumes = plan.targets.iter().filter(|target| target.set.is_none());
    for (target, volume) in volumes.flat_map(each_volume) {
        for name in plan.matrix.settings.keys().filter(|name| *name != ARRAYS) {
            surroundings.setting_of(&volume, name).map_err(|error| {
                let (target, error) = (target.name.clone(), format!("matrix.settings: {error}"));
                CourseError::Volume { target, error }
            })?;
        }
    }
    Ok(())
}

/// A target with each of its volumes.
fn each_volume(target: &Target) -> Vec<(&Target, String)> {
    target.each().into_iter().filter_map(|each| Some((target, each.volume?))).collect()
}

/// How a setting comes to be again what it was.
enum Before {
    /// Of served volumes, in the order of the target's.
    Values(Vec<String>),
    /// Somebody knows a command.
    Command(String),
    /// Nobody has said.
    Unknown,
}

impl<'a> Settings<'a> {
    pub fn new(plan: &'a Plan, surroundings: &'a dyn Surroundings) -> Self {
        Self { plan, surroundings, now: BTreeMap::new(), before: BTreeMap::new() }
    }

    /// Changes what is not yet as a cell wants it.
    ///
    /// # Errors
    /// Where a setting cannot be changed; those before it are.
    pub fn bring_about(
        &mut self,
        cell: &Cell,
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        let target = &self.plan.targets[cell.target];
        for (name, value) in cell.settings.iter().filter(|(name, _)| *name != ARRAYS) {
            let key = (cell.target, name.clone());
            if self.now.get(&key) == Some(value) {
                continue;
            }
            watcher.prepares(&format!("{}: {name} {}", target.name, plain(value)));
            if !self.before.contains_key(&key) {
                let before = self.before(target, name)?;
                self.before.insert(key.clone(), before);
            }
            self.set(target, name, value)?;
            self.now.insert(key, value.clone());
        }
        Ok(())
    }

    /// Sets back what was changed.
    ///
    /// # Errors
    /// The first that could not be; all others are.
    pub fn set_back(&mut self, watcher: &mut dyn Watcher) -> Result<(), CourseError> {
        self.now.clear();
        let mut outcome = Ok(());
        let mut commands = Vec::new();
        for ((target, name), before) in std::mem::take(&mut self.before) {
            let target = &self.plan.targets[target];
            let back = match before {
                Before::Values(values) => {
                    let all = values.join(", ");
                    watcher.prepares(&format!("{}: {name} {all} again", target.name));
                    let each = target.each().into_iter().zip(values);
                    let back = each.map(|(target, value)| self.set(&target, &name, &value.into()));
                    back.fold(Ok(()), Result::and)
                }
                // One command may set several back.
                Before::Command(command) if !commands.contains(&command) => {
                    watcher.prepares(&format!("{}: {command}", target.name));
                    let restored = shell(&command);
                    commands.push(command);
                    let target = target.name.clone();
                    restored.map_err(|error| CourseError::Restore { target, error })
                }
                Before::Command(_) | Before::Unknown => Ok(()),
            };
            outcome = outcome.and(back);
        }
        outcome
    }

    fn before(&self, target: &Target, name: &str) -> Result<Before, CourseError> {
        if target.set.is_some() {
            return Ok(target.restore_command(name).map_or(Before::Unknown, Before::Command));
        }
        let volumes = each_volume(target);
        if volumes.is_empty() {
            return Ok(Before::Unknown);
        }
        let value = |(target, volume): (&Target, String)| {
            let value = self.surroundings.setting_of(&volume, name);
            let target = target.name.clone();
            value.map_err(|error| CourseError::Volume { target, error })
        };
        volumes.into_iter().map(value).collect::<Result<_, _>>().map(Before::Values)
    }

    fn set(&self, target: &Target, name: &str, value: &toml::Value) -> Result<(), CourseError> {
        let outcome = match target.set_command(name, value) {
            Some(command) => shell(&command),
            None => each_volume(target)
                .iter()
                .try_for_each(|(_, volume)| self.surroundings.set(volume, name, &plain(value))),
        };
        outcome.map_err(|error| {
            let (target, name) = (target.name.clone(), name.to_owned());
            CourseError::Set { target, name, value: plain(value), error }
        })
    }
}

fn shell(command: &str) -> Result<(), String> {
    let output = Command::new("sh").arg("-c").arg(command).output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("`{command}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
