//! The server on a RAM device beside nbdkit's memory plugin, over Unix sockets, loaded by fio.
//!
//! Server and client are pinned to one processor, where a depth-1 figure does not depend on where
//! the scheduler puts the two. The limit is what two pinned processes reach that exchange messages
//! of the same sizes at the same depth and do nothing else: no fio, no protocol, no storage. Ours,
//! the rival and the limit take turns; each figure is the median. Both devices are written once
//! before, so that reads find data. Without fio nothing is measured, without nbdkit there is no
//! rival; both are said.

mod transport;

use headpond_block::devices::RamDevice;
use headpond_block::{BufferPool, PoolConfig};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server};
use headpond_testkit::{Served, fio};
use headpond_uring::{RunConfig, SocketListener, run};
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use transport::Exchange;

const SIZE_MIB: u64 = 512;
const ROUNDS: usize = 5;
const ROUND_SECONDS: u64 = 1;
/// The processor of all parties.
const PROCESSOR: &str = "0";

/// On the wire, in bytes.
const REQUEST_HEADER_BYTES: usize = 28;
const REPLY_HEADER_BYTES: usize = 16;

const ROWS: [Row; 6] = [
    row("nbd read 4k d1", "randread", 4 << 10, 1),
    row("nbd read 4k d32", "randread", 4 << 10, 32),
    row("nbd write 4k d1", "randwrite", 4 << 10, 1),
    row("nbd write 4k d32", "randwrite", 4 << 10, 32),
    row("nbd read 1m d8", "read", 1 << 20, 8),
    row("nbd write 1m d8", "write", 1 << 20, 8),
];

struct Row {
    name: &'static str,
    /// As fio calls it.
    rw: &'static str,
    block_bytes: usize,
    depth: usize,
}

const fn row(name: &'static str, rw: &'static str, block_bytes: usize, depth: usize) -> Row {
    Row { name, rw, block_bytes, depth }
}

/// Requests a second, one for each round.
#[derive(Default)]
struct Rates {
    ours: Vec<f64>,
    limit: Vec<f64>,
    rival: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[1..] {
        ["serve", socket] => serve(Path::new(socket)),
        ["answer", socket] => Ok(transport::answer(Path::new(socket))?),
        ["ask", socket, request_bytes, reply_bytes, depth] => {
            let [request_bytes, reply_bytes] = [request_bytes.parse()?, reply_bytes.parse()?];
            let exchange = Exchange { request_bytes, reply_bytes, depth: depth.parse()? };
            let time = Duration::from_secs(ROUND_SECONDS);
            println!("{}", transport::ask(Path::new(socket), exchange, time)?);
            Ok(())
        }
        _ => measure(),
    }
}

fn measure() -> Result<(), Box<dyn Error>> {
    if headpond_testkit::tool("fio").is_none() {
        eprintln!("skipped: nbd over a socket: fio is not installed");
        return Ok(());
    }
    let folder = headpond_testkit::tempdir();
    let ours = start_own("serve", &folder.path().join("ours.sock"))?;
    let limit = start_own("answer", &folder.path().join("limit.sock"))?;
    let rival = start_nbdkit(&folder.path().join("nbdkit.sock"))?;
    for peer in [Some(&ours), rival.as_ref()].into_iter().flatten() {
        let all = fio::Load { rw: "write", block_bytes: 1 << 20, depth: 8, jobs: 1, seconds: 0 };
        all.run(&fio::uri(&peer.socket, ""), SIZE_MIB)?;
    }
    for row in ROWS {
        let mut rates = Rates::default();
        for _ in 0..ROUNDS {
            rates.ours.push(row.load(&ours.socket)?);
            rates.limit.push(row.exchange(&limit.socket)?);
            if let Some(rival) = &rival {
                rates.rival.push(row.load(&rival.socket)?);
            }
        }
        row.print(rates);
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

/// Runs this program again, in another part.
fn start_own(part: &str, socket: &Path) -> Result<Served, Box<dyn Error>> {
    let mut command = pinned(&std::env::current_exe()?);
    command.arg(part).arg(socket);
    Ok(Served::start(command, socket)?)
}

fn start_nbdkit(socket: &Path) -> Result<Option<Served>, Box<dyn Error>> {
    let Some(program) = headpond_testkit::tool("nbdkit") else {
        eprintln!("skipped: the rival of nbd over a socket: nbdkit is not installed");
        return Ok(None);
    };
    let mut command = pinned(&program);
    command.arg("-f").arg("-U").arg(socket).args(["memory", &format!("{SIZE_MIB}M")]);
    Ok(Some(Served::start(command, socket)?))
}

fn pinned(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", PROCESSOR]).arg(program).stdin(Stdio::null());
    command
}

impl Row {
    /// Requests a second that fio gets answered.
    fn load(&self, socket: &Path) -> Result<f64, Box<dyn Error>> {
        let Row { rw, block_bytes, depth, .. } = *self;
        let load = fio::Load { rw, block_bytes, depth, jobs: 1, seconds: ROUND_SECONDS };
        load.run_by(pinned(Path::new("fio")), &fio::uri(socket, ""), SIZE_MIB)
    }

    /// Exchanges a second of messages as long as this row's.
    fn exchange(&self, socket: &Path) -> Result<f64, Box<dyn Error>> {
        let (mut request_bytes, mut reply_bytes) = (REQUEST_HEADER_BYTES, REPLY_HEADER_BYTES);
        if self.rw.ends_with("read") {
            reply_bytes += self.block_bytes;
        } else {
            request_bytes += self.block_bytes;
        }
        let mut command = pinned(&std::env::current_exe()?);
        command.arg("ask").arg(socket);
        command.args([request_bytes, reply_bytes, self.depth].map(|number| number.to_string()));
        let output = command.stderr(Stdio::inherit()).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }

    fn print(&self, rates: Rates) {
        let is_large = self.block_bytes >= 1 << 20;
        let (unit, factor) =
            if is_large { ("MB/s", self.block_bytes as f64 / 1e6) } else { ("ops/s", 1.0) };
        let figure = |rates| median(rates).map(|rate| format!("{:.1}", rate * factor));
        let ours = figure(rates.ours).expect("measured");
        let [limit, rival] =
            [rates.limit, rates.rival].map(|rates| figure(rates).unwrap_or("null".into()));
        println!(
            r#"{{"name":"{}","unit":"{unit}","ours":{ours},"limit":{limit},"rival":{rival}}}"#,
            self.name
        );
    }
}

fn median(mut rates: Vec<f64>) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}
