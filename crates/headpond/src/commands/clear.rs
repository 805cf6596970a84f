//! `headpond clear`.

use crate::args::ClearArgs;
use crate::device::DeviceSpec;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::{Status, Versioned};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_api::requests::ClearBody;
use headpond_daemon::clear_stopped;
use headpond_daemon::loading::look;
use uuid::Uuid;

/// Clears the errors of a device, or of all, whether the volume is served or not.
///
/// # Errors
/// Where it has no such device, or its members cannot be written.
pub fn run(places: &Places, args: &ClearArgs) -> Result<Exit> {
    let name = &args.name;
    let client = Client::of(places, name)?;
    let device = args.device.as_deref().map(device_name).transpose()?;
    let status = if client.is_served() {
        client.call_with(&operations::CLEAR_ERRORS, &ClearBody { device })?
    } else {
        if look(places, name).is_some() {
            return Err(Failure::not_served(format!(
                "{name} is being loaded: clear its errors once it is served"
            )));
        }
        let described = places.load(name)?;
        clear_stopped(&described, device.as_deref())?;
        Status::described(&described)
    };
    if args.json {
        print_json(&Versioned::new(status))?;
    } else {
        let of = args.device.as_ref().map(|device| format!(" of {device}")).unwrap_or_default();
        println!("{name}: the errors{of} are cleared");
    }
    Ok(Exit::Ok)
}

/// As the status names it.
fn device_name(word: &str) -> Result<String> {
    if word.parse::<Uuid>().is_ok() {
        return Ok(word.to_owned());
    }
    let spec: DeviceSpec = word.parse().map_err(Failure::usage)?;
    Ok(spec.absolute()?.device_name())
}
