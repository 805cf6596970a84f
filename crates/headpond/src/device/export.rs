//! May we write to this export? A look at its two ends, as at those of a device.

use anyhow::{Context, Result, bail};
use headpond_block::{BlockDevice, Buffer, Runtime, Stream};
use headpond_nbd::client::NbdDevice;
use headpond_uring::safety::{Hazard, inspect};
use headpond_uring::{Ring, RunConfig, SocketStream, run};
use std::io::{Seek, SeekFrom, Write};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::rc::Rc;

/// What holds signatures of file systems, partitions and arrays lies this near to an end.
const END_BYTES: u64 = 1 << 20;
/// The port that is meant where none is said.
const PORT: u16 = 10_809;

/// An export by its address.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Unix(PathBuf),
    Tcp(String),
}

/// Looks for what somebody may need on an NBD export; what it was that was found.
///
/// # Errors
/// Where it cannot be reached or read.
pub fn hazards_of_export(uri: &str) -> Result<Vec<String>> {
    let (address, name) = parse(uri)?;
    let (size, head, tail) = run(&RunConfig::default(), |ring, runtime| async move {
        read_ends(&ring, &runtime, &address, &name).await
    })?
    .with_context(|| uri.to_owned())?;
    // A file that looks the same from both ends is looked at like any other device.
    let mut image = tempfile::NamedTempFile::new()?;
    image.as_file().set_len(size)?;
    image.write_all(&head)?;
    image.seek(SeekFrom::Start(size - tail.len() as u64))?;
    image.write_all(&tail)?;
    Ok(inspect(image.path())?.hazards().iter().map(Hazard::to_string).collect())
}

async fn read_ends(
    ring: &Ring,
    runtime: &Runtime,
    address: &Address,
    name: &str,
) -> Result<(u64, Vec<u8>, Vec<u8>)> {
    let stream: Rc<dyn Stream> = match address {
        Address::Unix(path) => Rc::new(SocketStream::connect_unix(ring, path).await?),
        Address::Tcp(host) => {
            let resolved = host.to_socket_addrs()?.next().context("the host has no address")?;
            Rc::new(SocketStream::connect_tcp(ring, resolved).await?)
        }
    };
    let client = NbdDevice::connect(runtime, ring.pool(), stream, name).await?;
    let device: &dyn BlockDevice = &client;
    let size = device.size_bytes();
    let len = END_BYTES.min(size);
    let mut ends = Vec::new();
    for from in [0, size - len] {
        let buffer = Buffer::zeroed(len as usize);
        device.read(from, &buffer).await?;
        ends.push(buffer.to_vec());
    }
    client.close().await;
    let tail = ends.pop().unwrap_or_default();
    Ok((size, ends.pop().unwrap_or_default(), tail))
}

/// `nbd+unix:///NAME?socket=PATH` or `nbd://HOST[:PORT]/NAME`.
fn parse(uri: &str) -> Result<(Address, String)> {
    if let Some(rest) = uri.strip_prefix("nbd+unix://") {
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let Some((_, path)) = pairs.find(|(key, _)| *key == "socket") else {
            bail!("{uri} names no socket: nbd+unix:///NAME?socket=PATH");
        };
        return Ok((Address::Unix(path.into()), name.trim_start_matches('/').to_owned()));
    }
    let Some(rest) = uri.strip_prefix("nbd://") else {
        bail!("{uri} is no NBD address: nbd://HOST/NAME or nbd+unix:///NAME?socket=PATH");
    };
    let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
    Ok((Address::Tcp(host), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_where_and_which() {
        let tcp = |host: &str, name: &str| (Address::Tcp(host.into()), name.to_owned());
        assert_eq!(parse("nbd://h").unwrap(), tcp("h:10809", ""));
        assert_eq!(parse("nbd://h:99/a/b").unwrap(), tcp("h:99", "a/b"));
        let unix = (Address::Unix("/x/y".into()), "v".to_owned());
        assert_eq!(parse("nbd+unix:///v?socket=/x/y").unwrap(), unix);
        assert!(parse("nbd+unix:///v").unwrap_err().to_string().contains("names no socket"));
        assert!(parse("http://h").unwrap_err().to_string().contains("no NBD address"));
    }
}
