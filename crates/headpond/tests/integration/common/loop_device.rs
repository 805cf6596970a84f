//! A loop device, where the machine permits it.

use headpond_testkit::tool;
use std::path::Path;
use std::process::{Command, Output};

/// A block device over a file; taken apart when dropped.
pub struct LoopDevice {
    pub node: String,
}

impl LoopDevice {
    /// # Errors
    /// Why there is none.
    pub fn over(file: &str) -> Result<Self, String> {
        let losetup = tool("losetup").ok_or("no losetup")?;
        let output = Command::new(losetup).args(["--find", "--show", file]).output();
        let output = output.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(Self { node: String::from_utf8_lossy(&output.stdout).trim().to_owned() }),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Runs a program of the administrator with arguments and this device.
    ///
    /// # Errors
    /// Where it is not installed.
    pub fn given_to(&self, program: &str, args: &[&str]) -> Result<Output, String> {
        let program = tool(program).ok_or(format!("no {program}"))?;
        let output = Command::new(program).args(args).arg(&self.node).output();
        output.map_err(|error| error.to_string())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if Path::new(&self.node).exists() {
            let _ = self.given_to("losetup", &["--detach"]);
        }
    }
}
