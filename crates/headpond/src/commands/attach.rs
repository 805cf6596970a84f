//! `headpond attach`, and `headpond detach` of what that has made.

use super::waiting;
use crate::args::AttachArgs;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_api::requests::{AttachDeviceBody, DetachDeviceBody};
use headpond_daemon::attached::{Kept, Kernel, KernelError, index_of};

/// Makes a served volume, or a core of it, a block device.
///
/// # Errors
/// The daemon's.
pub fn run(places: &Places, args: &AttachArgs) -> Result<Exit> {
    let (volume, core) = match args.name.split_once('/') {
        Some((volume, core)) => (volume, Some(core.to_owned())),
        None => (&*args.name, None),
    };
    let client = Client::of(places, volume)?;
    let AttachArgs { device, dead_conn_timeout: dead_conn_timeout_s, .. } = args.clone();
    let body = AttachDeviceBody { core, device, dead_conn_timeout_s };
    let attached = waiting::post(&client, &operations::ATTACH_DEVICE, &body)?;
    if args.json {
        print_json(&Versioned::new(attached))?;
    } else {
        let (export, device) = (attached.export, attached.device);
        println!("{export} is {device}; `headpond detach {device}` ends that");
    }
    Ok(Exit::Ok)
}

/// Ends a device, whose volume may have no daemon.
///
/// # Errors
/// Where no volume has it, or it is in use.
pub fn detach(places: &Places, device: &str, force: bool) -> Result<Exit> {
    let index = index_of(device)?;
    let has_it =
        |volume: &String| Kept::load(places, volume).devices.iter().any(|it| it.index == index);
    let Some(volume) = places.names().into_iter().find(has_it) else {
        return Err(Failure::usage(format!("no volume is {device}")));
    };
    let client = Client::of(places, &volume)?;
    if client.is_served() {
        let body = DetachDeviceBody { device: device.to_owned(), force };
        waiting::post(&client, &operations::DETACH_DEVICE, &body)?;
    } else {
        end(places, &volume, index, force)?;
    }
    println!("{volume} is {device} no more");
    Ok(Exit::Ok)
}

/// Nothing is asked of the device: nobody would answer.
fn end(places: &Places, volume: &str, index: u32, force: bool) -> Result<()> {
    if !force {
        return Err(Failure::refused(format!(
            "{volume} is not served, and its next daemon goes on with /dev/nbd{index}: \
             `headpond serve {volume}`, or end it, also where it is mounted, by --force"
        )));
    }
    match Kernel::open().and_then(|mut kernel| kernel.disconnect(index)) {
        Ok(()) | Err(KernelError::NotOurs(_)) => {}
        Err(error) => return Err(Failure::of(error, KernelError::is_refusal)),
    }
    let mut kept = Kept::load(places, volume);
    kept.devices.retain(|it| it.index != index);
    places.note_attached(volume, &kept)
}

/// A volume that is removed must not leave a device.
///
/// # Errors
/// Where it is one.
pub fn refuse_attached(places: &Places, volume: &str) -> Result<()> {
    match Kept::load(places, volume).devices.first() {
        None => Ok(()),
        Some(device) => {
            let path = device.path();
            Err(Failure::refused(format!(
                "{volume} is {path}: unmount that, and `headpond detach {path}`"
            )))
        }
    }
}
