//! The parameter files of a drive, which lie beside each other and source each other.

use anyhow::{Context, Result, bail};
use headpond_sim::disksim::{Import, Imported, import};
use headpond_trace::ByteSource;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// No parameter file and no such trace is longer.
const BYTES_MAX: u64 = 256 << 20;

/// A file that sources another one may itself be sourced: `.model`, `.diskspecs`, `.parv`.
const STEPS_MAX: usize = 3;

/// Where an import begins.
pub struct DriveFiles {
    folder: PathBuf,
    outermost: String,
}

impl DriveFiles {
    /// Finds the outermost of the files that belong to the one the user named: the bus is
    /// described in the `.parv` that sources the `.diskspecs` that sources the `.model`.
    ///
    /// # Errors
    /// Where the file is none.
    pub fn of(named: &Path) -> Result<Self> {
        fs::metadata(named).with_context(|| named.display().to_string())?;
        let name = named.file_name().and_then(|name| name.to_str());
        let Some(name) = name else { bail!("{}: is not a file name", named.display()) };
        let parent = named.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = parent.unwrap_or(Path::new(".")).to_owned();
        let mut outermost = name.to_owned();
        for _ in 0..STEPS_MAX {
            match sourced_by(&folder, &outermost) {
                Some(outer) => outermost = outer,
                None => break,
            }
        }
        Ok(Self { folder, outermost })
    }

    /// # Errors
    /// Names file, line and field.
    pub fn import(&self, disk: Option<&str>) -> Result<Imported> {
        let file = self.outermost.as_str();
        let mut read = |name: &str| read_plain(&self.folder.join(name));
        let imported = import(Import { file, disk }, &mut read);
        imported.with_context(|| self.folder.display().to_string())
    }
}

/// The file beside `name` that sources it. Where several do, the one of the same stem: the others
/// put the drive into systems of their own.
fn sourced_by(folder: &Path, name: &str) -> Option<String> {
    let mut outer: Vec<String> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|other| other.ends_with(".parv") || other.ends_with(".diskspecs"))
        .filter(|other| other != name && sources(&folder.join(other), name))
        .collect();
    outer.sort();
    let stem = |name: &str| name.split('.').next().map(str::to_owned);
    let same = outer.iter().find(|other| stem(other) == stem(name)).cloned();
    match (same, outer.len()) {
        (Some(same), _) => Some(same),
        (None, 1) => outer.pop(),
        _ => None,
    }
}

fn sources(file: &Path, name: &str) -> bool {
    let text = read_plain(file).unwrap_or_default();
    let code = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    let mut sourced = code.filter_map(|line| line.split_once("source ").map(|(_, file)| file));
    sourced.any(|file| file.trim().trim_end_matches([',', ' ']).trim_matches('"') == name)
}

fn read_plain(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    if file.take(BYTES_MAX + 1).read_to_end(&mut bytes)? as u64 > BYTES_MAX {
        return Err(io::Error::other("is longer than 256 MiB"));
    }
    // Names of makers in comments are in whatever encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A text file or standard input, through gzip and zstd.
///
/// # Errors
/// Where it cannot be read, is too long or no text.
pub fn read_text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = ByteSource::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text);
    read.with_context(|| path.display().to_string())?;
    if text.len() as u64 > BYTES_MAX {
        bail!("{}: is longer than 256 MiB", path.display());
    }
    Ok(text)
}
