//! Export addresses, checked alike by `create`, `export add` and `serve`.

use anyhow::{Context, Result};
use headpond_api::outcome::Failure;
use headpond_api::place::checked_socket;
use headpond_ublk::{Devices, Shape};
use headpond_volume::{ExportDescription, Size};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
    /// A block device of the kernel.
    Ublk(Shape),
}

/// One thread serves them.
const QUEUES_MAX: u16 = 16;
const FORMS: &str = "write unix:PATH or tcp:HOST:PORT for NBD, or ublk[:queues=N,depth=N,io=SIZE,\
                     read-only] for a block device";

/// Reads the address of an export.
///
/// # Errors
/// If it is invalid, or reachable from other machines without consent.
pub fn address(export: &ExportDescription) -> Result<Address> {
    let address = &export.address;
    match address.split_once(':') {
        None if address == "ublk" => Ok(Address::Ublk(Shape::default())),
        Some(("ublk", settings)) => Ok(Address::Ublk(shape(address, settings)?)),
        Some(("unix", path)) => Ok(Address::Unix(checked_socket(path.into())?)),
        Some(("tcp", rest)) => {
            let parsed: SocketAddr = rest.parse().map_err(|error| {
                Failure::usage(format!(
                    "{address} is not an address ({error}): write tcp:HOST:PORT"
                ))
            })?;
            if !parsed.ip().is_loopback() && !export.insecure {
                return Err(Failure::refused(format!(
                    "{address} can be reached from other machines, without encryption or \
                     authentication: use a loopback address or a Unix socket, or accept that with \
                     --insecure (`create`, `export add`)"
                )));
            }
            Ok(Address::Tcp(parsed))
        }
        _ => Err(Failure::usage(format!("{address}: {FORMS}"))),
    }
}

/// That a volume can have all of these.
///
/// # Errors
/// What is wrong with one of them.
pub fn check(exports: &[ExportDescription]) -> Result<()> {
    let mut shown = None;
    for export in exports {
        if let Address::Ublk(_) = address(export)?
            && let Some(before) = shown.replace(&export.address)
        {
            return Err(Failure::usage(format!(
                "{} and {before}: a volume is one block device; remove one of them",
                export.address
            )));
        }
    }
    Ok(())
}

/// That the kernel can do what the exports ask for.
///
/// # Errors
/// What it lacks, and what to use instead.
pub fn check_kernel(exports: &[ExportDescription]) -> Result<()> {
    for export in exports {
        if let Address::Ublk(_) = address(export)? {
            let address = &export.address;
            Devices::open().map(drop).with_context(|| {
                format!(
                    "cannot export it as {address}; NBD needs no driver: `headpond export remove \
                     NAME {address}` and `export add NAME unix:PATH`"
                )
            })?;
        }
    }
    Ok(())
}

fn shape(address: &str, settings: &str) -> Result<Shape> {
    let mut shape = Shape::default();
    for setting in settings.split(',') {
        let is_read = match setting.split_once('=') {
            Some(("queues", count)) => count.parse().map(|count| shape.queues = count).is_ok(),
            Some(("depth", depth)) => depth.parse().map(|depth| shape.depth = depth).is_ok(),
            Some(("io", size)) => size.parse::<Size>().is_ok_and(|size| {
                u32::try_from(size.bytes()).map(|bytes| shape.io_bytes_max = bytes).is_ok()
            }),
            None if setting == "read-only" => {
                shape.is_read_only = true;
                true
            }
            _ => false,
        };
        if !is_read {
            return Err(Failure::usage(format!("{address}: {setting} is none of it: {FORMS}")));
        }
    }
    match shape.is_possible() && shape.queues <= QUEUES_MAX {
        true => Ok(shape),
        false => Err(Failure::usage(format!(
            "{address}: there are 1 to {QUEUES_MAX} queues, a depth of 1 to 4096, and an I/O of \
             4K to 32M in units of 4K"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Result<Address> {
        super::address(&ExportDescription { address: address.into(), insecure: false })
    }

    #[test]
    fn queues_of_a_block_device_are_part_of_its_address() {
        assert_eq!(of("ublk").unwrap(), Address::Ublk(Shape::default()));
        let Address::Ublk(shape) = of("ublk:queues=2,io=512K").unwrap() else { panic!("ublk") };
        assert_eq!((shape.queues, shape.depth, shape.io_bytes_max), (2, 128, 512 << 10));
        let read_only = Shape { is_read_only: true, depth: 8, ..Shape::default() };
        assert_eq!(of("ublk:read-only,depth=8").unwrap(), Address::Ublk(read_only));
        let both = ["ublk", "ublk:depth=4"];
        let both = both.map(|it| ExportDescription { address: it.into(), insecure: false });
        assert!(check(&both[..1]).is_ok() && check(&both).is_err());
        for wrong in [
            "ublk:",
            "ublk:queues=0",
            "ublk:depth=5000",
            "ublk:io=5",
            "ublk:width=3",
            "ublk:read-only=1",
        ] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.starts_with(wrong), "{error}");
        }
    }
}
