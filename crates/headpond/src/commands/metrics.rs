//! `headpond metrics`: all volumes in one text, printed or served.

use super::status::status_of;
use crate::args::MetricsArgs;
use crate::telling::{document, plain};
use anyhow::{Context, Result};
use headpond_api::client::Client;
use headpond_api::config::Config;
use headpond_api::outcome::{Exit, Failure, told};
use headpond_api::place::Places;
use headpond_daemon::exporter::{self, Access, Token};
use headpond_daemon::metrics::{Snapshot, merge, of_failure};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The credential of this name, where the service manager gives one.
const CREDENTIAL: &str = "metrics-token";
/// Of a file that others read.
const FILE_MODE: u32 = 0o644;

/// Prints, writes or serves them.
///
/// # Errors
/// Where the figures of a volume that was named cannot be had, or nothing can be served.
pub fn run(places: &Places, config: &Config, args: &MetricsArgs) -> Result<Exit> {
    if let Some(address) = &args.listen {
        let address = address.as_ref().or(config.metrics_address.as_ref());
        let address = address.ok_or_else(|| {
            Failure::usage("name an address (--listen=127.0.0.1:9949), or set metrics-address")
        })?;
        return serve(places.clone(), config, args, address);
    }
    let (text, exit) = collect(places, &args.names);
    match &args.output {
        Some(path) => write(path, &text)?,
        None => document(&text),
    }
    Ok(exit)
}

/// Those of these volumes, or of all; each is asked on a thread of its own, so that one whose
/// daemon is silent delays no other.
fn collect(places: &Places, names: &[String]) -> (String, Exit) {
    let names = if names.is_empty() { places.names() } else { names.to_vec() };
    let found: Vec<_> = std::thread::scope(|scope| {
        let ask = |name: &String| {
            let name = name.clone();
            scope.spawn(move || of_volume(places, &name))
        };
        let asked: Vec<_> = names.iter().map(ask).collect();
        asked.into_iter().map(|asked| asked.join().expect("asking does not panic")).collect()
    });
    let mut exit = Exit::Ok;
    let texts = names.iter().zip(found).map(|(name, found)| {
        found.unwrap_or_else(|error| {
            exit = Failure::exit_of(&error);
            eprintln!("headpond: note: no metrics of {name}: {}", plain(&told(&error)));
            of_failure(name)
        })
    });
    let texts: Vec<String> = texts.collect();
    (merge(texts.iter().map(String::as_str)), exit)
}

/// Of a daemon; without one, what is known of the volume.
fn of_volume(places: &Places, name: &str) -> Result<String> {
    let client = Client::of(places, name)?;
    if client.is_served() {
        match client.scrape() {
            // It may have ended meanwhile, or be silent.
            Err(error) if Failure::exit_of(&error) == Exit::NotServed => {}
            answered => return answered,
        }
    }
    Ok(Snapshot::without_daemon(status_of(places, name)?).render())
}

/// A reader of the file sees the old text or the new one.
fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(FILE_MODE))?;
        file.persist(path)?;
        Ok(())
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

fn serve(places: Places, config: &Config, args: &MetricsArgs, address: &str) -> Result<Exit> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let at = listener.local_addr()?;
    let names = config.metrics_host.iter().cloned().chain(own_names(address));
    let token = token(config, args.token_file.as_ref());
    let token = token.map_err(|error| Failure::refused(format!("{error:#}")))?;
    let access = Access::new(at, token, names.collect()).map_err(Failure::refused)?;
    println!("metrics at http://{at}/metrics");
    let names = args.names.clone();
    exporter::serve(listener, access, move || collect(&places, &names).0)?;
    Ok(Exit::Ok)
}

/// That of the machine, and the one in the address.
fn own_names(address: &str) -> Vec<String> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
    vec![machine, host]
}

fn token(config: &Config, file: Option<&PathBuf>) -> Result<Option<Token>> {
    let credential = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let credential = credential.map(|folder| folder.join(CREDENTIAL)).filter(|it| it.exists());
    match (file, credential, &config.metrics_token_file) {
        (Some(file), _, _) | (None, None, Some(file)) => Token::read(file).map(Some),
        (None, Some(file), _) => Token::of_credential(&file).map(Some),
        (None, None, None) => Ok(None),
    }
}
