use super::*;
use crate::{RunConfig, run};
use headpond_block::{Late, Listener, Runtime};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Sends back what arrives until the other end closes.
async fn echo(stream: Rc<dyn Stream>) -> io::Result<()> {
    let buffer = Buffer::zeroed(64 << 10);
    loop {
        match stream.read(buffer.clone()).await? {
            0 => return Ok(()),
            count => stream.write_all(buffer.slice(0..count).into()).await?,
        }
    }
}

async fn read_exact(stream: &dyn Stream, buffer: &Buffer) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match stream.read(buffer.slice(done..buffer.len())).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// Ten thousand messages, one at a time, each answered before the next.
async fn ping(stream: &dyn Stream, messages: u32) {
    let (out, back) = (Buffer::zeroed(28), Buffer::zeroed(28));
    for number in 0..messages {
        out.copy_from(&number.to_be_bytes());
        stream.write_all((&out).into()).await.unwrap();
        read_exact(stream, &back).await.unwrap();
        assert_eq!(back.to_vec(), out.to_vec());
    }
}

fn serve(runtime: &Runtime, listener: SocketListener) {
    let inner = runtime.clone();
    drop(runtime.spawn(async move {
        while let Ok(stream) = listener.accept().await {
            drop(inner.spawn(echo(stream)));
        }
    }));
}

#[test]
fn ten_thousand_messages_come_back_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    run(&RunConfig::default(), |ring, runtime| async move {
        let path = dir.path().join("echo");
        let listener = SocketListener::bind_unix(&ring, &path).unwrap();
        assert_eq!(listener.address(), format!("unix:{}", path.display()));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        serve(&runtime, listener);
        let stream = SocketStream::connect_unix(&ring, &path).await.unwrap();
        ping(&stream, 10_000).await;
    })
    .unwrap();
}

#[test]
fn messages_come_back_over_tcp() {
    run(&RunConfig::default(), |ring, runtime| async move {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = SocketListener::bind_tcp(&ring, any).unwrap();
        let address = listener.tcp_address().unwrap();
        serve(&runtime, listener);
        let stream = SocketStream::connect_tcp(&ring, address).await.unwrap();
        assert_eq!(stream.peer(), format!("tcp:{address}"));
        ping(&stream, 1000).await;
    })
    .unwrap();
}

#[test]
fn write_of_thousands_of_parts_arrives_whole_and_in_order() {
    run(&RunConfig::default(), |ring, runtime| async move {
        let (near, far) = pair(&ring);
        let part = |index: usize| Buffer::from_slice(&[index as u8; 1500]);
        let parts: Buffers = (0..3000).map(part).collect();
        assert_eq!(parts.count(), 3000);
        let expected = parts.to_vec();
        let writing = runtime.spawn(async move { near.write_all(parts).await });
        let received = Buffer::zeroed(expected.len());
        read_exact(&far, &received).await.unwrap();
        writing.await.unwrap();
        assert_eq!(received.to_vec(), expected);
    })
    .unwrap();
}

fn pair(ring: &Ring) -> (SocketStream, SocketStream) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let (near, far) = socketpair(family, SocketType::STREAM, flags, None).unwrap();
    let stream = |socket| SocketStream::from_connected(ring, socket, "pair");
    (stream(near), stream(far))
}

#[test]
fn deadline_passes_a_peer_that_never_answers_and_the_loser_keeps_its_memory() {
    run(&RunConfig::default(), |ring, runtime| async move {
        let (near, far) = pair(&ring);
        let near = Rc::new(near);
        let buffer = Buffer::zeroed(16);
        let (reader, memory) = (Rc::clone(&near), buffer.clone());
        let at = runtime.now() + Duration::from_millis(10);
        let late = runtime.deadline(at, async move { reader.read(memory).await }).await;
        assert!(matches!(late, Err(Late)));
        far.write_all(Buffer::from_slice(b"late").into()).await.unwrap();
        while buffer.to_vec()[..4] != *b"late" {
            runtime.yield_now().await;
        }
        let at = runtime.now() + Duration::from_secs(5);
        far.write_all(Buffer::from_slice(b"soon").into()).await.unwrap();
        let (reader, memory) = (Rc::clone(&near), buffer.clone());
        let soon = runtime.deadline(at, async move { reader.read(memory).await }).await;
        assert_eq!(soon.unwrap().unwrap(), 4);
    })
    .unwrap();
}

#[test]
fn shutdown_ends_a_read_in_progress() {
    run(&RunConfig::default(), |ring, runtime| async move {
        let (near, _far) = pair(&ring);
        let near = Rc::new(near);
        let reader = Rc::clone(&near);
        let reading = runtime.spawn(async move { reader.read(Buffer::zeroed(8)).await });
        runtime.yield_now().await;
        near.shutdown();
        assert_eq!(reading.await.unwrap(), 0);
        let broken = near.write_all(Buffer::zeroed(8).into()).await.unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    })
    .unwrap();
}

fn policy() -> i32 {
    // SAFETY: asks about the calling thread.
    unsafe { libc::sched_getscheduler(0) }
}

#[test]
fn thread_waits_for_a_peer_that_sends_on_while_answers_lie_unread_and_only_for_such() {
    if policy() != libc::SCHED_OTHER {
        headpond_testkit::skip!("patience with a peer", "the tests run under another policy");
    }
    run(&RunConfig::default(), |ring, _| async move {
        let (near, far) = pair(&ring);
        let (request, answer) = (Buffer::zeroed(28), Buffer::zeroed(16));
        let ask = async || {
            far.write_all((&request).into()).await.unwrap();
            read_exact(&near, &request).await.unwrap();
            near.write_all((&answer).into()).await.unwrap();
        };
        for _ in 0..100 {
            ask().await;
            read_exact(&far, &answer).await.unwrap();
        }
        assert_eq!(policy(), libc::SCHED_OTHER, "each answer was read before the next request");
        for _ in 0..20 {
            ask().await;
        }
        assert_eq!(policy(), libc::SCHED_BATCH, "twenty answers lie unread");
    })
    .unwrap();
    assert_eq!(policy(), libc::SCHED_OTHER, "the ring is gone");
}

fn bind(path: &Path) -> io::Result<String> {
    run(&RunConfig::default(), |ring, _| async move {
        SocketListener::bind_unix(&ring, path).map(|listener| listener.address())
    })
    .unwrap()
}

#[test]
fn socket_file_that_nobody_serves_is_replaced_and_removed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    bind(&path).unwrap();
    assert!(!path.exists());
}

#[test]
fn socket_that_somebody_serves_and_other_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _living = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    let file = dir.path().join("f");
    std::fs::write(&file, "precious").unwrap();
    assert_eq!(bind(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn connection_to_nobody_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    run(&RunConfig::default(), |ring, _| async move {
        let error = SocketStream::connect_unix(&ring, &dir.path().join("none")).await;
        assert_eq!(error.err().map(|e| e.kind()), Some(io::ErrorKind::NotFound));
    })
    .unwrap();
}

#[test]
fn peer_that_only_ceases_to_send_has_not_hung_up_and_one_that_closes_has() {
    run(&RunConfig::default(), |ring, _| async move {
        let (near, far) = pair(&ring);
        assert!(!near.is_hung_up());
        far.write_all(Buffer::from_slice(b"last").into()).await.unwrap();
        rustix::net::shutdown(&*far.handle, rustix::net::Shutdown::Write).unwrap();
        assert!(!near.is_hung_up(), "it still reads");
        drop(far);
        assert!(near.is_hung_up(), "though what it has sent lies unread");
        let received = Buffer::zeroed(4);
        read_exact(&near, &received).await.unwrap();
        assert_eq!(received.to_vec(), b"last");
    })
    .unwrap();
}

#[test]
fn tcp_client_that_has_closed_has_hung_up_once_something_was_sent_to_it() {
    run(&RunConfig::default(), |ring, runtime| async move {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = SocketListener::bind_tcp(&ring, any).unwrap();
        let address = listener.tcp_address().unwrap();
        drop(SocketStream::connect_tcp(&ring, address).await.unwrap());
        let stream = listener.accept().await.unwrap();
        assert_eq!(stream.read(Buffer::zeroed(8)).await.unwrap(), 0);
        assert!(!stream.is_hung_up(), "the end of its data is no more than that");
        // The answer to what nobody reads is a reset, which may take a moment.
        let _ = stream.write_all(Buffer::zeroed(8).into()).await;
        while !stream.is_hung_up() {
            runtime.yield_now().await;
        }
    })
    .unwrap();
}
