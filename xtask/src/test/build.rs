//! Builds every test program, and says what they are and how long that took.
//!
//! **Invariants**: one call of cargo, so that every package has the same features in all programs.
//!
//! **Source**: the JSON messages of cargo ("External tools" in the Cargo book).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Deserialize;

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// `package target`, where the target is not named as its package is.
    pub name: String,
    pub package: String,
    pub path: PathBuf,
    /// Where its tests expect to run: the folder of their package.
    pub folder: PathBuf,
}

impl Program {
    /// File name with cargo's hash, as tests know it.
    pub fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A call of the cargo that called us.
pub fn cargo(workspace: &Path, does: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace).arg(does);
    command
}

/// Builds the programs that `arguments` select; `None` where that fails.
///
/// # Errors
/// When cargo cannot be started or answers in a form that we do not know.
pub fn programs(
    workspace: &Path,
    arguments: &[String],
    path: &std::ffi::OsStr,
) -> Result<Option<Vec<Program>>> {
    let mut command = cargo(workspace, "test");
    command.args(["--no-run", "--message-format", "json-render-diagnostics"]).args(arguments);
    let mut child =
        command.env("PATH", path).stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let mut programs = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        let message = serde_json::from_str(&line).with_context(|| line.clone())?;
        programs.extend(program(message));
    }
    Ok(child.wait()?.success().then_some(programs))
}

fn program(message: Message) -> Option<Program> {
    let is_test = message.reason == "compiler-artifact" && message.profile?.test;
    let path = message.executable.filter(|_| is_test)?;
    let folder = message.manifest_path?.parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = message.target?;
    let is_unit = target.kind.iter().any(|kind| kind == "lib" || kind == "bin");
    let name = if is_unit { package.clone() } else { format!("{package} {}", target.name) };
    Some(Program { name, package, path, folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Program> {
        program(serde_json::from_str(line).unwrap())
    }

    #[test]
    fn unit_tests_are_named_as_their_package_and_others_by_their_target() {
        let artifact = |kind: &str, name: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/raid/Cargo.toml",
                "target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}},
                "executable":"/w/target/{name}-1f"}}"#
            )
        };
        let unit = read(&artifact("lib", "headpond_raid", true)).unwrap();
        assert_eq!((unit.name.as_str(), unit.file_name().as_str()), ("raid", "headpond_raid-1f"));
        let integration = read(&artifact("test", "integration", true)).unwrap();
        assert_eq!(integration.name, "raid integration");
        assert_eq!(integration.folder, Path::new("/w/crates/raid"));
        assert_eq!(read(&artifact("bin", "headpond", false)), None);
    }

    #[test]
    fn messages_that_are_no_programs_are_passed_over() {
        assert_eq!(read(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(read(r#"{"reason":"build-script-executed","package_id":"a"}"#), None);
    }
}
