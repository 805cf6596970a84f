//! NBD exports as devices of a command, and their contents.

use anyhow::{Context, Result};
use headpond_api::outcome::Failure;
use headpond_block::{BlockDevice, Buffer, Runtime, Stream};
use headpond_nbd::client::NbdDevice;
use headpond_uring::safety::{Hazard, inspect};
use headpond_uring::{Ring, RunConfig, SocketStream, run};
use std::fmt;
use std::io::{Seek, SeekFrom, Write};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

/// Signatures of file systems, partitions and arrays are this near to either end.
const END_BYTES: u64 = 1 << 20;
/// The default port.
const PORT: u16 = 10_809;

/// An export by its address: `nbd+unix:///NAME?socket=PATH` or `nbd://HOST[:PORT]/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    server: Server,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Server {
    Unix(PathBuf),
    /// With its port.
    Tcp(String),
}

impl Export {
    /// Connects to the server.
    ///
    /// # Errors
    /// If it cannot be reached, or has no such export.
    pub async fn connect(&self, ring: &Ring, runtime: &Runtime) -> Result<Rc<NbdDevice>> {
        let stream = self.server.connect(ring).await.with_context(|| self.to_string())?;
        let device = NbdDevice::connect(runtime, ring.pool(), stream, &self.name).await;
        Ok(Rc::new(device.with_context(|| self.to_string())?))
    }

    /// Whether both are exports of one server.
    pub fn is_of_the_server_of(&self, other: &Self) -> bool {
        self.server == other.server
    }

    /// A short name of server and export.
    pub fn label(&self) -> String {
        let server = match &self.server {
            Server::Unix(path) => path.file_name().unwrap_or_default().to_string_lossy(),
            Server::Tcp(host) => host.into(),
        };
        format!("{server}-{}", self.name)
    }

    /// Contents worth protecting, as on a device: file systems, partitions, members of arrays.
    ///
    /// # Errors
    /// Where it cannot be reached or read.
    pub fn hazards(&self) -> Result<Vec<String>> {
        let (size, [head, tail]) = run(&RunConfig::default(), |ring, runtime| async move {
            let device = self.connect(&ring, &runtime).await?;
            anyhow::Ok((device.geometry().size_bytes, ends(&*device).await?))
        })??;
        // A file with the same two ends is checked like any other device.
        let mut image = tempfile::NamedTempFile::new()?;
        image.as_file().set_len(size)?;
        image.write_all(&head)?;
        image.seek(SeekFrom::Start(size - tail.len() as u64))?;
        image.write_all(&tail)?;
        Ok(inspect(image.path())?.hazards().iter().map(Hazard::to_string).collect())
    }
}

impl Server {
    async fn connect(&self, ring: &Ring) -> Result<Rc<dyn Stream>> {
        Ok(match self {
            Self::Unix(path) => Rc::new(SocketStream::connect_unix(ring, path).await?),
            Self::Tcp(host) => {
                let mut addresses = host.to_socket_addrs()?;
                let address = addresses.next().context("the host has no address")?;
                Rc::new(SocketStream::connect_tcp(ring, address).await?)
            }
        })
    }
}

impl FromStr for Export {
    type Err = anyhow::Error;

    fn from_str(uri: &str) -> Result<Self> {
        if let Some(rest) = uri.strip_prefix("nbd+unix://") {
            let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let socket = pairs.find(|(key, value)| *key == "socket" && !value.is_empty());
            let Some((_, path)) = socket else {
                let words = format!("{uri} names no socket: write nbd+unix:///NAME?socket=PATH");
                return Err(Failure::usage(words));
            };
            let name = name.trim_start_matches('/').to_owned();
            return Ok(Self { server: Server::Unix(path.into()), name });
        }
        let Some(rest) = uri.strip_prefix("nbd://") else {
            return Err(Failure::usage(format!(
                "{uri} is not an NBD address: write nbd://HOST/NAME or nbd+unix:///NAME?socket=PATH"
            )));
        };
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        Ok(Self { server: Server::Tcp(host), name: name.to_owned() })
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Unix(path) => {
                write!(f, "nbd+unix:///{}?socket={}", self.name, path.display())
            }
            Server::Tcp(host) => write!(f, "nbd://{host}/{}", self.name),
        }
    }
}

/// The first and the last bytes of a device.
///
/// # Errors
/// Where they cannot be read.
pub async fn ends(device: &dyn BlockDevice) -> Result<[Vec<u8>; 2]> {
    let len = END_BYTES.min(device.size_bytes());
    let mut ends = [Vec::new(), Vec::new()];
    for (end, start) in ends.iter_mut().zip([0, device.size_bytes() - len]) {
        let memory = Buffer::zeroed(len as usize);
        device.read(start, &memory).await?;
        *end = memory.to_vec();
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_where_and_which() {
        for (uri, is) in [
            ("nbd://h", "nbd://h:10809/"),
            ("nbd://h:99/a/b", "nbd://h:99/a/b"),
            ("nbd+unix:///v?socket=/x/y", "nbd+unix:///v?socket=/x/y"),
            ("nbd+unix://?socket=/x/y", "nbd+unix:///?socket=/x/y"),
        ] {
            assert_eq!(uri.parse::<Export>().unwrap().to_string(), is);
        }
        let error = |uri: &str| uri.parse::<Export>().unwrap_err().to_string();
        assert!(error("nbd+unix:///v").contains("names no socket"));
        assert!(error("http://h").contains("not an NBD address"));
    }
}
