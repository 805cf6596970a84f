//! Devices of a kernel that is a twin: what it is told over netlink, and requests on the sockets
//! that it is given.

use super::*;
use headpond_api::outcome::Exit;
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, BufferPool, PoolConfig};
use headpond_nbd::codec::reply::SIMPLE_BYTES;
use headpond_nbd::codec::request::RequestHeader;
use headpond_nbd::codec::wire::{Command, CommandFlags};
use headpond_nbd::kernel::twin::Twin;
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports};
use headpond_testkit::skip;
use headpond_uring::{RunConfig, run};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;

/// The twin, with its own ends of the sockets that it was given.
#[derive(Clone, Default)]
struct TwinKernel(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    twin: Twin,
    sockets: BTreeMap<u32, UnixStream>,
}

impl TwinKernel {
    fn opener(&self) -> OpenKernel {
        let kernel = self.clone();
        Arc::new(move || {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
            let pair = socketpair(AddressFamily::UNIX, kind, flags, None);
            let (ours, theirs) = pair.map_err(KernelError::Netlink)?;
            let kernel = kernel.clone();
            drop(std::thread::spawn(move || kernel.serve(&theirs)));
            Kernel::over(ours)
        })
    }

    fn serve(&self, socket: &OwnedFd) {
        let mut bytes = vec![0; 4096];
        loop {
            let (count, _) = recv(socket, &mut bytes, RecvFlags::empty()).unwrap();
            if count == 0 {
                return;
            }
            let answer = self.answer(&bytes[..count]);
            // Whoever has asked may be gone.
            let _ = send(socket, &answer, SendFlags::NOSIGNAL);
        }
    }

    /// Before the answer: then the other side closes its copies.
    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let mut held = self.0.lock().unwrap();
        let had = held.twin.devices.clone();
        let answer = held.twin.answer(request);
        let devices = held.twin.devices.clone();
        for (index, device) in &devices {
            let is_new = had.get(index).is_none_or(|it| it.sockets != device.sockets);
            if let Some(number) = device.socket.filter(|_| is_new) {
                held.sockets.insert(*index, taken(number).into());
            }
        }
        held.sockets.retain(|index, _| devices.contains_key(index));
        answer
    }

    fn sockets_of(&self, index: u32) -> u32 {
        self.0.lock().unwrap().twin.devices.get(&index).map_or(0, |device| device.sockets)
    }

    fn has(&self, index: u32) -> bool {
        self.0.lock().unwrap().twin.devices.contains_key(&index)
    }

    /// As when it notices that a socket has ended.
    fn lose(&self, index: u32) {
        let mut held = self.0.lock().unwrap();
        held.sockets.remove(&index);
        held.twin.devices.get_mut(&index).unwrap().socket = None;
    }

    /// Sends a request to the server and waits for its answer, aside.
    async fn flushes(&self, index: u32) -> bool {
        let socket = self.0.lock().unwrap().sockets.get(&index).map(|it| it.try_clone().unwrap());
        let Some(mut socket) = socket else { return false };
        let ask = move || {
            let (flags, command) = (CommandFlags::empty(), Command::Flush.to_wire());
            let flush = RequestHeader { flags, command, cookie: 7, offset: 0, length_bytes: 0 };
            socket.write_all(&flush.encode())?;
            let mut reply = [0; SIMPLE_BYTES];
            Ok(socket.read_exact(&mut reply).is_ok_and(|()| reply[4..8] == [0; 4]))
        };
        run_blocking(ask).await.unwrap_or(false)
    }
}

/// Another descriptor of this process for the same socket.
fn taken(number: u32) -> OwnedFd {
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    pidfd_getfd(&this, number.cast_signed(), PidfdGetfdFlags::empty()).unwrap()
}

/// Whether the twin can be given sockets here.
fn can_take() -> bool {
    let (socket, _other) = UnixStream::pair().unwrap();
    let Ok(this) = pidfd_open(getpid(), PidfdFlags::empty()) else { return false };
    let number = std::os::fd::AsRawFd::as_raw_fd(&socket);
    pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).is_ok()
}

/// One daemon after the other, over one run folder.
struct Machine {
    ring: Ring,
    runtime: Runtime,
    kernel: TwinKernel,
    folder: TempDir,
}

impl Machine {
    fn places(&self) -> Places {
        Places::at(self.folder.path())
    }

    fn kept(&self) -> Kept {
        Kept::load(&self.places(), "hv0")
    }

    async fn daemon(&self, lost: Option<&str>) -> Rc<Attachments> {
        let device: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("ram", SIZE));
        let exports = Rc::new(Exports::new());
        for name in ["hv0", "hv0/logs"] {
            exports.add(Export::new(name, Rc::clone(&device))).unwrap();
        }
        let pool = BufferPool::new(&PoolConfig::default());
        let server = Server::new(self.runtime.clone(), pool, exports, Limits::default());
        let means = Means {
            server,
            ring: self.ring.clone(),
            runtime: self.runtime.clone(),
            files: Files::new(self.places()).unwrap(),
            events: Events::unheard(),
            open: self.kernel.opener(),
        };
        let daemon = Attachments::take_over(&self.places(), "hv0", means, lost).await;
        daemon.go_on();
        daemon
    }

    /// The end of a daemon: the kernel notices it, and this one does nothing any more.
    async fn kill(&self, daemon: &Attachments) {
        daemon.kept.borrow_mut().devices.clear();
        let indices: Vec<u32> = self.kept().devices.iter().map(|it| it.index).collect();
        daemon.means.server.stop().await.unwrap();
        indices.into_iter().for_each(|index| self.kernel.lose(index));
    }

    async fn wait_until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            self.runtime.sleep(PAUSE / 10).await;
        }
    }
}

fn on_machine<F: Future<Output = ()>>(name: &str, tell: impl FnOnce(Machine) -> F) {
    if !can_take() {
        skip!(name, "descriptors of this process cannot be taken (pidfd_getfd)");
    }
    let folder = tempfile::tempdir().unwrap();
    run(&RunConfig::default(), |ring, runtime| {
        tell(Machine { ring, runtime, kernel: TwinKernel::default(), folder })
    })
    .unwrap();
}

#[test]
fn an_export_becomes_a_device_once_and_is_one_until_it_is_detached() {
    on_machine("an export becomes a device", |machine| async move {
        let daemon = machine.daemon(None).await;
        let attach = |export: &str, index| daemon.attach(export.into(), index, 600);
        assert_eq!(attach("hv0", None).await.unwrap(), "/dev/nbd0");
        assert_eq!(attach("hv0/logs", Some(5)).await.unwrap(), "/dev/nbd5");
        assert_eq!(attach("hv0", Some(0)).await.unwrap(), "/dev/nbd0", "as it is");
        for (export, index) in [("hv0", 1), ("hv0", 5), ("hv0/logs", 0)] {
            let error = attach(export, Some(index)).await.unwrap_err().to_string();
            assert!(error.contains("already: `headpond detach /dev/nbd"), "{error}");
        }
        assert_eq!(daemon.paths(), ["/dev/nbd0", "/dev/nbd5"]);
        assert!(machine.kernel.flushes(0).await && machine.kernel.flushes(5).await);
        let device = machine.kernel.0.lock().unwrap().twin.devices[&5].clone();
        assert_eq!((device.size_bytes, device.dead_conn_timeout_s), (SIZE, 600));
        assert_eq!(device.backend, "headpond:hv0/logs");
        daemon.detach(0).await.unwrap();
        assert!(!machine.kernel.has(0) && machine.kernel.flushes(5).await);
        let kept: Vec<u32> = machine.kept().devices.iter().map(|it| it.index).collect();
        assert_eq!((kept, daemon.paths()), (vec![5], vec!["/dev/nbd5".to_owned()]));
        assert!(daemon.detach(0).await.is_err());
        assert_eq!(attach("hv0", None).await.unwrap(), "/dev/nbd0");
        // The end of the connection before is no reason for another one now.
        machine.runtime.sleep(PAUSE * 3).await;
        assert_eq!(machine.kernel.0.lock().unwrap().twin.reconfigured, 0);
    });
}

#[test]
fn a_connection_that_ends_is_followed_by_another_one() {
    on_machine("a connection is followed by another one", |machine| async move {
        let daemon = machine.daemon(None).await;
        daemon.attach("hv0".into(), None, 600).await.unwrap();
        machine.kernel.lose(0);
        machine.wait_until(|| machine.kernel.sockets_of(0) == 2).await;
        assert!(machine.kernel.flushes(0).await);
    });
}

#[test]
fn a_device_that_others_have_ended_is_forgotten() {
    on_machine("a device that others have ended", |machine| async move {
        let daemon = machine.daemon(None).await;
        daemon.attach("hv0".into(), None, 600).await.unwrap();
        machine.kernel.lose(0);
        machine.kernel.0.lock().unwrap().twin.devices.clear();
        machine.wait_until(|| daemon.paths().is_empty() && machine.kept().devices.is_empty()).await;
        assert!(!machine.kernel.has(0));
    });
}

#[test]
fn the_next_daemon_goes_on_with_the_same_device() {
    on_machine("the next daemon goes on", |machine| async move {
        let first = machine.daemon(None).await;
        first.attach("hv0".into(), Some(3), 60).await.unwrap();
        machine.kill(&first).await;
        assert!(!machine.kernel.flushes(3).await);
        let second = machine.daemon(None).await;
        machine.wait_until(|| machine.kernel.sockets_of(3) == 2).await;
        assert!(machine.kernel.flushes(3).await);
        assert_eq!(second.paths(), ["/dev/nbd3"]);
        assert_eq!(machine.kernel.0.lock().unwrap().twin.devices[&3].dead_conn_timeout_s, 60);
    });
}

#[test]
fn where_acknowledged_writes_were_lost_a_device_is_ended() {
    on_machine("where acknowledged writes were lost", |machine| async move {
        let first = machine.daemon(None).await;
        first.attach("hv0".into(), None, 600).await.unwrap();
        machine.kill(&first).await;
        let second = machine.daemon(Some("lost")).await;
        assert!(!machine.kernel.has(0) && second.paths().is_empty());
        assert_eq!(machine.kept().devices, []);
        assert_eq!(second.attach("hv0".into(), None, 600).await.unwrap(), "/dev/nbd0");
    });
}

#[test]
fn without_the_module_the_error_says_what_to_do() {
    on_machine("without the module", |machine| async move {
        machine.kernel.0.lock().unwrap().twin.is_missing = true;
        let daemon = machine.daemon(None).await;
        for index in [None, Some(0)] {
            let error = daemon.attach("hv0".into(), index, 600).await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("modprobe nbd") && text.contains("NBD export"), "{text}");
            assert_eq!(Failure::exit_of(&error), Exit::Refused);
        }
        assert!(daemon.paths().is_empty() && machine.kept().devices.is_empty());
    });
}
