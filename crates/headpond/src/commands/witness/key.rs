//! `headpond witness key`, and reading one.

use super::args::KeyArgs;
use anyhow::{Context, Result, bail};
use headpond_api::outcome::{Exit, Failure};
use headpond_witness::field::auth::{KEY_BYTES, Key};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Longer files are not keys.
const FILE_BYTES_MAX: u64 = 256;

/// # Errors
/// Where the file exists, or cannot be written.
pub fn run(args: &KeyArgs) -> Result<Exit> {
    let path = &args.file;
    let named = || path.display().to_string();
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = match opened {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Failure::refused(format!(
                "{}: exists already, and is not overwritten: use it, or name another file",
                named()
            )));
        }
        opened => opened.with_context(named)?,
    };
    let key = Key::new(random()?);
    file.write_all(key.text().as_bytes()).and_then(|()| file.sync_all()).with_context(named)?;
    println!("{}: new key created; copy it to the other machine", named());
    Ok(Exit::Ok)
}

/// Reads a key that is readable by its owner only.
///
/// # Errors
/// A refusal if others may read it, or if it is not a key.
pub fn read(path: &Path) -> Result<Key> {
    let named = || path.display().to_string();
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "{}: no such key: `headpond witness key {}` makes one, and both machines need \
             the same",
            named(),
            named()
        ),
        opened => opened.with_context(named)?,
    };
    let mode = file.metadata().with_context(named)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Failure::refused(format!(
            "{}: other users can read or change this key: chmod 600 {}",
            named(),
            named()
        )));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).with_context(named)?;
    Key::parse(&text).with_context(named)
}

/// Cryptographically random bytes.
///
/// # Errors
/// Where the kernel gives none.
pub fn random() -> Result<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(bytes)
}
