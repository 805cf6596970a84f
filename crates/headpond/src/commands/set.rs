//! `headpond set`.

use crate::args::SetArgs;
use crate::commands::waiting;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_api::requests::SetBody;
use headpond_report::{Align, Table};
use headpond_volume::{Description, ShownSetting};

/// Changes settings of a served volume and in its description, or shows them.
///
/// # Errors
/// What the daemon refuses.
pub fn run(places: &Places, args: &SetArgs) -> Result<Exit> {
    if args.changes.is_empty() {
        return show(places, args);
    }
    let client = Client::of(places, &args.name)?;
    let changes = super::class::read_named_files(&args.changes)?;
    let body = SetBody { changes, flush: args.flush, pace: args.pace };
    let status = waiting::post(&client, &operations::SET, &body)?;
    if args.json {
        print_json(&Versioned::new(status))?;
    } else {
        super::status::print_settings(&status);
    }
    Ok(Exit::Ok)
}

/// Changes are saved in the description: the volume need not be served.
fn show(places: &Places, args: &SetArgs) -> Result<Exit> {
    let Description { cache, tier, array, .. } = places.load(&args.name)?;
    let of_cache = cache.into_iter().flat_map(|cache| cache.settings.shown());
    let of_tier = tier.into_iter().flat_map(|tier| tier.settings.shown());
    let shown: Vec<ShownSetting> = of_cache.chain(of_tier).chain(array.shown()).collect();
    if args.json {
        print_json(&shown)?;
        return Ok(Exit::Ok);
    }
    let columns = ["setting", "value", "default", "allowed"].map(|name| (name, Align::Left));
    let mut table = Table::new(columns);
    for ShownSetting { key, value, default, takes } in shown {
        let value = if value == default { value } else { format!("{value} *") };
        table.row([key, value, default, takes]);
    }
    println!("{}\n* differs from its default", table.render());
    Ok(Exit::Ok)
}
