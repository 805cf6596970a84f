//! Clients that nobody here wrote, against our server on a real socket, with connections that move
//! from thread to thread; and ours.

use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, BufferPool, PoolConfig, Runtime};
use headpond_nbd::client::NbdDevice;
use headpond_nbd::limits::{Limits, Moves};
use headpond_nbd::server::{Export, Exports, Server, ThreadEnd};
use headpond_testkit::{skip, tempdir, tool};
use headpond_uring::{Ring, RunConfig, SocketListener, SocketStream, run};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

const SIZE_BYTES: u64 = 64 << 20;
/// Connections move at every few hundred requests, busy or not.
const RESTLESS: Moves =
    Moves { window: 100, busy: 0.0, calm: f64::INFINITY, busy_bytes: f64::INFINITY };

/// A server on a thread of its own, stopped when dropped.
struct Serving {
    directory: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start() -> Self {
        let directory = tempdir();
        let stop = Arc::new(AtomicBool::new(false));
        let (path, asked) = (directory.path().join("nbd"), Arc::clone(&stop));
        let (told, listens) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let serve = |ring, runtime| serve_until(ring, runtime, path, (told, asked));
            let connections = run(&RunConfig::default(), serve).expect("a ring");
            connections.join().expect("it ends with the server");
        });
        // The path is there before anybody can connect.
        listens.recv().expect("it listens");
        Self { directory, stop, thread: Some(thread) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("nbd")
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.path().display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("joined once").join();
        if !std::thread::panicking() {
            ended.expect("the server came to its end");
        }
    }
}

/// Serves until it is to stop; the thread that its connections moved to.
async fn serve_until(
    ring: Ring,
    runtime: Runtime,
    path: PathBuf,
    (listens, stop): (mpsc::Sender<()>, Arc<AtomicBool>),
) -> JoinHandle<()> {
    let server = ram_server(&runtime, RESTLESS);
    let end = server.add_thread();
    let connections = std::thread::spawn(move || serve_connections(end));
    let listener = SocketListener::bind_unix(&ring, &path).expect("a socket");
    listens.send(()).expect("somebody waits for that");
    let serving = server.clone();
    let task = runtime.spawn(async move { serving.serve(Rc::new(listener)).await });
    while !stop.load(Ordering::Relaxed) {
        runtime.sleep(Duration::from_millis(10)).await;
    }
    server.stop().await.expect("RAM flushes");
    task.await.expect("the listener never failed");
    assert!(server.report().connections.is_empty());
    connections
}

fn serve_connections(end: ThreadEnd) {
    run(&RunConfig::default(), |ring, runtime| {
        end.serve(runtime, BufferPool::new(&PoolConfig::default()), Rc::new(ring))
    })
    .expect("a ring");
}

fn ram_server(runtime: &Runtime, moves: Moves) -> Server {
    let exports = Rc::new(Exports::new());
    let ram = Rc::new(RamDevice::new("ram", SIZE_BYTES));
    exports.add(Export::new("ram", ram).described("for tests")).expect("the first export");
    let pool = BufferPool::new(&PoolConfig::default());
    Server::new(runtime.clone(), pool, exports, Limits { moves, ..Limits::default() })
}

/// Runs a tool to its end and asserts that it is content.
fn succeed(tool: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(tool).args(arguments).output().expect("the tool starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool:?} {arguments:?}: {text}");
    output
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    let Some(nbdinfo) = tool("nbdinfo") else {
        skip!("nbdinfo sees what is offered", "nbdinfo is not installed");
    };
    let serving = Serving::start();
    let output = succeed(&nbdinfo, &["--json", "--list", &serving.uri()]);
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "\"export-name\": \"ram\"",
        "\"description\": \"for tests\"",
        "\"export-size\": 67108864",
        "\"can_multi_conn\": true",
        "\"can_fua\": true",
        "\"can_zero\": true",
        "\"block_size_minimum\": 512",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

/// Copies an image in and out again.
fn assert_unchanged(serving: &Serving, nbdcopy: &Path, image: &Path) {
    let copy = serving.file("copy");
    succeed(nbdcopy, &["--flush", image.to_str().unwrap(), &serving.uri()]);
    succeed(nbdcopy, &[&serving.uri(), copy.to_str().unwrap()]);
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(image).unwrap());
}

/// As many bytes as the export has, none of them like its neighbours.
fn pattern(len: u64) -> Vec<u8> {
    (0..len / 8).flat_map(|n| (n / 300 * 0x9e37_79b9).to_le_bytes()).collect()
}

#[test]
fn nbdcopy_brings_bytes_in_and_out_unchanged() {
    let Some(nbdcopy) = tool("nbdcopy") else {
        skip!("nbdcopy brings bytes in and out unchanged", "nbdcopy is not installed");
    };
    let serving = Serving::start();
    let image = serving.file("image");
    std::fs::write(&image, pattern(SIZE_BYTES)).unwrap();
    assert_unchanged(&serving, &nbdcopy, &image);
}

#[test]
fn nbdcopy_brings_a_file_system_in_and_out_unchanged() {
    let (Some(nbdcopy), Some(mkfs)) = (tool("nbdcopy"), tool("mkfs.ext4")) else {
        skip!("nbdcopy brings a file system in and out", "nbdcopy or mkfs.ext4 is not installed");
    };
    let serving = Serving::start();
    let (image, contents) = (serving.file("image"), serving.file("contents"));
    std::fs::create_dir(&contents).unwrap();
    std::fs::write(contents.join("file"), pattern(20 << 20)).unwrap();
    let (contents, target) = (contents.to_str().unwrap(), image.to_str().unwrap());
    succeed(&mkfs, &["-q", "-d", contents, target, "64M"]);
    assert_unchanged(&serving, &nbdcopy, &image);
}

#[test]
fn qemu_io_agrees_with_itself() {
    let Some(qemu_io) = tool("qemu-io") else {
        skip!("qemu-io agrees with itself", "qemu-io is not installed");
    };
    let serving = Serving::start();
    let commands = [
        "write -P 0x11 0 1M",
        "write -f -P 0x22 512 4096",
        "write -z 64k 128k",
        "write -z -u 512k 64k",
        "discard 900k 64k",
        "flush",
        "read -P 0x11 0 512",
        "read -P 0x22 512 4096",
        "read -P 0 64k 128k",
        "read -P 0x11 256k 256k",
        "aio_write -P 0x33 4M 8M",
        "aio_flush",
        "read -P 0x33 4M 8M",
    ];
    let mut arguments = vec!["-f", "raw"];
    for command in &commands {
        arguments.extend(["-c", command]);
    }
    let uri = serving.uri();
    arguments.push(&uri);
    let output = succeed(&qemu_io, &arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("failed") && !text.contains("error"), "{text}");
}

/// Runs fio with verification on; it ends with an error where a block is not what was written.
fn fio_verifies(serving: &Serving, fio: &Path, arguments: &[&str]) {
    let uri = format!("--uri={}", serving.uri());
    let mut all = vec!["--name=verify", "--ioengine=nbd", &uri];
    all.extend(["--verify=crc32c", "--verify_fatal=1", "--randseed=7"]);
    all.push("--verify_state_save=0");
    all.extend(arguments);
    succeed(fio, &all);
}

#[test]
fn fio_reads_back_what_it_wrote() {
    let Some(fio) = tool("fio") else {
        skip!("fio reads back what it wrote", "fio is not installed");
    };
    let serving = Serving::start();
    let sizes = "--bssplit=512/20:4k/40:64k/20:256k/10:1m/10";
    let random = ["--rw=randwrite", "--size=32m", sizes, "--blockalign=512", "--iodepth=64"];
    fio_verifies(&serving, &fio, &random);
    fio_verifies(&serving, &fio, &["--rw=write", "--size=32m", "--bs=1m", "--iodepth=8"]);
    fio_verifies(&serving, &fio, &["--rw=randwrite", "--size=8m", "--bs=512", "--iodepth=1"]);
    let mixed = ["--rw=randrw", "--size=16m", "--bs=4k", "--iodepth=32", "--fsync=64"];
    fio_verifies(&serving, &fio, &mixed);
}

#[test]
fn fio_reads_back_what_four_connections_wrote() {
    let Some(fio) = tool("fio") else {
        skip!("fio reads back what four connections wrote", "fio is not installed");
    };
    let serving = Serving::start();
    let arguments = [
        "--numjobs=4",
        "--size=8m",
        "--offset_increment=8m",
        "--rw=randwrite",
        "--bsrange=4k-128k",
        "--iodepth=16",
        "--thread",
    ];
    fio_verifies(&serving, &fio, &arguments);
}

#[test]
fn our_client_and_server_agree_over_tcp() {
    run(&RunConfig::default(), |ring, runtime| async move {
        let server = ram_server(&runtime, Limits::default().moves);
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = SocketListener::bind_tcp(&ring, any).unwrap();
        let address = listener.tcp_address().unwrap();
        let serving = server.clone();
        let task = runtime.spawn(async move { serving.serve(Rc::new(listener)).await });
        let stream = Rc::new(SocketStream::connect_tcp(&ring, address).await.unwrap());
        let pool = BufferPool::new(&PoolConfig::default());
        let client = NbdDevice::connect(&runtime, &pool, stream, "ram").await.unwrap();
        let client: Rc<dyn BlockDevice> = Rc::new(client);
        for size in [512, 4096, 65_536, 1 << 20, 40 << 20] {
            let buffer = Buffer::zeroed(size);
            buffer.fill(size.trailing_zeros() as u8);
            client.write(4096, &buffer).await.unwrap();
            let back = Buffer::zeroed(size);
            client.read(4096, &back).await.unwrap();
            assert!(back.to_vec() == buffer.to_vec(), "{size} bytes");
        }
        server.stop().await.unwrap();
        task.await.unwrap();
    })
    .unwrap();
}
