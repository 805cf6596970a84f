//! Workloads in the syntax of fio's job files: the part of it that says what is asked of a device.
//!
//! Every job of a file runs at the same time. What concerns the host alone (engine, files, memory)
//! is read over; what would change the load and is not known is an error.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One job: `jobs` processes, each a closed loop of `depth` requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    pub rw: Rw,
    /// Percent of the requests that read, where both are made.
    pub read_percent: u32,
    pub block_bytes: u64,
    pub depth: u32,
    pub jobs: u32,
    /// First byte of the region.
    pub offset: u64,
    /// Length of the region; the rest of the device without it.
    pub size: Option<u64>,
    /// A part of the region that is asked for more often, and read once before the job begins.
    pub hot: Option<Hot>,
    /// Requests a second of each process at most.
    pub rate_iops: Option<u64>,
    /// Requests come when they come, whether earlier ones were answered or not; `depth` means
    /// nothing then.
    pub arrivals: Option<Arrivals>,
    /// A flush after so many writes; 0: none.
    pub flush_every: u32,
    /// While a write and its flush are under way no other request of the same process begins, as
    /// with fio's libaio, whose flushes are carried out by the thread that submits. Only where each
    /// write has a flush, and the device takes them. Job files do not say it.
    pub flushes_in_turn: bool,
    /// Each write is stable when it is answered.
    pub fua: bool,
    /// Not measured.
    pub ramp: Duration,
    /// Measured; without it the job ends when it has moved its region once.
    pub runtime: Option<Duration>,
    /// Goes on for all of the runtime, round its region again and again.
    pub is_time_based: bool,
}

/// The first bytes of a region; job files do not say it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot {
    /// Of the random requests, those that are for it.
    pub share: f64,
    pub bytes: u64,
}

/// An open loop of all processes of a job together; job files do not say it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    pub per_s: f64,
    pub process: ArrivalProcess,
}

/// How far apart requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalProcess {
    /// Always the same time.
    Fixed,
    /// As if each of very many clients asked now and then.
    #[default]
    Poisson,
}

/// What is read and written, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rw {
    pub is_random: bool,
    pub reads: bool,
    pub writes: bool,
}

/// A job file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    #[error("line {line}: {text:?} is neither a [section] nor KEY=VALUE")]
    Syntax { line: usize, text: String },
    #[error("line {line}: {key} is not known here; known are {KNOWN}")]
    UnknownKey { line: usize, key: String },
    #[error("line {line}: {key}={value} is not {what}")]
    Value { line: usize, key: String, value: String, what: &'static str },
    #[error("there is no job: a file needs a [section] beside [global]")]
    NoJob,
    #[error("job {job}: time_based needs a runtime")]
    Endless { job: String },
}

const KNOWN: &str = "rw, rwmixread, rwmixwrite, bs, iodepth, numjobs, offset, size, rate_iops, fsync, \
                     fdatasync, ramp_time, runtime, time_based";

/// They say how a host makes the load, not which.
const READ_OVER: [&str; 18] = [
    "ioengine",
    "direct",
    "filename",
    "directory",
    "group_reporting",
    "thread",
    "name",
    "buffered",
    "randrepeat",
    "norandommap",
    "invalidate",
    "stonewall",
    "uri",
    "randseed",
    "refill_buffers",
    "log_avg_msec",
    "cpus_allowed",
    "lat_percentiles",
];

impl Default for Job {
    /// What fio does where nothing is said; a job without a runtime moves its region once.
    fn default() -> Self {
        Self {
            name: "job".into(),
            rw: Rw { is_random: false, reads: true, writes: false },
            read_percent: 50,
            block_bytes: 4096,
            depth: 1,
            jobs: 1,
            offset: 0,
            size: None,
            hot: None,
            rate_iops: None,
            arrivals: None,
            flush_every: 0,
            flushes_in_turn: false,
            fua: false,
            ramp: Duration::ZERO,
            runtime: None,
            is_time_based: false,
        }
    }
}

/// Reads a job file.
///
/// # Errors
/// The first line that is not understood.
pub fn parse(text: &str) -> Result<Vec<Job>, JobError> {
    let (mut global, mut jobs): (Job, Vec<Job>) = (Job::default(), Vec::new());
    let mut is_global = true;
    for (index, text) in text.lines().enumerate() {
        let (line, text) = (index + 1, text.trim());
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            is_global = section == "global";
            if !is_global {
                jobs.push(Job { name: section.to_owned(), ..global.clone() });
            }
            continue;
        }
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key.trim(), value.trim()),
            None if text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => (text, "1"),
            None => return Err(JobError::Syntax { line, text: text.to_owned() }),
        };
        let job = if is_global { &mut global } else { jobs.last_mut().expect("in a section") };
        job.set(line, key, value)?;
    }
    match jobs.iter().find(|job| job.is_time_based && job.runtime.is_none()) {
        Some(job) => Err(JobError::Endless { job: job.name.clone() }),
        None if jobs.is_empty() => Err(JobError::NoJob),
        None => Ok(jobs),
    }
}

impl Job {
    fn set(&mut self, line: usize, key: &str, value: &str) -> Result<(), JobError> {
        let wrong = |what| {
            let (key, value) = (key.to_owned(), value.to_owned());
            JobError::Value { line, key, value, what }
        };
        let number = |most: u64| {
            let number = value.parse::<u64>().ok().filter(|&number| number <= most);
            number.ok_or_else(|| wrong("a whole number in its range"))
        };
        let several = || {
            let number = value.parse().ok().filter(|number| (1..=4096).contains(number));
            number.ok_or_else(|| wrong("a whole number from 1 to 4096"))
        };
        let size = || size(value).ok_or_else(|| wrong("a size (4k, 64K, 1m, 10g)"));
        let time = || time(value).ok_or_else(|| wrong("a time (30, 30s, 500ms, 5m, 1h)"));
        match key {
            "rw" | "readwrite" => self.rw = rw(value).ok_or_else(|| wrong(PATTERNS))?,
            "rwmixread" => self.read_percent = number(100)? as u32,
            "rwmixwrite" => self.read_percent = 100 - number(100)? as u32,
            "bs" | "blocksize" => {
                let bytes = size()?;
                let fits = bytes > 0 && bytes.is_multiple_of(512) && bytes <= BLOCK_BYTES_MAX;
                self.block_bytes = fits.then_some(bytes).ok_or_else(|| wrong(BLOCK_SIZES))?;
            }
            "iodepth" => self.depth = several()?,
            "numjobs" => self.jobs = several()?,
            "offset" => self.offset = size()?,
            "size" if value == "100%" => self.size = None,
            "size" => self.size = Some(size()?),
            "rate_iops" => self.rate_iops = Some(number(u64::MAX)?).filter(|&rate| rate > 0),
            "fsync" | "fdatasync" => self.flush_every = number(u64::from(u32::MAX))? as u32,
            "ramp_time" => self.ramp = time()?,
            "runtime" => self.runtime = Some(time()?),
            "time_based" => self.is_time_based = value != "0",
            key if READ_OVER.contains(&key) => {}
            _ => return Err(JobError::UnknownKey { line, key: key.to_owned() }),
        }
        Ok(())
    }
}

const BLOCK_BYTES_MAX: u64 = 16 << 20;
const BLOCK_SIZES: &str = "a multiple of 512 bytes up to 16m";
const PATTERNS: &str = "one of read, write, rw, randread, randwrite, randrw";

/// fio's words for it.
pub fn rw(text: &str) -> Option<Rw> {
    let (reads, writes) = match text.strip_prefix("rand").unwrap_or(text) {
        "read" => (true, false),
        "write" => (false, true),
        "rw" | "readwrite" => (true, true),
        _ => return None,
    };
    Some(Rw { is_random: text.starts_with("rand"), reads, writes })
}

/// fio's sizes: units are powers of two, in any case.
fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let text = text.trim_end_matches('b').trim_end_matches('i');
    let shift = match text.chars().last()? {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        'p' => 50,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// fio's times: seconds where no unit is given.
fn time(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..split].parse::<u64>().ok()?;
    let micros = match &text[split..] {
        "us" => 1,
        "ms" => 1000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    number.checked_mul(micros).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_settings_hold_for_the_jobs_below() {
        let text = "; a comment\n[global]\nioengine=libaio\ndirect=1\nbs=64k\nruntime=1m\ntime_based\n\
                    [seq]\nrw=write\n\n[rand]\nrw=randrw\nrwmixread=70\nbs=4k\niodepth=32\nsize=10g\n";
        let jobs = parse(text).unwrap();
        assert_eq!(jobs.len(), 2);
        assert_eq!((jobs[0].name.as_str(), jobs[0].block_bytes), ("seq", 64 << 10));
        assert!(jobs[0].is_time_based && jobs[0].runtime == Some(Duration::from_secs(60)));
        assert_eq!(jobs[1].rw, Rw { is_random: true, reads: true, writes: true });
        assert_eq!((jobs[1].read_percent, jobs[1].depth), (70, 32));
        assert_eq!((jobs[1].size, jobs[1].block_bytes), (Some(10 << 30), 4096));
    }

    #[test]
    fn mistakes_name_line_and_key() {
        for (text, says) in [
            ("[a]\nrw=verify\n", "line 2: rw=verify is not one of"),
            ("[a]\nzonemode=zbd\n", "line 2: zonemode is not known"),
            ("[a]\nbs=100\n", "multiple of 512"),
            ("[a]\niodepth=0\n", "from 1 to 4096"),
            ("[a]\nnumjobs=5000\n", "from 1 to 4096"),
            ("[a]\n!?\n", "neither a [section]"),
            ("[global]\nbs=4k\n", "there is no job"),
            ("[a]\ntime_based\n", "needs a runtime"),
            ("[a]\nruntime=soon\n", "a time"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn sizes_and_times_are_those_of_fio() {
        assert_eq!(
            ["4k", "4K", "4KiB", "1m", "512"].map(size),
            [Some(4096), Some(4096), Some(4096), Some(1 << 20), Some(512)]
        );
        assert_eq!(time("30"), Some(Duration::from_secs(30)));
        assert_eq!(time("250ms"), Some(Duration::from_millis(250)));
        assert_eq!((time("m"), size("k")), (None, None));
    }
}
