//! `rbd:POOL/[NAMESPACE/]IMAGE[?conf=FILE&id=USER]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which image of which cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageAddress {
    pub pool: String,
    pub namespace: Option<String>,
    pub image: String,
    /// `None`: where Ceph looks (`$CEPH_CONF`, `/etc/ceph/ceph.conf`).
    pub conf: Option<PathBuf>,
    /// The user without `client.`; `None` for `admin`.
    pub id: Option<String>,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("write rbd:POOL/IMAGE or rbd:POOL/NAMESPACE/IMAGE")]
    Parts,
    #[error("a snapshot is read-only: name an image, or a clone of the snapshot")]
    Snapshot,
    #[error("{0:?} is no option of an image: there are conf=FILE and id=USER")]
    Option(String),
    #[error("it has a zero byte")]
    Zero,
}

impl ImageAddress {
    /// The image as `rbd` takes it on its command line.
    pub fn spec(&self) -> String {
        let namespace = self.namespace.iter().map(|name| format!("{name}/"));
        format!("{}/{}{}", self.pool, namespace.collect::<String>(), self.image)
    }
}

impl FromStr for ImageAddress {
    type Err = AddressError;

    /// Reads what follows `rbd:`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('\0') {
            return Err(AddressError::Zero);
        }
        let (place, options) = text.split_once('?').unwrap_or((text, ""));
        if place.contains('@') {
            return Err(AddressError::Snapshot);
        }
        let parts: Vec<&str> = place.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, None, image),
            [pool, namespace, image] => (pool, Some(namespace), image),
            _ => return Err(AddressError::Parts),
        };
        if parts.contains(&"") {
            return Err(AddressError::Parts);
        }
        let mut address = Self {
            pool: pool.to_owned(),
            namespace: namespace.map(str::to_owned),
            image: image.to_owned(),
            conf: None,
            id: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("conf", file)) if !file.is_empty() => address.conf = Some(file.into()),
                Some(("id", user)) if !user.is_empty() => address.id = Some(user.to_owned()),
                _ => return Err(AddressError::Option(option.to_owned())),
            }
        }
        Ok(address)
    }
}

impl fmt::Display for ImageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}", self.spec())?;
        let conf = self.conf.iter().map(|file| format!("conf={}", file.display()));
        let options: Vec<String> =
            conf.chain(self.id.iter().map(|id| format!("id={id}"))).collect();
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_being_read_and_written() {
        let texts =
            ["p/i", "p/n/i", "p/i?conf=/etc/ceph/x.conf", "p/n/i?conf=/c&id=me", "p/i?id=a"];
        for text in texts {
            assert_eq!(text.parse::<ImageAddress>().unwrap().to_string(), format!("rbd:{text}"));
        }
    }

    #[test]
    fn half_an_address_is_refused_with_a_reason() {
        let error = |text: &str| text.parse::<ImageAddress>().unwrap_err();
        for text in ["", "p", "p/", "/i", "p//i", "a/b/c/d"] {
            assert_eq!(error(text), AddressError::Parts, "{text}");
        }
        assert_eq!(error("p/i@yesterday"), AddressError::Snapshot);
        assert_eq!(error("p/i?conf="), AddressError::Option("conf=".into()));
        assert_eq!(error("p/i?pool=q"), AddressError::Option("pool=q".into()));
        assert_eq!(error("p/i\0"), AddressError::Zero);
    }
}
