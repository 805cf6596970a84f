//! Device names on the command line.

use headpond_rbd::ImageAddress;
use headpond_volume::Size;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A device as named by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A block device or regular file.
    Path(PathBuf),
    /// Memory of the daemon: empty at every start.
    Ram(Size),
    /// A drive model, of the catalogue or a file, against the wall clock; its contents in a sparse
    /// file.
    Model { model: String, store: PathBuf },
    /// A file whose unflushed writes are lost with the daemon: a drive with a volatile cache, for
    /// tests. One unflushed block in `leak` reaches the file early; 0: none.
    Lossy { path: PathBuf, seed: u64, leak: u32 },
    /// A file or device without a lock, for tests: as seen by another host.
    Shared(PathBuf),
    /// A device with its contents, whose superblock is in a file.
    Existing { body: Box<DeviceSpec>, head: PathBuf },
    /// An image of a Ceph cluster.
    Rbd(ImageAddress),
}

/// An invalid device name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a device name ({reason}): give a path, rbd:POOL/IMAGE, ram:SIZE, \
     model:NAME|FILE?store=FILE, existing:DEVICE?head=FILE or lossy:FILE?seed=N&leak=N"
)]
pub struct SpecError {
    text: String,
    reason: String,
}

impl DeviceSpec {
    /// This device as it is, with its head there.
    ///
    /// # Errors
    /// Where it has no contents of its own that last.
    pub fn existing(body: Self, head: PathBuf) -> Result<Self, SpecError> {
        match body {
            Self::Path(_) | Self::Lossy { .. } | Self::Rbd(_) => {
                Ok(Self::Existing { body: Box::new(body), head })
            }
            body => Err(SpecError {
                text: body.to_string(),
                reason: "it is no device with contents of its own".to_owned(),
            }),
        }
    }

    /// The underlying file, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path)
            | Self::Shared(path)
            | Self::Lossy { path, .. }
            | Self::Model { store: path, .. } => Some(path),
            Self::Existing { body, .. } => body.path(),
            Self::Ram(_) | Self::Rbd(_) => None,
        }
    }

    /// The name of the opened device in errors and in the status.
    pub fn device_name(&self) -> String {
        match self.path() {
            Some(path) => path.display().to_string(),
            None => self.to_string(),
        }
    }

    /// The same with an absolute path.
    ///
    /// # Errors
    /// Where there is no current folder.
    pub fn absolute(self) -> std::io::Result<Self> {
        Ok(match self {
            Self::Path(path) => Self::Path(std::path::absolute(path)?),
            Self::Model { model, store } => {
                let model = match headpond_sim::catalogue::is_file(&model) {
                    true => std::path::absolute(model)?.display().to_string(),
                    false => model,
                };
                Self::Model { model, store: std::path::absolute(store)? }
            }
            Self::Lossy { path, seed, leak } => {
                Self::Lossy { path: std::path::absolute(path)?, seed, leak }
            }
            Self::Ram(size) => Self::Ram(size),
            Self::Shared(path) => Self::Shared(std::path::absolute(path)?),
            Self::Existing { body, head } => Self::Existing {
                body: Box::new(body.absolute()?),
                head: std::path::absolute(head)?,
            },
            Self::Rbd(address) => {
                let conf = address.conf.as_ref().map(std::path::absolute).transpose()?;
                Self::Rbd(ImageAddress { conf, ..address })
            }
        })
    }
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |reason: &str| SpecError { text: text.to_owned(), reason: reason.to_owned() };
        if let Some(size) = text.strip_prefix("ram:") {
            return size.parse().map(Self::Ram).map_err(|bad| error(&bad.to_string()));
        }
        if let Some(rest) = text.strip_prefix("model:") {
            let (model, options) = rest.split_once('?').ok_or_else(|| error("no store"))?;
            let store = option(options, "store").ok_or_else(|| error("no store"))?;
            return Ok(Self::Model { model: model.to_owned(), store: store.into() });
        }
        if let Some(rest) = text.strip_prefix("lossy:") {
            let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
            let number = |name: &str| match option(options, name) {
                Some(value) => value.parse().map_err(|_| error(&format!("{name} is not a number"))),
                None => Ok(0),
            };
            let leak = u32::try_from(number("leak")?).map_err(|_| error("leak is too large"))?;
            return Ok(Self::Lossy { path: path.into(), seed: number("seed")?, leak });
        }
        if let Some(address) = text.strip_prefix("rbd:") {
            let address: Result<ImageAddress, _> = address.parse();
            return address.map(Self::Rbd).map_err(|bad| error(&bad.to_string()));
        }
        if let Some(rest) = text.strip_prefix("existing:") {
            let (body, head) = rest.rsplit_once("?head=").ok_or_else(|| error("no head"))?;
            return Self::existing(body.parse()?, head.into());
        }
        if let Some(path) = text.strip_prefix("shared:") {
            return Ok(Self::Shared(path.into()));
        }
        if text.is_empty() { Err(error("it is empty")) } else { Ok(Self::Path(text.into())) }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Ram(size) => write!(f, "ram:{size}"),
            Self::Shared(path) => write!(f, "shared:{}", path.display()),
            Self::Existing { body, head } => write!(f, "existing:{body}?head={}", head.display()),
            Self::Rbd(address) => address.fmt(f),
            Self::Model { model, store } => write!(f, "model:{model}?store={}", store.display()),
            Self::Lossy { path, seed, leak } => {
                write!(f, "lossy:{}?seed={seed}&leak={leak}", path.display())
            }
        }
    }
}

fn option<'a>(options: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = options.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_name_survives_being_read_and_written() {
        let names = [
            "/dev/sdb",
            "ram:256M",
            "model:hdd-7k2-4t?store=/x/a.img",
            "lossy:/x/b?seed=3&leak=4",
            "shared:/x/c",
            "existing:/dev/sdb?head=/var/lib/headpond/hv0.head",
            "existing:lossy:/x/b?seed=3&leak=4?head=/x/b.head",
            "existing:rbd:pool/image?id=user?head=/x/b.head",
            "rbd:pool/image",
            "rbd:pool/space/image?conf=/x/ceph.conf&id=user",
        ];
        for name in names {
            assert_eq!(name.parse::<DeviceSpec>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn half_a_name_is_refused_with_a_reason() {
        for (name, reason) in [
            ("ram:x", "not a size"),
            ("model:hdd-7k2-4t", "no store"),
            ("lossy:/x?seed=y", "seed is not a number"),
            ("rbd:image", "POOL/IMAGE"),
            ("", "empty"),
            ("existing:/dev/sdb", "no head"),
            ("existing:ram:1M?head=/x", "no device with contents"),
            ("existing:?head=/x", "empty"),
        ] {
            let error = name.parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
