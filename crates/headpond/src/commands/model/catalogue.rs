//! `headpond model list` and `show`.

use super::args::{ListArgs, ShowArgs};
use crate::telling::{document, print_json};
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_report::{Align, Table, size};
use headpond_sim::{CatalogueError, Model, catalogue};
use headpond_whatif::models;
use serde_json::json;

/// # Errors
/// Never, as long as the built-in models are valid.
pub fn list(args: &ListArgs) -> Result<Exit> {
    let models: Result<Vec<Model>, CatalogueError> =
        catalogue::builtin_names().map(Model::builtin).collect();
    let models = models?;
    if args.json {
        let entry = |model: &Model| {
            Versioned::new(json!({
                "name": model.name(),
                "kind": model.kind(),
                "description": model.description(),
                "capacity_bytes": model.capacity_bytes(),
            }))
        };
        let entries: Vec<_> = models.iter().map(entry).collect();
        print_json(&entries)?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new([
        ("model", Align::Left),
        ("kind", Align::Left),
        ("capacity", Align::Right),
        ("description", Align::Left),
    ]);
    for model in &models {
        table.row([
            model.name().to_owned(),
            model.kind().to_string(),
            model.capacity_bytes().map_or("-".into(), size),
            model.description().to_owned(),
        ]);
    }
    print!("{}", table.render());
    Ok(Exit::Ok)
}

/// # Errors
/// If there is no such model, or the file is invalid.
pub fn show(args: &ShowArgs) -> Result<Exit> {
    models::load(&args.name).map_err(Failure::usage)?;
    document(&models::text(&args.name).map_err(Failure::usage)?);
    Ok(Exit::Ok)
}
