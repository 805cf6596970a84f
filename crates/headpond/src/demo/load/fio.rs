//! Load by fio's NBD engine: an independent client.

use super::{Limit, LoadMaker, Measured, Pattern, Target, Workload};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub struct Fio {
    program: PathBuf,
    version: String,
}

impl Fio {
    /// fio, where it is installed and has the NBD engine.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn find() -> Result<Self> {
        let output = Command::new("fio").arg("--version").stdin(Stdio::null()).output();
        let output = output.context("fio is not installed")?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let engines = Command::new("fio").arg("--enghelp=nbd").stdin(Stdio::null()).output()?;
        if !engines.status.success() {
            bail!("{version} has no NBD engine");
        }
        Ok(Self { program: "fio".into(), version })
    }

    fn command(&self, workload: &Workload, target: &Target, limit: Limit) -> Command {
        let mut command = Command::new(&self.program);
        let rw = match workload.pattern {
            Pattern::RandomWrite => "randwrite",
            Pattern::RandomMixed => "randrw",
            Pattern::SequentialWrite => "write",
        };
        command.args(["--name=try", "--ioengine=nbd", "--output-format=json", "--thread"]);
        command.args(["--norandommap", "--random_generator=tausworthe64", "--rwmixread=50"]);
        command.arg(format!("--uri=nbd+unix:///?socket={}", target.socket.display()));
        command.arg(format!("--rw={rw}")).arg(format!("--bs={}", workload.block_bytes));
        command.arg(format!("--iodepth={}", workload.depth));
        command.arg(format!("--randseed={}", target.run + 1));
        command.arg(format!("--runtime={}ms", limit.time.as_millis()));
        if workload.pattern == Pattern::SequentialWrite {
            let region = target.sequential_region();
            command.arg(format!("--offset={}", region.start()));
            command.arg(format!("--size={}", region.len()));
        }
        match limit.bytes {
            Some(bytes) => command.arg(format!("--io_size={bytes}")),
            // Without it fio stops when it has written each byte once.
            None => command.arg("--time_based"),
        };
        command
    }
}

impl LoadMaker for Fio {
    fn name(&self) -> String {
        format!("{}, its nbd engine", self.version)
    }

    fn run(&self, workload: &Workload, target: &Target, limit: Limit) -> Result<Measured> {
        let mut command = self.command(workload, target, limit);
        let output = command.stdin(Stdio::null()).output().context("fio cannot be run")?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("fio failed ({}): {}", output.status, error.trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        // Warnings may stand before the document.
        let start = text.find('{').context("fio printed no JSON")?;
        let report: Value = serde_json::from_str(&text[start..]).context("fio's JSON")?;
        measured(&report).context("fio's JSON lacks the expected fields")
    }
}

fn measured(report: &Value) -> Option<Measured> {
    let job = report.get("jobs")?.get(0)?;
    let (read, write) = (job.get("read")?, job.get("write")?);
    let number = |side: &Value, field: &str| side.get(field).and_then(Value::as_f64);
    let (read_iops, write_iops) = (number(read, "iops")?, number(write, "iops")?);
    let latency = |side: &Value| {
        let clat = side.get("clat_ns")?;
        let mean = number(clat, "mean")? / 1e6;
        let p99 = clat.get("percentile").and_then(|all| number(all, "99.000000"));
        Some((mean, p99.unwrap_or(0.0) / 1e6))
    };
    let ((read_mean, read_p99), (write_mean, write_p99)) = (latency(read)?, latency(write)?);
    let total = (read_iops + write_iops).max(f64::MIN_POSITIVE);
    Some(Measured {
        read_iops,
        write_iops,
        mb_per_s: (number(read, "bw_bytes")? + number(write, "bw_bytes")?) / 1e6,
        mean_ms: (read_mean * read_iops + write_mean * write_iops) / total,
        p99_ms: read_p99.max(write_p99),
        seconds: number(read, "runtime")?.max(number(write, "runtime")?) / 1e3,
    })
}
