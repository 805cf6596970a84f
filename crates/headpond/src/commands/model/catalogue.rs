//! `headpond model list` and `show`.

use super::args::{ListArgs, ShowArgs};
use crate::outcome::{Exit, Failure};
use anyhow::Result;
use headpond_advise::render::{Align, Table, size};
use headpond_sim::hdd::{HddModel, ModelError};
use serde_json::json;

/// # Errors
/// Never, as long as the models that come with the program are sound.
pub fn list(args: &ListArgs) -> Result<Exit> {
    let models: Result<Vec<HddModel>, ModelError> =
        HddModel::builtin_names().map(HddModel::builtin).collect();
    let models = models?;
    if args.json {
        let entry = |model: &HddModel| {
            let parameters = model.parameters();
            json!({
                "name": parameters.name,
                "description": parameters.description,
                "capacity_bytes": model.size_bytes(),
                "rpm": parameters.geometry.rpm,
            })
        };
        let entries: Vec<_> = models.iter().map(entry).collect();
        println!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(Exit::Ok);
    }
    let mut table = Table::new([
        ("model", Align::Left),
        ("capacity", Align::Right),
        ("rpm", Align::Right),
        ("description", Align::Left),
    ]);
    for model in &models {
        let parameters = model.parameters();
        table.row([
            parameters.name.clone(),
            size(model.size_bytes()),
            parameters.geometry.rpm.to_string(),
            parameters.description.clone(),
        ]);
    }
    print!("{}", table.render());
    Ok(Exit::Ok)
}

/// # Errors
/// Where there is no such model.
pub fn show(args: &ShowArgs) -> Result<Exit> {
    match HddModel::builtin_text(&args.name) {
        Ok(text) => print!("{text}"),
        Err(error) => return Err(Failure::usage(error.to_string())),
    }
    Ok(Exit::Ok)
}
