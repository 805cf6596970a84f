//! A served volume under fio, with nobody pinned, beside `nbdkit memory`; and a real stack, RAID 5
//! of loop devices, beside qemu-nbd on one of them.
//!
//! Ours with and without a thread for connections and the rival take turns; each figure is the
//! median. The first volume has a cache in memory with room for all that is written, and memory was
//! touched before; it is also measured while its metrics are read. The real stack needs root. What
//! is not installed is said. With `-- scrapes` it reads metrics and does nothing else.

use headpond_api::client::Client;
use headpond_api::place::Places;
use headpond_testkit::{Served, fio, tempdir, tool};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

const SIZE_MIB: u64 = 384;
/// The log has room for what is dirty, and for its overwrites.
const CACHE: &str = "ram:1200M";
const ROUNDS: usize = 3;
const SCRAPED_ROUNDS: usize = 24;
const SCRAPES: &str = "scrapes";
/// A monitoring system reads four in a minute.
const SCRAPES_PER_S: u64 = 10;
/// The folder of descriptions, and the volume that is served without a thread.
const STATE: &str = "state";
const ALONE: &str = "alone";
const ROUND_SECONDS: u64 = 2;
const MIB: usize = 1 << 20;
/// `/proc/PID/stat` counts in hundredths of a second.
const TICK_US: f64 = 10_000.0;

const ROWS: [Row; 10] = [
    row("read 4k d1", "randread", 4 << 10, 1, 1),
    row("write 4k d1", "randwrite", 4 << 10, 1, 1),
    row("read 4k d32", "randread", 4 << 10, 32, 1),
    row("write 4k d32", "randwrite", 4 << 10, 32, 1),
    row("read 4k d32 x4", "randread", 4 << 10, 32, 4),
    row("write 4k d32 x4", "randwrite", 4 << 10, 32, 4),
    row("read 1m d8", "read", MIB, 8, 1),
    row("write 1m d8", "write", MIB, 8, 1),
    row("read 1m d8 x4", "read", MIB, 8, 4),
    row("write 1m d8 x4", "write", MIB, 8, 4),
];
const REAL_ROWS: [Row; 2] =
    [row("read 1m d8", "read", MIB, 8, 1), row("write 1m d8", "write", MIB, 8, 1)];

/// A load: connections with so many requests in flight each.
struct Row {
    name: &'static str,
    load: fio::Load,
}

const fn row(
    name: &'static str,
    rw: &'static str,
    block_bytes: usize,
    depth: usize,
    jobs: usize,
) -> Row {
    Row { name, load: fio::Load { rw, block_bytes, depth, jobs, seconds: ROUND_SECONDS } }
}

struct Peer {
    served: Served,
    uri: String,
}

/// Those that take turns.
struct Field {
    name: &'static str,
    size_mib: u64,
    alone: Peer,
    threaded: Peer,
    rival: Option<Peer>,
}

fn main() -> Outcome<()> {
    if tool("fio").is_none() {
        eprintln!("skipped: volumes under fio: fio is not installed");
        return Ok(());
    }
    let folder = tempdir();
    let in_memory = in_memory(folder.path())?;
    let scrapes_alone = std::env::args().any(|word| word == SCRAPES);
    measure(&in_memory, if scrapes_alone { &[] } else { &ROWS })?;
    scraped(&in_memory, &Places::at(&folder.path().join(STATE)))?;
    drop(in_memory);
    if scrapes_alone {
        return Ok(());
    }
    let loops = match Loops::new(folder.path()) {
        Ok(loops) => loops,
        Err(why) => {
            eprintln!("skipped: a volume of loop devices: {why}");
            return Ok(());
        }
    };
    measure(&real(folder.path(), &loops)?, &REAL_ROWS)
}

fn measure(field: &Field, rows: &[Row]) -> Outcome<()> {
    let Field { name, size_mib, alone, threaded, rival } = field;
    let peers = [Some(alone), Some(threaded), rival.as_ref()];
    for peer in peers.into_iter().flatten() {
        let all = fio::Load { rw: "write", block_bytes: MIB, depth: 8, jobs: 1, seconds: 0 };
        all.run(&peer.uri, *size_mib)?;
    }
    for Row { name: row, load } in rows {
        let mut rounds: [Vec<Round>; 3] = Default::default();
        for _ in 0..ROUNDS {
            for (peer, rounds) in peers.iter().zip(&mut rounds) {
                rounds.extend(peer.map(|peer| peer.round(load, *size_mib)).transpose()?);
            }
        }
        let [alone, threaded, rival] = rounds.map(median);
        for (ours, suffix) in [(alone, ""), (threaded, ", thread")] {
            print(&format!("{name} {row}{suffix}"), load.block_bytes, ours, rival);
        }
    }
    Ok(())
}

/// What it costs clients that metrics are read: the rival is the same volume without. They take
/// turns often, as the difference is small.
fn scraped(field: &Field, places: &Places) -> Outcome<()> {
    let client = Client::of(places, ALONE)?;
    let load = fio::Load { seconds: 1, ..ROWS[2].load };
    let (mut rates, mut snapshots) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..2 * SCRAPED_ROUNDS {
        // With, without, without, with: what drifts is in both.
        let is_scraped = [0, 3].contains(&(round % 4));
        let is_over = AtomicBool::new(!is_scraped);
        let rate = std::thread::scope(|scope| {
            let scraper = scope.spawn(|| scrape_until(&client, &is_over));
            let rate = load.run(&field.alone.uri, field.size_mib).map_err(|it| it.to_string());
            is_over.store(true, Ordering::Relaxed);
            snapshots.extend(scraper.join().expect("no scrape panics")?);
            rate
        })?;
        rates[usize::from(!is_scraped)].push(rate);
    }
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let [ours, rival] = rates.map(middle);
    let name = format!("{} {}, {SCRAPES_PER_S} scrapes a second", field.name, ROWS[2].name);
    println!(r#"{{"name":"{name}","unit":"ops/s","ours":{ours:.1},"rival":{rival:.1}}}"#);
    let per_s = 0.01 / middle(snapshots);
    let name = "scrapes a second in 1 % of the engine's thread";
    println!(r#"{{"name":"{name}","unit":"scrapes/s","ours":{per_s:.1}}}"#);
    Ok(())
}

/// The time that each has taken of the thread that serves requests.
fn scrape_until(client: &Client, is_over: &AtomicBool) -> Result<Vec<f64>, String> {
    let mut taken = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let text = client.scrape().map_err(|error| format!("{error:#}"))?;
        let line =
            text.lines().find(|line| line.starts_with("headpond_snapshot_duration_seconds{"));
        let value = line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
        taken.push(value.ok_or("a scrape without its time")?);
        std::thread::sleep(Duration::from_millis(1000 / SCRAPES_PER_S));
    }
    Ok(taken)
}

/// What one round came to.
#[derive(Clone, Copy)]
struct Round {
    requests_per_s: f64,
    /// Of the server, for each MiB.
    processor_us: f64,
}

fn median(mut rounds: Vec<Round>) -> Option<Round> {
    rounds.sort_by(|a, b| a.requests_per_s.total_cmp(&b.requests_per_s));
    rounds.get(rounds.len() / 2).copied()
}

fn print(name: &str, block_bytes: usize, ours: Option<Round>, rival: Option<Round>) {
    let Some(ours) = ours else { return };
    let is_large = block_bytes >= MIB;
    let (unit, factor) = if is_large { ("MB/s", block_bytes as f64 / 1e6) } else { ("ops/s", 1.0) };
    let figure = |round: Option<Round>| {
        round.map_or("null".into(), |it| format!("{:.1}", it.requests_per_s * factor))
    };
    let line = |name: &str, unit: &str, ours: String, rival: String| {
        println!(r#"{{"name":"{name}","unit":"{unit}","ours":{ours},"rival":{rival}}}"#);
    };
    line(name, unit, figure(Some(ours)), figure(rival));
    if is_large {
        // More is better in the table.
        let per_s = |round: Round| format!("{:.1}", 1e6 / round.processor_us.max(1.0));
        let rival = rival.map_or("null".into(), per_s);
        line(&format!("{name}, processor"), "MiB/s", per_s(ours), rival);
    }
}

fn in_memory(folder: &Path) -> Outcome<Field> {
    let ours = |name: &'static str, threads| {
        let member = folder.join(format!("{name}.img"));
        fs::File::create(&member)?.set_len((SIZE_MIB + 64) << 20)?;
        let cache = ["--cache", CACHE, "--mode", "write-back", "--force"];
        Peer::volume(folder, (name, threads), &["--raid", "0"], &[&member], &cache)
    };
    let rival = match tool("nbdkit") {
        Some(program) => {
            let socket = folder.join("nbdkit.sock");
            let mut command = Command::new(program);
            command.arg("-f").arg("-U").arg(&socket);
            command.args(["memory", &format!("{SIZE_MIB}M")]);
            Some(Peer::start(command, &socket, "")?)
        }
        None => {
            eprintln!("skipped: the rival of a volume in memory: nbdkit is not installed");
            None
        }
    };
    let (alone, threaded) = (ours(ALONE, 0)?, ours("threaded", 1)?);
    Ok(Field { name: "volume", size_mib: SIZE_MIB, alone, threaded, rival })
}

fn real(folder: &Path, loops: &Loops) -> Outcome<Field> {
    let mut devices = loops.devices.chunks(Loops::OF_VOLUME);
    let mut ours = |name: &'static str, threads| {
        let devices = devices.next().expect("loop devices for each");
        let (cache, members) = devices.split_last().expect("a cache");
        let members: Vec<&Path> = members.iter().map(PathBuf::as_path).collect();
        let cache = cache.display().to_string();
        // Its file is in memory.
        let cache = ["--cache", &cache, "--force"];
        Peer::volume(folder, (name, threads), &["--raid", "5", "--zeroed"], &members, &cache)
    };
    let (alone, threaded) = (ours("real", 0)?, ours("real-threaded", 1)?);
    let rival = match tool("qemu-nbd") {
        Some(program) => {
            let (socket, bare) = (folder.join("qemu.sock"), &loops.devices[Loops::BARE]);
            let mut command = Command::new(program);
            command.args(["--persistent", "--shared=8", "--format=raw", "--cache=writeback"]);
            command.arg(format!("--socket={}", socket.display())).arg(bare);
            Some(Peer::start(command, &socket, "")?)
        }
        None => {
            eprintln!("skipped: the rival of a volume of loop devices: qemu-nbd is not installed");
            None
        }
    };
    Ok(Field { name: "RAID 5", size_mib: SIZE_MIB, alone, threaded, rival })
}

impl Peer {
    /// A volume of these members, served with so many threads for connections.
    fn volume(
        folder: &Path,
        (name, threads): (&str, usize),
        level: &[&str],
        members: &[&Path],
        cache: &[&str],
    ) -> Outcome<Self> {
        let (state, socket) = (folder.join(STATE), folder.join(format!("{name}.sock")));
        let config = folder.join(format!("{name}.toml"));
        fs::create_dir_all(&state)?;
        fs::write(&config, format!("threads = {threads}\n"))?;
        let command = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_headpond"));
            command.env("HEADPOND_STATE", &state).env("HEADPOND_CONFIG", &config);
            command
        };
        let mut create = command();
        create.args(["create", name]).args(level).args(members).args(cache);
        let output = create.arg("--export").arg(format!("unix:{}", socket.display())).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let mut serve = command();
        serve.args(["serve", name]).stdout(Stdio::null());
        Self::start(serve, &socket, name)
    }

    fn start(mut command: Command, socket: &Path, export: &str) -> Outcome<Self> {
        command.stdin(Stdio::null());
        Ok(Self { served: Served::start(command, socket)?, uri: fio::uri(socket, export) })
    }

    fn round(&self, load: &fio::Load, size_mib: u64) -> Outcome<Round> {
        let before = self.processor_ticks()?;
        let requests_per_s = load.run(&self.uri, size_mib)?;
        let ticks = self.processor_ticks()? - before;
        let mib = requests_per_s * (load.seconds * load.block_bytes as u64) as f64 / MIB as f64;
        Ok(Round { requests_per_s, processor_us: ticks as f64 * TICK_US / mib.max(1.0) })
    }

    /// User and system time so far.
    fn processor_ticks(&self) -> Outcome<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.served.id()))?;
        let after_name = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?.1;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
    }
}

/// Loop devices of files in memory, detached at the end.
struct Loops {
    devices: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Loops {
    /// Members, then the cache.
    const OF_VOLUME: usize = 5;
    const BARE: usize = 2 * Self::OF_VOLUME;

    fn new(folder: &Path) -> Outcome<Self> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory } else { folder };
        let mut loops = Self { devices: Vec::new(), files: Vec::new() };
        for at in 0..=Self::BARE {
            let file = place.join(format!("headpond-bench-{}-{at}.img", std::process::id()));
            let mib =
                if at % Self::OF_VOLUME == Self::OF_VOLUME - 1 { 1200 } else { SIZE_MIB + 64 };
            fs::File::create(&file)?.set_len(mib << 20)?;
            loops.files.push(file.clone());
            let attach = Command::new("losetup").args(["--find", "--show"]).arg(&file).output()?;
            if !attach.status.success() {
                return Err(String::from_utf8_lossy(&attach.stderr).trim().into());
            }
            loops.devices.push(String::from_utf8(attach.stdout)?.trim().into());
        }
        Ok(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.devices {
            let _ = Command::new("losetup").arg("--detach").arg(device).status();
        }
        self.files.iter().for_each(|file| drop(fs::remove_file(file)));
    }
}
