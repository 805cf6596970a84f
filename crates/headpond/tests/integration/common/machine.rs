//! Virtual machines that a script in `rig/` makes, and what their steps print.

use super::{PROGRAM, User};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a machine is made of, where it is there.
pub struct Parts {
    script: &'static str,
    pub qemu: PathBuf,
    pub kernel: String,
}

pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rig").join(name)
}

impl Parts {
    /// # Errors
    /// What is lacking, beside the tools that every machine needs one of `more`.
    pub fn of(name: &'static str, more: &[&str]) -> Result<Self, String> {
        let tool =
            |name: &str| headpond_testkit::tool(name).ok_or(format!("{name} is not installed"));
        let qemu = tool("qemu-system-x86_64")?;
        for name in ["busybox", "cpio"].iter().chain(more) {
            tool(name)?;
        }
        let found =
            Command::new(script(name)).arg("kernel").output().map_err(|error| error.to_string())?;
        if !found.status.success() {
            return Err(format!("no kernel: `rig/{name} fetch` gets one"));
        }
        let kernel = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        Ok(Self { script: name, qemu, kernel })
    }

    /// Boots a machine that goes through the steps of a file in `tests/`, with the devices that
    /// are added to its command, and waits for its end.
    pub fn run(
        &self,
        user: &User,
        steps: &str,
        memory: &str,
        timeout: Duration,
        add_devices: impl FnOnce(&mut Command),
    ) -> Steps {
        let (initrd, console) = (user.path("initrd"), user.path("console"));
        let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(steps);
        let made = Command::new(script(self.script))
            .args([Path::new("initrd"), &initrd, Path::new(PROGRAM), &steps])
            .status()
            .unwrap();
        assert!(made.success());
        let serial = format!("file:{}", console.display());
        let mut command = Command::new(&self.qemu);
        command
            .args(["-accel", "tcg", "-cpu", "max", "-m", memory, "-smp", "1", "-nodefaults"])
            .args(["-display", "none", "-no-reboot", "-serial", &serial])
            .args(["-kernel", &self.kernel, "-initrd", &initrd.display().to_string()])
            .args(["-append", "console=ttyS0 quiet mitigations=off panic=-1"]);
        add_devices(&mut command);
        let mut machine = command.stdin(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let read =
            || String::from_utf8_lossy(&std::fs::read(&console).unwrap_or_default()).into_owned();
        while machine.try_wait().unwrap().is_none() {
            if begun.elapsed() > timeout {
                machine.kill().unwrap();
                machine.wait().unwrap();
                panic!("the machine goes on: {}", read());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let told = read();
        assert!(told.contains(&format!("{} ends with", self.script)), "{told}");
        Steps::parse(&told)
    }
}

/// Exit code and output of each step.
pub struct Steps(BTreeMap<String, (i32, String)>);

impl Steps {
    fn parse(console: &str) -> Self {
        let mut steps = BTreeMap::new();
        let (mut name, mut out) = (String::new(), String::new());
        for line in console.lines().map(|line| line.trim_end_matches('\r')) {
            if let Some(begins) = line.strip_prefix("== ") {
                (name, out) = (begins.to_owned(), String::new());
            } else if let Some(code) = line.strip_prefix("-- ") {
                steps.insert(name.clone(), (code.parse().unwrap(), std::mem::take(&mut out)));
            } else {
                out.push_str(line);
                out.push('\n');
            }
        }
        Self(steps)
    }

    pub fn has(&self, step: &str) -> bool {
        self.0.contains_key(step)
    }

    /// What a step printed that ended so.
    pub fn ended(&self, step: &str, code: i32) -> &str {
        let (ended, out) = self.0.get(step).unwrap_or_else(|| panic!("there is no step {step}"));
        assert_eq!(*ended, code, "{step}: {out}");
        out
    }

    /// What a step printed as JSON; what the kernel says in between stands before it.
    pub fn json(&self, step: &str) -> Value {
        let out = self.ended(step, 0);
        let from = out.find("{\n").unwrap_or_else(|| panic!("{step}: {out}"));
        serde_json::from_str(&out[from..]).unwrap_or_else(|error| panic!("{step}: {error}: {out}"))
    }
}
