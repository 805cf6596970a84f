use super::*;
use crate::ring::{Direction, Handle};
use crate::{Ring, RunConfig, run};
use headpond_block::{Buffer, Buffers, ByteRange, PoolConfig, Runtime};
use std::io::Write;
use std::rc::Rc;
use std::sync::Weak;
use std::time::Instant;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn with_ring<F: Future<Output = ()>>(story: impl Fn(Ring, Runtime) -> F) {
    let config = RunConfig { pool: PoolConfig::none(), ..RunConfig::default() };
    run(&config, story).unwrap();
}

/// A file whose byte `n` is `n / 512`.
fn file() -> OwnedFd {
    let mut file = tempfile::tempfile().unwrap();
    (0..=255_u8).for_each(|block| file.write_all(&[block; 512]).unwrap());
    file.into()
}

/// What never ends until something is written there: a pipe with a ring of its own, and its end.
fn pipe(ring: &Ring) -> (Rc<Handle>, std::fs::File) {
    let (reader, writer) = std::io::pipe().unwrap();
    (ring.register_separate(reader.into()).unwrap(), OwnedFd::from(writer).into())
}

fn read(ring: &Ring, handle: &Rc<Handle>, offset: u64, buffer: &Buffer) -> crate::ring::Completion {
    ring.transfer(handle, Direction::Read, offset, Buffers::from(buffer.clone()))
}

/// Known to be gone with the thread only.
fn thread_of(handle: &Handle) -> Weak<Shared> {
    Arc::downgrade(&handle.separate_ring().unwrap().shared)
}

fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn more_operations_than_the_queue_holds_are_all_answered() {
    with_ring(|ring, _| async move {
        let handle = ring.register_separate(file()).unwrap();
        let buffers: Vec<_> = (0..2000).map(|_| Buffer::zeroed(512)).collect();
        let read = |(index, buffer)| read(&ring, &handle, index % 256 * 512, buffer);
        let pending: Vec<_> = (0_u64..).zip(&buffers).map(read).collect();
        for (index, one) in pending.into_iter().enumerate() {
            assert_eq!(one.await.count(), Ok(512));
            assert_eq!(buffers[index].to_vec(), [index as u8; 512]);
        }
    });
}

#[test]
fn what_is_asked_one_after_the_other_wakes_the_parked_ring_each_time() {
    with_ring(|ring, _| async move {
        let handle = ring.register_separate(file()).unwrap();
        let buffer = Buffer::zeroed(1024);
        for round in 0..200 {
            assert_eq!(read(&ring, &handle, round * 512, &buffer).await.count(), Ok(1024));
            assert_eq!(buffer.to_vec()[..512], [round as u8; 512]);
        }
    });
}

#[test]
fn parts_short_reads_errors_and_promises_are_answered_as_by_the_threads_ring() {
    with_ring(|ring, _| async move {
        let handle = ring.register_separate(file()).unwrap();
        let parts: Buffers = [Buffer::zeroed(512), Buffer::zeroed(1024)].into_iter().collect();
        let moved = ring.transfer(&handle, Direction::Read, 255 * 512, parts.clone()).await;
        assert_eq!(moved.count(), Ok(512), "there is no more");
        assert_eq!(parts.to_vec()[..512], [255; 512]);
        let flags = libc::RWF_DSYNC;
        let write = ring.transfer(&handle, Direction::Write { flags }, 512, parts);
        assert_eq!(write.await.count(), Ok(1536));
        assert_eq!(ring.sync_data(&handle).await.count(), Ok(0));
        let buffer = Buffer::zeroed(512);
        assert_eq!(read(&ring, &handle, 512, &buffer).await.count(), Ok(512));
        assert_eq!(buffer.to_vec(), [255; 512]);
        let beyond = ring.allocate(&handle, -1, ByteRange::at(0, 512)).await.count();
        assert!(beyond.is_err(), "{beyond:?}");
        let (pipe, _end) = pipe(&ring);
        assert_eq!(ring.sync_data(&pipe).await.count(), Err(libc::EINVAL));
    });
}

#[test]
fn what_has_no_answer_keeps_no_other_file_waiting() {
    with_ring(|ring, _| async move {
        let (hung, _end) = pipe(&ring);
        let buffer = Buffer::zeroed(8);
        let pending: Vec<_> = (0..1000).map(|_| read(&ring, &hung, 0, &buffer)).collect();
        for handle in [ring.register(file()), ring.register_separate(file()).unwrap()] {
            assert_eq!(read(&ring, &handle, 512, &buffer).await.count(), Ok(8));
            assert_eq!(buffer.to_vec(), [1; 8]);
        }
        drop(pending);
    });
}

#[test]
fn memory_of_a_dropped_operation_is_kept_until_the_kernel_answers() {
    with_ring(|ring, runtime| async move {
        let (handle, mut end) = pipe(&ring);
        let buffer = Buffer::zeroed(8);
        drop(read(&ring, &handle, 0, &buffer));
        runtime.yield_now().await;
        assert_eq!(ring.core.operations.in_flight().len(), 1);
        end.write_all(b"too late").unwrap();
        while !ring.core.operations.in_flight().is_empty() {
            runtime.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(buffer.to_vec(), b"too late");
    });
}

#[test]
fn file_is_closed_and_the_thread_ends_after_the_last_operation() {
    with_ring(|ring, _| async move {
        let (handle, mut end) = pipe(&ring);
        let (buffer, thread) = (Buffer::zeroed(8), thread_of(&handle));
        let pending = read(&ring, &handle, 0, &buffer);
        drop(handle);
        assert!(thread.strong_count() > 0);
        end.write_all(b"answered").unwrap();
        assert_eq!(pending.await.count(), Ok(8));
        soon("the thread goes on", || thread.strong_count() == 0);
        soon("the file is open", || end.write_all(b"x").is_err());
    });
}

#[test]
fn ring_with_operations_that_never_end_cancels_them_and_closes_the_file() {
    let left = std::cell::RefCell::new(None);
    with_ring(|ring, runtime| {
        let left = &left;
        async move {
            let (handle, end) = pipe(&ring);
            *left.borrow_mut() = Some((end, thread_of(&handle)));
            for _ in 0..200 {
                drop(read(&ring, &handle, 0, &Buffer::zeroed(8)));
            }
            runtime.yield_now().await;
        }
    });
    let (mut end, thread) = left.take().unwrap();
    soon("the thread goes on", || thread.strong_count() == 0);
    assert!(end.write_all(b"x").is_err(), "nothing reads it any more");
}

#[test]
fn what_is_left_behind_closes_its_file_when_it_is_answered_after_all() {
    let left = std::cell::RefCell::new(None);
    with_ring(|ring, runtime| {
        let left = &left;
        async move {
            let (handle, end) = pipe(&ring);
            *left.borrow_mut() = Some(end);
            let buffer = Buffer::zeroed(4);
            (0..2).for_each(|_| drop(read(&ring, &handle, 0, &buffer)));
            runtime.yield_now().await;
            // As where the kernel has not answered when the ring is closed.
            ring.core.operations.leak();
            // The memory of what is left behind belongs to it, and so does this handle.
            std::mem::forget(handle);
        }
    });
    let mut end = left.take().unwrap();
    end.write_all(b"late").unwrap();
    end.write_all(b"late").unwrap();
    soon("the file is open", || end.write_all(b"x").is_err());
}

#[test]
fn descriptor_on_its_way_is_known_until_it_is_closed() {
    with_ring(|ring, runtime| async move {
        let (handle, mut end) = pipe(&ring);
        let number = std::os::fd::AsFd::as_fd(&*handle).as_raw_fd();
        let thread = thread_of(&handle);
        assert!(!closing_descriptors().contains(&number));
        let pending = read(&ring, &handle, 0, &Buffer::zeroed(1));
        drop(handle);
        runtime.yield_now().await;
        end.write_all(b"x").unwrap();
        assert_eq!(pending.await.count(), Ok(1));
        soon("the thread goes on", || thread.strong_count() == 0);
        // Its number may be another file's by now, but that one is in use.
        soon("it is on its way for ever", || !closing_descriptors().contains(&number));
    });
}
