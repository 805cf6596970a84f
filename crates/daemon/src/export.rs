//! Export addresses, checked alike by `create` and `serve`.

use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_api::place::checked_socket;
use headpond_volume::ExportDescription;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What an export listens at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Reads the address of an export.
///
/// # Errors
/// If it is invalid, or reachable from other machines without consent.
pub fn address(export: &ExportDescription) -> Result<Address> {
    let nbd = &export.nbd;
    match nbd.split_once(':') {
        Some(("unix", path)) => Ok(Address::Unix(checked_socket(path.into())?)),
        Some(("tcp", rest)) => {
            let parsed: SocketAddr = rest.parse().map_err(|error| {
                Failure::usage(format!("{nbd} is not an address ({error}): write tcp:HOST:PORT"))
            })?;
            if !parsed.ip().is_loopback() && !export.insecure {
                return Err(Failure::refused(format!(
                    "{nbd} can be reached from other machines, without encryption or \
                     authentication: use a loopback address or a Unix socket, or accept that with \
                     --insecure (`create`, `export add`)"
                )));
            }
            Ok(Address::Tcp(parsed))
        }
        _ => Err(Failure::usage(format!("{nbd}: write unix:PATH or tcp:HOST:PORT"))),
    }
}
