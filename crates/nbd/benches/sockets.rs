//! The server on a RAM device beside nbdkit's memory plugin, over Unix sockets, loaded by fio.
//!
//! Server and client are pinned to one processor, where a depth-1 figure does not depend on where
//! the scheduler puts the two. Ours and the rival take turns; each figure is the median. Without
//! fio nothing is measured, without nbdkit there is no rival; both are said.

use headpond_block::devices::RamDevice;
use headpond_block::{BufferPool, PoolConfig};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server};
use headpond_uring::{RunConfig, SocketListener, run};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 512;
const ROUNDS: usize = 5;
const RUN_SECONDS: &str = "--runtime=1";
/// The processor of all parties.
const PROCESSOR: &str = "0";
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Name of the row, and what fio is told.
const ROWS: [(&str, [&str; 3]); 6] = [
    ("nbd read 4k d1", ["--rw=randread", "--bs=4k", "--iodepth=1"]),
    ("nbd read 4k d32", ["--rw=randread", "--bs=4k", "--iodepth=32"]),
    ("nbd write 4k d1", ["--rw=randwrite", "--bs=4k", "--iodepth=1"]),
    ("nbd write 4k d32", ["--rw=randwrite", "--bs=4k", "--iodepth=32"]),
    ("nbd read 1m d8", ["--rw=read", "--bs=1m", "--iodepth=8"]),
    ("nbd write 1m d8", ["--rw=write", "--bs=1m", "--iodepth=8"]),
];

/// A server process, killed at the end.
struct Peer {
    process: Child,
    socket: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, socket] = arguments.as_slice()
        && command == "serve"
    {
        return serve(Path::new(socket));
    }
    if headpond_testkit::tool("fio").is_none() {
        eprintln!("skipped: nbd over a socket: fio is not installed");
        return Ok(());
    }
    let folder = headpond_testkit::tempdir();
    let ours = start_ours(&folder.path().join("ours.sock"))?;
    let rival = start_nbdkit(&folder.path().join("nbdkit.sock"))?;
    for (name, workload) in ROWS {
        let (mut our_rates, mut rival_rates) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            our_rates.push(load(&ours.socket, &workload)?);
            if let Some(rival) = &rival {
                rival_rates.push(load(&rival.socket, &workload)?);
            }
        }
        print_row(name, &mut our_rates, &mut rival_rates);
    }
    Ok(())
}

fn serve(socket: &Path) -> Result<(), Box<dyn Error>> {
    run(&RunConfig::default(), |ring, runtime| async move {
        let exports = Rc::new(Exports::new());
        exports.add(Export::new("", Rc::new(RamDevice::new("ram", SIZE_MIB << 20))))?;
        let pool = BufferPool::new(&PoolConfig::default());
        let server = Server::new(runtime, pool, exports, Limits::default());
        server.serve(Rc::new(SocketListener::bind_unix(&ring, socket)?)).await?;
        Ok(())
    })?
}

fn start_ours(socket: &Path) -> Result<Peer, Box<dyn Error>> {
    let mut command = pinned(&std::env::current_exe()?);
    command.arg("serve").arg(socket);
    Peer::start(command, socket)
}

fn start_nbdkit(socket: &Path) -> Result<Option<Peer>, Box<dyn Error>> {
    let Some(program) = headpond_testkit::tool("nbdkit") else {
        eprintln!("skipped: the rival of nbd over a socket: nbdkit is not installed");
        return Ok(None);
    };
    let mut command = pinned(&program);
    command.arg("-f").arg("-U").arg(socket).args(["memory", &format!("{SIZE_MIB}M")]);
    Peer::start(command, socket).map(Some)
}

fn pinned(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", PROCESSOR]).arg(program).stdin(Stdio::null());
    command
}

/// Requests a second, or bytes a second where they are large.
fn load(socket: &Path, workload: &[&str]) -> Result<f64, Box<dyn Error>> {
    let mut command = pinned(Path::new("fio"));
    command.args(["--name=bench", "--ioengine=nbd", "--thread", "--time_based", RUN_SECONDS]);
    command.args(["--output-format=terse", "--terse-version=3"]).args(workload);
    command.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()));
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("3;fio")).ok_or("fio gave no figures")?;
    let fields: Vec<&str> = line.split(';').collect();
    // Bandwidth in KiB/s and requests a second: of reads in fields 6 and 7, of writes 41 further.
    let sum = |field: usize| -> Result<f64, Box<dyn Error>> {
        Ok(fields[field].parse::<f64>()? + fields[field + 41].parse::<f64>()?)
    };
    let is_large = workload.contains(&"--bs=1m");
    if is_large { Ok(sum(6)? * 1024.0 / 1e6) } else { sum(7) }
}

fn print_row(name: &str, ours: &mut [f64], rival: &mut [f64]) {
    let unit = if name.contains("1m") { "MB/s" } else { "ops/s" };
    let ours = median(ours);
    let rival = if rival.is_empty() { "null".into() } else { format!("{:.1}", median(rival)) };
    println!(r#"{{"name":"{name}","unit":"{unit}","ours":{ours:.1},"rival":{rival}}}"#);
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

impl Peer {
    fn start(mut command: Command, socket: &Path) -> Result<Self, Box<dyn Error>> {
        let process = command.spawn()?;
        let peer = Self { process, socket: socket.to_owned() };
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            if begun.elapsed() > START_PATIENCE {
                return Err(format!("nobody answers on {}", socket.display()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It serves until it is killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
