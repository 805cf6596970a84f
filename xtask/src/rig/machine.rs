//! One boot of a machine: QEMU, a shell inside on the second serial line, and its monitor.
//!
//! **Invariants**
//! - A machine that is dropped has lost its power.
//! - Nothing is waited for without an end.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::disks::{Attached, Disks};
use super::image::Image;

const MEMORY: &str = "1G";
/// Errors of the kernel and what becomes of units are on the console.
const KERNEL_LINE: &str = "console=ttyS0 loglevel=4 mitigations=off no_timer_check panic=-1 \
                           systemd.unit=multi-user.target systemd.wants=rig-shell.service \
                           systemd.show_status=yes TERM=dumb SYSTEMD_COLORS=0";
const PAUSE: Duration = Duration::from_millis(100);
const BOOT_MAX: Duration = Duration::from_secs(120);
const COMMAND_MAX: Duration = Duration::from_secs(180);
/// Twice what systemd grants a unit before it is killed, which is a failure as well.
const SHUTDOWN_MAX: Duration = Duration::from_secs(180);
/// What the console must not have from power on to power off.
const TROUBLE: [&str; 7] =
    ["[FAILED]", "[DEPEND]", "[ TIME ]", "I/O error", "EXT4-fs error", "timed out", "Timed out"];

pub struct Machine {
    process: Child,
    shell: Shell,
    monitor: UnixStream,
    console: PathBuf,
    begun: Instant,
    /// The end of the run.
    until: Instant,
}

/// What a command inside has come to.
pub struct Answer {
    pub code: i32,
    pub out: String,
}

impl Machine {
    /// Boots, until there is a shell inside.
    ///
    /// # Errors
    /// When QEMU does not start, or nothing answers inside.
    pub fn boot(
        image: &Image,
        disks: &Disks,
        attached: &[Attached],
        until: Instant,
    ) -> Result<Self> {
        println!("  disks {}", Attached::told(attached));
        let place = |name: &str| disks.folder().join(name);
        let (shell, monitor) = (place("shell"), place("monitor"));
        let console = place("console");
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", MEMORY, "-smp", "2"]);
        qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-append", KERNEL_LINE]);
        qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&*image.initrd);
        qemu.args(["-serial", &format!("file:{}", console.display())]);
        qemu.args(["-serial", &format!("unix:{},server=on,wait=off", shell.display())]);
        qemu.args(["-qmp", &format!("unix:{},server=on,wait=off", monitor.display())]);
        qemu.args(["-device", "virtio-rng-pci", "-device", "virtio-scsi-pci,id=scsi"]);
        for backend in disks.backends() {
            qemu.args(["-blockdev", &backend]);
        }
        for disk in attached {
            qemu.args(["-device", &disk.device().to_string()]);
        }
        let process = qemu.stdin(Stdio::null()).spawn().context("starting QEMU")?;
        let begun = Instant::now();
        let mut process = Guard(Some(process));
        let end = until.min(begun + BOOT_MAX);
        let (shell, monitor) = (connect(&shell, end)?, connect(&monitor, end)?);
        let mut shell = Shell::new(shell)?;
        shell.wait_for("@@up\n", end).with_context(|| told_by(&console))?;
        let process = process.0.take().expect("it is taken once");
        let mut machine = Self { process, shell, monitor, console, begun, until };
        machine.ask_monitor(&json!({"execute": "qmp_capabilities"}))?;
        Ok(machine)
    }

    /// Runs a command of a shell inside, and waits for its end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn run(&mut self, command: &str) -> Result<Answer> {
        let end = self.until.min(Instant::now() + COMMAND_MAX);
        self.shell.run(command, end).with_context(|| told_by(&self.console))
    }

    /// What it prints, when it ends well.
    ///
    /// # Errors
    /// When it does not.
    pub fn ok(&mut self, command: &str) -> Result<String> {
        let Answer { code, out } = self.run(command)?;
        ensure!(code == 0, "`{command}` ended with {code}: {out}");
        Ok(out)
    }

    /// Repeats a question until the answer is the right one.
    ///
    /// # Errors
    /// The last answer, when it takes too long.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut is_so: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let end = self.until.min(Instant::now() + limit);
        while !is_so(self)? {
            ensure!(Instant::now() < end, "{what}: not after {} s", limit.as_secs());
            sleep(PAUSE * 5);
        }
        println!("  {what}: {:.0} s after power on", self.begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Waits until so long after power on.
    pub fn wait_for_age(&self, age: Duration) {
        sleep(age.saturating_sub(self.begun.elapsed()));
    }

    /// Plugs in a disk.
    ///
    /// # Errors
    /// When QEMU refuses it.
    pub fn plug(&mut self, disk: Attached) -> Result<()> {
        let age = self.begun.elapsed().as_secs_f64();
        println!("  plugged in {} {age:.0} s after power on", Attached::told(&[disk]));
        self.ask_monitor(&json!({"execute": "device_add", "arguments": disk.device()}))
    }

    /// Shuts down by systemd.
    ///
    /// # Errors
    /// When that takes too long, or the console has told of trouble since power on.
    pub fn shut_down(mut self) -> Result<()> {
        // The shell may end before it can tell what the command came to.
        self.shell
            .line
            .write_all(b"systemctl poweroff --no-block\n")
            .context("the shell inside")?;
        let begun = Instant::now();
        let end = self.until.min(begun + SHUTDOWN_MAX);
        while self.process.try_wait()?.is_none() {
            ensure!(Instant::now() < end, "the shutdown hangs; {}", told_by(&self.console));
            sleep(PAUSE);
        }
        println!("  shut down in {:.0} s", begun.elapsed().as_secs_f64());
        let told = read(&self.console);
        let trouble = told.lines().find(|line| TROUBLE.iter().any(|it| line.contains(it)));
        ensure!(trouble.is_none(), "on the console: {}", trouble.unwrap_or_default());
        Ok(())
    }

    /// The power is cut: nothing that is not on the disks is left.
    pub fn cut(self) {
        println!("  power cut {:.0} s after power on", self.begun.elapsed().as_secs_f64());
    }

    fn ask_monitor(&mut self, request: &Value) -> Result<()> {
        self.monitor.write_all(format!("{request}\n").as_bytes()).context("the monitor")?;
        let end = self.until.min(Instant::now() + BOOT_MAX);
        let mut told = Vec::new();
        loop {
            read_some(&mut self.monitor, &mut told)?;
            // Greeting and events come in between.
            let mut answers = told.split(|it| *it == b'\n').filter_map(|line| {
                let answer: Value = serde_json::from_slice(line).ok()?;
                (answer.get("return").is_some() || answer.get("error").is_some()).then_some(answer)
            });
            if let Some(answer) = answers.next_back() {
                ensure!(answer.get("error").is_none(), "{request}: {answer}");
                return Ok(());
            }
            ensure!(Instant::now() < end, "the monitor does not answer {request}");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// A process that ends with its guard.
struct Guard(Option<Child>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            end(process);
        }
    }
}

fn end(process: &mut Child) {
    // One that has ended already cannot be killed.
    let _ = process.kill();
    let _ = process.wait();
}

/// QEMU makes its sockets before it runs anything.
fn connect(path: &Path, end: Instant) -> Result<UnixStream> {
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PAUSE))?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > end => {
                return Err(error).with_context(|| format!("QEMU has no {}", path.display()));
            }
            Err(_) => sleep(PAUSE),
        }
    }
}

/// Appends what has come, if anything has.
fn read_some(stream: &mut UnixStream, to: &mut Vec<u8>) -> Result<()> {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Ok(0) => bail!("QEMU has ended"),
        Ok(length) => to.extend_from_slice(&bytes[..length]),
        // The caller asks again until its end: a signal, or a pause without bytes, is no error.
        Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
        Err(error) => return Err(error).context("QEMU is gone"),
    }
    Ok(())
}

fn read(console: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(console).unwrap_or_default()).into_owned()
}

/// The last that the console has told.
fn told_by(console: &Path) -> String {
    format!("the console's last: {}", read(console).trim_end().lines().last().unwrap_or_default())
}

/// A shell that reads from a serial line, without echo.
struct Shell {
    line: UnixStream,
    told: Vec<u8>,
}

impl Shell {
    fn new(line: UnixStream) -> Result<Self> {
        Ok(Self { line, told: Vec::new() })
    }

    fn run(&mut self, command: &str, end: Instant) -> Result<Answer> {
        let text = format!("{{ {command}\n}} </dev/null 2>&1; printf '\\n@@%s\\n' $?\n");
        self.line.write_all(text.as_bytes()).context("the shell inside")?;
        let out = self.wait_for("\n@@", end).with_context(|| format!("`{command}`"))?;
        let code = self.wait_for("\n", end)?;
        Ok(Answer { code: code.parse().with_context(|| format!("`{command}`"))?, out })
    }

    /// What comes before this text, which is taken as well.
    fn wait_for(&mut self, text: &str, end: Instant) -> Result<String> {
        loop {
            let found = self.told.windows(text.len()).position(|it| it == text.as_bytes());
            if let Some(at) = found {
                let mut before: Vec<u8> = self.told.drain(..at + text.len()).collect();
                before.truncate(at);
                return Ok(String::from_utf8_lossy(&before).into_owned());
            }
            let so_far = String::from_utf8_lossy(&self.told);
            ensure!(Instant::now() < end, "no answer from inside in time: {so_far}");
            read_some(&mut self.line, &mut self.told)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_output_and_the_code_of_one_command() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PAUSE)).unwrap();
        let input = theirs.try_clone().unwrap();
        let mut child = Command::new("sh");
        let child = child
            .stdin(std::os::fd::OwnedFd::from(input))
            .stdout(std::os::fd::OwnedFd::from(theirs));
        let mut child = child.spawn().unwrap();
        let mut shell = Shell::new(ours).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let answer = shell.run("printf 'a\\nb'; cat; false", end).unwrap();
        assert_eq!((answer.code, answer.out.as_str()), (1, "a\nb"));
        let answer = shell.run("cat <<E\nx\nE", end).unwrap();
        assert_eq!((answer.code, answer.out.as_str()), (0, "x\n"));
        let error = shell.run("sleep 60", Instant::now()).map(|it| it.code).unwrap_err();
        assert!(format!("{error:#}").contains("sleep 60"), "{error:#}");
        super::end(&mut child);
    }
}
