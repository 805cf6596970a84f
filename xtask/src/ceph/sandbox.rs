//! Whether the unit of systemd lets librbd work: what the daemon asks of the kernel, beside what
//! the unit allows. systemd itself does not run here.
//!
//! **Not here**: folders and capabilities: the unit hides none that librbd reads or writes.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::host::{Host, said};
use super::is_there;
use super::scenarios::Stage;

const UNIT: &str = include_str!("../../../systemd/headpond@.service");

/// # Errors
/// What the unit would not allow.
pub fn check(stage: &mut Stage) -> Result<Vec<String>> {
    for (tool, package) in [("strace", "strace"), ("systemd-analyze", "systemd")] {
        if !is_there(tool) {
            return Ok(vec![format!("the sandbox of the unit: not installed: {package}")]);
        }
    }
    let traces = stage.folder.join("traces");
    std::fs::create_dir_all(&traces)?;
    let traced = traced(stage, &traces)?;
    stage.cluster.create_image("sandbox", 256)?;
    let folder = stage.folder.join("sandbox");
    let mut host = Host::new(&traced, &folder, &stage.cluster.conf(), "sandbox")?;
    host.serve()?;
    ensure!(host.begin_writes(5)?.wait()?.success(), "the load failed");
    ensure!(host.verify()? > 0, "nothing was acknowledged");
    host.stop()?;
    let (mut calls, mut lines) = (BTreeSet::new(), String::new());
    for file in std::fs::read_dir(&traces)? {
        lines += &std::fs::read_to_string(file?.path())?;
    }
    calls.extend(lines.lines().filter_map(|line| line.split_once('(')).map(|(call, _)| call));
    ensure!(calls.contains("connect"), "nothing was traced");
    let allowed = allowed()?;
    let refused: Vec<_> = calls.iter().filter(|call| !allowed.contains(**call)).collect();
    ensure!(refused.is_empty(), "SystemCallFilter= has no {refused:?}");
    let families = setting("RestrictAddressFamilies=").next().context("no families")?;
    let families: Vec<&str> = families.split_whitespace().collect();
    let socket = |line: &&str| line.starts_with("socket(");
    let family = |line: &str| Some(line.split_once('(')?.1.split(',').next()?.to_owned());
    for family in lines.lines().filter(socket).filter_map(family) {
        ensure!(families.contains(&family.as_str()), "RestrictAddressFamilies= has no {family}");
    }
    let is_both = |line: &&str| line.contains("PROT_WRITE|PROT_EXEC");
    let made = |line: &&str| line.starts_with("mprotect(") && line.contains("PROT_EXEC");
    let refused = lines.lines().find(|line| is_both(line) || made(line));
    ensure!(refused.is_none(), "MemoryDenyWriteExecute= refuses {refused:?}");
    println!("{} system calls of {} that are allowed", calls.len(), allowed.len());
    Ok(Vec::new())
}

/// The program, whose daemon is traced.
fn traced(stage: &Stage, traces: &Path) -> Result<std::path::PathBuf> {
    let (file, program) = (stage.folder.join("traced"), stage.program.display());
    let traces = traces.join("call");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = serve ] || exec '{program}' \"$@\"\n\
         exec strace -qq -ff -o '{}' '{program}' \"$@\"\n",
        traces.display()
    );
    std::fs::write(&file, text)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    Ok(file)
}

fn setting(name: &str) -> impl Iterator<Item = &'static str> {
    UNIT.lines().filter_map(move |line| line.strip_prefix(name))
}

/// System calls that the unit allows.
fn allowed() -> Result<BTreeSet<String>> {
    // What starts and ends a process is always allowed.
    let mut allowed = group("@default")?;
    allowed.insert("execve".to_owned());
    for line in setting("SystemCallFilter=") {
        let (is_without, words) = match line.strip_prefix('~') {
            Some(words) => (true, words),
            None => (false, line),
        };
        for word in words.split_whitespace() {
            let named = match word.starts_with('@') {
                true => group(word)?,
                false => BTreeSet::from([word.to_owned()]),
            };
            match is_without {
                true => allowed.retain(|call| !named.contains(call)),
                false => allowed.extend(named),
            }
        }
    }
    Ok(allowed)
}

/// The calls of a group, and of those in it.
fn group(name: &str) -> Result<BTreeSet<String>> {
    let told = said(&Command::new("systemd-analyze").args(["syscall-filter", name]).output()?)?;
    let mut calls = BTreeSet::new();
    for word in told.lines().filter_map(|line| line.strip_prefix("    ")) {
        match word.starts_with('@') {
            true => calls.extend(group(word)?),
            false => calls.extend([word.to_owned()]),
        }
    }
    Ok(calls)
}
