//! Who gets metrics over TCP.
//!
//! A browser on this machine must not be made to ask by a page whose name leads here (DNS
//! rebinding): the `Host` of a request is an address, or a name that is known to be this machine's.

use anyhow::{Context, Result, bail};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderMap, StatusCode, Uri};
use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a token has at least.
const TOKEN_CHARS_MIN: usize = 16;
const TOKEN_BYTES_MAX: u64 = 4096;

/// What a request has to show.
#[derive(Debug)]
pub struct Access {
    token: Option<Token>,
    names: Vec<String>,
}

/// A secret of its own: neither printed nor compared in a time that tells how much of it is right.
pub struct Token(String);

impl Access {
    /// Of an address: anybody who reaches a loopback address, and who has the token. `names` are
    /// those by which it may be asked, beside `localhost`.
    ///
    /// # Errors
    /// Where others than this machine reach the address, and there is no token.
    pub fn new(at: SocketAddr, token: Option<Token>, names: Vec<String>) -> Result<Self> {
        if token.is_none() && !at.ip().is_loopback() {
            bail!(
                "{at} is reached by other machines: name a file with a token \
                 (metrics-token-file), or listen on 127.0.0.1"
            );
        }
        Ok(Self { token, names })
    }

    /// # Errors
    /// The status and the reason of a request that gets nothing.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        const HOSTS: &str = "ask by an address, by localhost, by the name of the machine, or by \
                             metrics-host\n";
        let hosts: Vec<_> = headers.get_all(HOST).iter().collect();
        let host = match hosts[..] {
            [host] if uri.authority().is_none() => host.to_str().unwrap_or_default(),
            _ => return Err((StatusCode::BAD_REQUEST, "name one host\n")),
        };
        if !self.is_known(host) {
            return Err((StatusCode::MISDIRECTED_REQUEST, HOSTS));
        }
        let Some(token) = &self.token else { return Ok(()) };
        let given: Vec<_> = headers.get_all(AUTHORIZATION).iter().collect();
        let bearer = match given[..] {
            [given] => given.to_str().ok().and_then(|given| given.split_once(' ')),
            _ => None,
        };
        match bearer {
            Some((scheme, given))
                if scheme.eq_ignore_ascii_case("bearer") && token.is(given.trim()) =>
            {
                Ok(())
            }
            _ => Err((StatusCode::UNAUTHORIZED, "a token is needed\n")),
        }
    }

    /// Whether it is an address, or one of the names, with or without a port.
    fn is_known(&self, host: &str) -> bool {
        if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok_and(|it| it.is_ipv4())
        {
            return true;
        }
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if bare.is_some_and(|bare| bare.parse::<IpAddr>().is_ok()) {
            return true;
        }
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            Some(_) => return false,
            None => host,
        };
        let is_name = |known: &String| known.eq_ignore_ascii_case(name);
        name.eq_ignore_ascii_case("localhost") || self.names.iter().any(is_name)
    }
}

impl Token {
    /// Of a file that nobody but its owner may read, this user or root.
    ///
    /// # Errors
    /// Where others may read or change it, or what is in it is no token.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let found = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
        let owners = [0, rustix::process::geteuid().as_raw()];
        if found.mode() & 0o077 != 0 || !owners.contains(&found.uid()) {
            bail!("{shown} is a secret: it has to be your own or root's, with mode 0600");
        }
        Self::of_credential(path)
    }

    /// Of a file that the service manager gives to this process alone.
    ///
    /// # Errors
    /// Where what is in it is no token.
    pub fn of_credential(path: &Path) -> Result<Self> {
        let shown = path.display();
        let length = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
        if length > TOKEN_BYTES_MAX {
            bail!("{shown} is too long for a token");
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let token = text.trim();
        let is_plain = token.bytes().all(|byte| byte.is_ascii_graphic());
        if token.len() < TOKEN_CHARS_MIN || !is_plain {
            bail!(
                "{shown} has no token: {TOKEN_CHARS_MIN} or more letters and digits, such as by \
                 `openssl rand -hex 32`"
            );
        }
        Ok(Self(token.to_owned()))
    }

    fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let differing = own.iter().zip(given).fold(0, |all, (own, given)| all | (own ^ given));
        own.len() == given.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use std::os::unix::fs::PermissionsExt;

    const TOKEN: &str = "0123456789abcdef";

    fn access(token: Option<&str>) -> Access {
        let token = token.map(|token| Token(token.to_owned()));
        let at = "127.0.0.1:9949".parse().unwrap();
        Access::new(at, token, vec!["anna".into()]).unwrap()
    }

    fn status(access: &Access, uri: &str, headers: &[(axum::http::HeaderName, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let refused = access.check(&uri.parse().unwrap(), &map).err();
        refused.map_or(200, |(status, _)| status.as_u16())
    }

    #[test]
    fn a_name_that_is_not_the_machines_is_refused() {
        let access = access(None);
        let of = |host| status(&access, "/metrics", &[(HOST, host)]);
        for host in [
            "127.0.0.1:9949",
            "127.0.0.1",
            "[::1]:9949",
            "[::1]",
            "10.0.0.7:1",
            "localhost",
            "LOCALHOST:9949",
            "anna",
            "Anna:9949",
        ] {
            assert_eq!(of(host), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9949",
            "localhost.evil.example",
            "anna.evil.example:9949",
            "127.0.0.1.evil.example",
            "annax",
            "",
            ":9949",
            "localhost:",
            "localhost:x",
            "[localhost]",
            "localhost:1:2",
            "user@localhost",
            "1",
            "0x7f.1",
        ] {
            assert_eq!(of(host), 421, "{host}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let access = access(None);
        assert_eq!(status(&access, "/metrics", &[]), 400);
        let two = [(HOST, "localhost"), (HOST, "evil.example")];
        assert_eq!(status(&access, "/metrics", &two), 400);
        let one = [(HOST, "localhost")];
        assert_eq!(status(&access, "http://evil.example/metrics", &one), 400);
    }

    #[test]
    fn a_token_has_to_be_given_whole_and_once() {
        let access = access(Some(TOKEN));
        let of = |given: &[&str]| {
            let given = given.iter().map(|given| (AUTHORIZATION, *given));
            let headers: Vec<_> = [(HOST, "localhost")].into_iter().chain(given).collect();
            status(&access, "/metrics", &headers)
        };
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(of(&[&bearer]), 200);
        assert_eq!(of(&[&format!("bearer  {TOKEN}")]), 200);
        for given in [
            "",
            "Bearer",
            "Bearer ",
            TOKEN,
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdefg",
            "Bearer 0123456789abcdeF",
        ] {
            assert_eq!(of(&[given]), 401, "{given}");
        }
        assert_eq!(of(&[]), 401);
        assert_eq!(of(&[&bearer, &bearer]), 401);
        let host = [(HOST, "evil.example"), (AUTHORIZATION, bearer.as_str())];
        assert_eq!(status(&access, "/metrics", &host), 421, "the host is checked as well");
    }

    #[test]
    fn what_other_machines_reach_needs_a_token() {
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1"] {
            let at = address.parse().unwrap();
            let error = Access::new(at, None, Vec::new()).unwrap_err();
            assert!(error.to_string().contains("metrics-token-file"), "{error}");
            assert!(Access::new(at, Some(Token(TOKEN.into())), Vec::new()).is_ok());
        }
        assert!(Access::new("[::1]:1".parse().unwrap(), None, Vec::new()).is_ok());
    }

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let folder = headpond_testkit::tempdir();
        let path = folder.path().join("token");
        let read = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map(|token| token.0)
        };
        assert_eq!(read(&format!("{TOKEN}\n"), 0o600).unwrap(), TOKEN);
        assert_eq!(read(TOKEN, 0o400).unwrap(), TOKEN);
        for mode in [0o640, 0o604, 0o620, 0o601] {
            assert!(read(TOKEN, mode).unwrap_err().to_string().contains("0600"), "{mode:o}");
        }
        let long = "x".repeat(5000);
        for text in ["", "short", "with a space inside", "umlautsäöüäöüäöü", &long] {
            assert!(read(text, 0o600).is_err(), "{text}");
        }
        assert!(!format!("{:?}", Token(TOKEN.into())).contains(TOKEN));
    }
}
