//! `headpond trace record` of a block device: the kernel's own tracer, run by the program
//! `blktrace`.
//!
//! `blktrace` handles the interfaces of every kernel (ioctl, relay files, per-CPU buffers, both
//! versions of the events) and writes one stream, which is converted as it arrives.

use super::args::RecordArgs;
use crate::commands::reading;
use crate::interrupt;
use crate::telling::print_json;
use anyhow::{Context, Result, bail};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::is_root;
use headpond_trace::{
    Conversion, ExportFormat, ReadOptions, TraceError, TraceFormat, TraceReader, convert,
};
use serde_json::json;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Records until the time is over or Ctrl-C, which `blktrace` is sent as well.
///
/// # Errors
/// If it is not a device, if the tracer is missing or not permitted, and errors of `blktrace`.
pub fn record(device: &Path, args: &RecordArgs) -> Result<Exit> {
    check_device(device)?;
    let blktrace = find_blktrace()?;
    if !is_root() {
        bail!("{}: the kernel's tracer requires root: run this with sudo", device.display());
    }
    let output = args.output.clone().unwrap_or_else(|| default_output(device));
    let mut child = start(&blktrace, device, args.seconds)?;
    // Ctrl-C ends `blktrace`, and with it the stream; this program then writes the end.
    interrupt::completes("completing the recording", || ());
    let written = write(&mut child, &output);
    let said = end(child);
    let conversion = match (written, said) {
        (Ok(Some(conversion)), Ok(said)) => {
            eprint!("{said}");
            conversion
        }
        (Ok(None), Ok(_)) => bail!("{}: no request arrived during the recording", device.display()),
        (_, Err(failed)) => return Err(failed.context(device.display().to_string())),
        (Err(failed), Ok(said)) => return Err(failed.context(said.trim().to_owned())),
    };
    tell(args, &output, conversion)?;
    Ok(Exit::Ok)
}

fn check_device(device: &Path) -> Result<()> {
    let no_device = "is not a block device; a volume is recorded by its name";
    let known = match fs::metadata(device) {
        Ok(known) if known.file_type().is_block_device() => known,
        Ok(_) => return Err(Failure::usage(format!("{}: {no_device}", device.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::usage(format!("{}: {error}", device.display())));
        }
        Err(error) => return Err(error).with_context(|| device.display().to_string()),
    };
    let (major, minor) = (rustix::fs::major(known.rdev()), rustix::fs::minor(known.rdev()));
    let attributes = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if attributes.exists() && !attributes.join("trace").exists() {
        bail!("{}: this kernel was built without CONFIG_BLK_DEV_IO_TRACE", device.display());
    }
    Ok(())
}

/// In the user's path, or in the folders of administrators' programs.
fn find_blktrace() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join("blktrace")).find(|program| program.is_file());
    found.context("the program blktrace is not installed: install it to record block devices")
}

fn default_output(device: &Path) -> PathBuf {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    PathBuf::from(format!("{name}.hptrace"))
}

fn start(blktrace: &Path, device: &Path, seconds: u64) -> Result<Child> {
    Command::new(blktrace)
        .arg("-d")
        .arg(device)
        .args(["-w", &seconds.to_string(), "-o", "-"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| blktrace.display().to_string())
}

/// Converts the trace of `child` to a recording; `None` if it is empty.
fn write(child: &mut Child, output: &Path) -> Result<Option<Conversion>> {
    let stream = child.stdout.take().context("blktrace has no output")?;
    let options = ReadOptions { format: Some(TraceFormat::Blktrace), ..ReadOptions::default() };
    let mut reader = match TraceReader::from_input("blktrace", Box::new(stream), options) {
        Err(TraceError::Empty { .. }) => return Ok(None),
        reader => reader?,
    };
    let file = File::create(output).with_context(|| output.display().to_string())?;
    let bar = reading::bar("recording, Ctrl-C ends");
    let shown = |reader: &TraceReader| reading::show(&bar, reader);
    let conversion = convert(&mut reader, file, ExportFormat::Recording, shown);
    bar.finish_and_clear();
    Ok(Some(conversion?))
}

/// Waits for `blktrace` and returns its output; an error if it failed.
fn end(mut child: Child) -> Result<String> {
    let mut said = String::new();
    if let Some(mut stream) = child.stderr.take() {
        stream.read_to_string(&mut said)?;
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("blktrace ended with {status}: {}", said.trim());
    }
    Ok(said)
}

fn tell(args: &RecordArgs, output: &Path, conversion: Conversion) -> Result<()> {
    let (file, records) = (output.display(), conversion.records);
    if args.json {
        print_json(&Versioned::new(json!({ "records": records, "output": output })))?;
    } else {
        println!("{file}: {records} requests recorded; analyse it with `headpond analyze {file}`");
    }
    Ok(())
}
