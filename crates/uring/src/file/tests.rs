use super::*;
use crate::safety::LoopDevice;
use crate::{RunConfig, run};
use headpond_block::{Buffer, Buffers, Cause, RequestFlags, Runtime, Stability};
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;

const SIZE: u64 = 4 << 20;

/// A directory on disk, and one in memory where the machine has such.
fn dirs(test: &str) -> Vec<tempfile::TempDir> {
    let mut dirs = vec![tempfile::tempdir().unwrap()];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => dirs.push(dir),
        Err(error) => eprintln!("skipped: {test} on tmpfs: {error}"),
    }
    dirs
}

fn new_file(dir: &tempfile::TempDir) -> FileOptions {
    FileOptions::new(dir.path().join("device")).create(SIZE, Allocation::Sparse)
}

/// As if another host served the file.
fn open_served(ring: &Ring, options: &FileOptions) -> FileDevice {
    let opened = Opened { is_served: true, ..open::open(options).unwrap() };
    FileDevice::new(ring, OpenFile::of(options, opened).unwrap()).unwrap()
}

/// Runs a story with a device made in each kind of directory, direct and through the page cache,
/// on the thread's ring and on one of its own.
fn with_devices<F: Future<Output = ()>>(
    test: &str,
    story: impl Fn(Rc<dyn BlockDevice>, Ring, Runtime) -> F,
) {
    for dir in dirs(test) {
        let cachings = [Caching::DirectWherePossible, Caching::Buffered];
        for (caching, is_served) in cachings.into_iter().flat_map(|it| [(it, false), (it, true)]) {
            run(&RunConfig::default(), |ring, runtime| {
                let options = new_file(&dir).caching(caching);
                let device = match is_served {
                    true => open_served(&ring, &options),
                    false => FileDevice::open(&ring, &options).unwrap(),
                };
                story(Rc::new(device), ring, runtime)
            })
            .unwrap();
            fs::remove_file(dir.path().join("device")).unwrap();
        }
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(byte).take(len).collect()
}

#[test]
fn data_written_at_depth_64_is_read_back() {
    with_devices("data_written_at_depth_64", |device, ring, runtime| async move {
        for round in 0..4 {
            let tasks: Vec<_> = (0..64_u64)
                .map(|lane| {
                    let (device, pool) = (Rc::clone(&device), ring.pool().clone());
                    runtime.spawn(async move {
                        let bytes = pattern(16 << 10, lane * 100 + round);
                        let offset = lane * (64 << 10) + round * 4096;
                        let buffer = pool.take(bytes.len());
                        buffer.copy_from(&bytes);
                        device.write(offset, &buffer).await.unwrap();
                        buffer.fill(0);
                        device.read(offset, &buffer).await.unwrap();
                        assert!(buffer.to_vec() == bytes, "lane {lane} round {round}");
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
        }
        device.flush().await.unwrap();
    });
}

#[test]
fn memory_of_any_alignment_is_served() {
    with_devices("memory_of_any_alignment_is_served", |device, _, _| async move {
        let bytes = pattern(8192, 3);
        let odd = Buffer::zeroed(8192 + 7).slice(7..8199);
        odd.copy_from(&bytes);
        device.write(4096, &odd).await.unwrap();
        let parts: Buffers =
            [Buffer::zeroed(100), Buffer::zeroed(5000), Buffer::zeroed(3092)].into_iter().collect();
        device.read(4096, parts.clone()).await.unwrap();
        assert_eq!(parts.to_vec(), bytes);
        odd.fill(0);
        device.read(4096, &odd).await.unwrap();
        assert_eq!(odd.to_vec(), bytes);
    });
}

#[test]
fn transfer_larger_than_the_bounce_memory_is_whole() {
    with_devices("transfer_larger_than_the_bounce_memory", |device, _, _| async move {
        let bytes = pattern(3 << 20, 5);
        let odd = Buffer::zeroed(bytes.len() + 1).slice(1..bytes.len() + 1);
        odd.copy_from(&bytes);
        device.write(0, &odd).await.unwrap();
        let back = Buffer::zeroed(bytes.len());
        device.read(0, &back).await.unwrap();
        assert!(back.to_vec() == bytes);
    });
}

#[test]
fn thousands_of_parts_are_moved_in_order() {
    with_devices("thousands_of_parts_are_moved_in_order", |device, _, _| async move {
        // Every second block of a larger buffer, so that nothing can be joined.
        let whole = Buffer::zeroed(2 * 2500 * 512);
        let part = |index: usize| whole.slice(index * 1024..index * 1024 + 512);
        let parts: Buffers = (0..2500).map(part).collect();
        assert_eq!(parts.count(), 2500);
        let bytes = pattern(parts.len_bytes(), 9);
        parts.copy_from(&bytes);
        device.write(0, parts.clone()).await.unwrap();
        parts.fill(0);
        device.read(0, parts.clone()).await.unwrap();
        assert!(parts.to_vec() == bytes);
    });
}

#[test]
fn memory_without_payload_writes_zeros_and_reads_into_nothing() {
    with_devices("memory_without_payload", |device, _, _| async move {
        device.write(0, Buffer::from_slice(&[7; 4096])).await.unwrap();
        device.write(512, Buffer::payload_free(512)).await.unwrap();
        device.read(0, Buffer::payload_free(4096)).await.unwrap();
        let back = Buffer::zeroed(1536);
        device.read(0, &back).await.unwrap();
        assert_eq!(back.to_vec(), [[7; 512], [0; 512], [7; 512]].concat());
    });
}

#[test]
fn promises_and_space_requests_succeed_and_read_as_zeros() {
    with_devices("promises_and_space_requests", |device, _, _| async move {
        let full = Buffer::from_slice(&[9; 16384]);
        let fua = RequestFlags::FUA;
        device.submit(Request::write(0, &full).with_flags(fua)).await.unwrap();
        device.flush().await.unwrap();
        let zeroes = Request::write_zeroes(ByteRange::at(0, 512));
        device.submit(zeroes.clone().with_flags(fua)).await.unwrap();
        let kept = Request::write_zeroes(ByteRange::at(4096, 4096));
        device.submit(kept.with_flags(RequestFlags::NO_UNMAP)).await.unwrap();
        device.submit(Request::discard(ByteRange::at(8192, 4096))).await.unwrap();
        let back = Buffer::zeroed(16384);
        device.read(0, &back).await.unwrap();
        let bytes = back.to_vec();
        let is_zero = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == 0);
        assert!(is_zero(0..512) && is_zero(4096..12288));
        assert!(bytes[512..4096].iter().chain(&bytes[12288..]).all(|byte| *byte == 9));
        device.submit(Request::read(0, Buffers::new())).await.unwrap();
    });
}

#[test]
fn requests_beyond_the_end_or_inside_a_block_are_refused() {
    with_devices("requests_beyond_the_end", |device, _, _| async move {
        let block = Buffer::zeroed(512);
        let beyond = device.read(SIZE, &block).await.unwrap_err();
        assert!(matches!(beyond.cause(), Cause::OutOfRange { .. }), "{beyond}");
        let inside = device.write(100, &block).await.unwrap_err();
        assert!(matches!(inside.cause(), Cause::Misaligned { .. }), "{inside}");
        let part = device.read(0, block.slice(0..100)).await.unwrap_err();
        assert!(matches!(part.cause(), Cause::Misaligned { .. }), "{part}");
    });
}

#[test]
fn file_that_was_cut_short_answers_with_a_medium_error() {
    for dir in dirs("file_that_was_cut_short") {
        run(&RunConfig::default(), |ring, _| async move {
            let device = FileDevice::open(&ring, &new_file(&dir)).unwrap();
            let file = fs::File::options().write(true).open(dir.path().join("device")).unwrap();
            file.set_len(SIZE / 2).unwrap();
            let range = ByteRange::at(SIZE / 2 - 4096, 8192);
            let request = Request::read(range.start(), Buffer::zeroed(8192));
            let error = device.submit(request).await.unwrap_err();
            assert_eq!(error, DeviceError::new(device.name(), Cause::Media { range }));
        })
        .unwrap();
    }
}

#[test]
fn second_opener_is_refused_and_told_by_whom() {
    let dir = tempfile::tempdir().unwrap();
    run(&RunConfig::default(), |ring, _| async move {
        let options = new_file(&dir);
        let first = FileDevice::open(&ring, &options).unwrap();
        let error = FileDevice::open(&ring, &options).err().unwrap();
        let OpenError::InUse { holder: Holder::Process { id, .. }, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*id, std::process::id());
        FileDevice::open(&ring, &options.clone().ownership(Ownership::Shared)).unwrap();
        drop(first);
        open_soon(&ring, &options);
    })
    .unwrap();
}

#[test]
fn file_that_this_process_has_closed_is_held_by_nobody_who_could_be_named() {
    let dir = tempfile::tempdir().unwrap();
    run(&RunConfig::default(), |ring, _| async move {
        let options = new_file(&dir);
        drop(FileDevice::open(&ring, &options).unwrap());
        let file = fs::File::open(dir.path().join("device")).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        // As does an operation that is not quite over, a descriptor under way keeps the file open.
        let under_way = send_away(file);
        let error = FileDevice::open(&ring, &options).err().unwrap();
        assert!(matches!(error, OpenError::InUse { holder: Holder::Unknown, .. }), "{error}");
        drop(under_way);
        open_soon(&ring, &options);
    })
    .unwrap();
}

#[test]
fn file_with_a_ring_of_its_own_can_be_opened_again_when_it_is_left() {
    let dir = tempfile::tempdir().unwrap();
    run(&RunConfig::default(), |ring, _| async move {
        let options = new_file(&dir);
        for _ in 0..50 {
            let device = open_served(&ring, &options);
            let error = FileDevice::open(&ring, &options).err().unwrap();
            assert!(matches!(error, OpenError::InUse { .. }), "{error}");
            drop(device);
            // Its thread closes it, now or soon: until then it is held by what cannot be named.
            match FileDevice::open(&ring, &options) {
                Ok(_) | Err(OpenError::InUse { holder: Holder::Unknown, .. }) => {}
                Err(error) => panic!("{error}"),
            }
            drop(open_soon(&ring, &options));
        }
    })
    .unwrap();
}

/// Opens a file that has been closed, within ten seconds. A child that a test beside this one is
/// just starting has every descriptor of this process until it becomes its program.
fn open_soon(ring: &Ring, options: &FileOptions) -> FileDevice {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match FileDevice::open(ring, options) {
            Ok(device) => return device,
            Err(OpenError::InUse { .. }) if std::time::Instant::now() < until => {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Leaves a file open nowhere but in a message that nobody reads.
fn send_away(file: fs::File) -> [std::os::unix::net::UnixStream; 2] {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&near, &[std::io::IoSlice::new(b"f")], &mut message, SendFlags::empty()).unwrap();
    [near, far]
}

fn open_error(options: &FileOptions) -> OpenError {
    let open = |ring: Ring, _: Runtime| {
        let error = FileDevice::open(&ring, options).err().unwrap();
        async move { error }
    };
    run(&RunConfig::default(), open).unwrap()
}

#[test]
fn what_cannot_be_opened_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    assert!(matches!(open_error(&FileOptions::new(&path)), OpenError::Open { .. }));
    fs::write(&path, "").unwrap();
    assert!(matches!(open_error(&FileOptions::new(&path)), OpenError::Empty { .. }));
    fs::write(&path, [0; 8192]).unwrap();
    let other = FileOptions::new(&path).create(4096, Allocation::Sparse);
    assert!(matches!(open_error(&other), OpenError::SizeDiffers { found_bytes: 8192, .. }));
    let kind = open_error(&FileOptions::new(dir.path()).access(Access::ReadOnly));
    assert!(matches!(kind, OpenError::WrongKind { .. }), "{kind}");
    assert!(matches!(open_error(&FileOptions::new(dir.path())), OpenError::WrongKind { .. }));
    let huge = FileOptions::new(dir.path().join("huge")).create(1 << 50, Allocation::Preallocated);
    assert!(matches!(open_error(&huge), OpenError::Allocate { .. }));
}

#[test]
fn read_only_device_refuses_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, [1; 8192]).unwrap();
    run(&RunConfig::default(), |ring, _| async move {
        let options = FileOptions::new(&path).access(Access::ReadOnly);
        let device = FileDevice::open(&ring, &options).unwrap();
        let buffer = Buffer::zeroed(4096);
        device.submit(Request::read(4096, &buffer)).await.unwrap();
        assert_eq!(buffer.to_vec(), [1; 4096]);
        let error = device.submit(Request::write(0, &buffer)).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::ReadOnly));
    })
    .unwrap();
}

#[test]
fn file_in_memory_says_that_it_is_lost_on_power() {
    for dir in dirs("file_in_memory_says_that_it_is_lost_on_power") {
        run(&RunConfig::default(), |ring, _| async move {
            let device = FileDevice::open(&ring, &new_file(&dir)).unwrap();
            let is_lost = device.geometry().stability == Stability::LostOnPower;
            assert_eq!(is_lost, device.properties().volatile.is_some());
            assert_eq!(device.geometry().size_bytes, SIZE);
            if dir.path().starts_with("/dev/shm") {
                assert!(is_lost);
            }
        })
        .unwrap();
    }
}

#[test]
fn block_device_is_served_exclusively_and_its_facts_are_known() {
    let test = "block_device_is_served_exclusively_and_its_facts_are_known";
    for dir in dirs(test) {
        let file = dir.path().join("backing");
        fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
        let Some(block) = LoopDevice::over(test, &file, 512) else { return };
        let facts = crate::safety::inspect(&block.path).unwrap();
        assert_eq!((facts.kind, facts.size_bytes), (crate::safety::DeviceKind::BlockDevice, SIZE));
        assert_eq!(facts.volatile.is_some(), dir.path().starts_with("/dev/shm"));
        assert_eq!(facts.hazards(), []);
        assert_eq!(crate::safety::inspect(&file).unwrap().holders, [block.name()]);
        run(&RunConfig::default(), |ring, _| serve_block(ring, block.path.clone())).unwrap();
    }
}

async fn serve_block(ring: Ring, path: PathBuf) {
    let options = FileOptions::new(&path);
    let device = FileDevice::open(&ring, &options).unwrap();
    assert!(device.properties().is_direct && device.properties().is_block_device);
    let error = FileDevice::open(&ring, &options).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(crate::safety::inspect(&path).unwrap().claimed);
    let device: Rc<dyn BlockDevice> = Rc::new(device);
    assert_eq!(device.size_bytes(), SIZE);
    let bytes = pattern(65536, 1);
    let request = Request::write(4096, Buffer::from_slice(&bytes));
    device.submit(request.with_flags(RequestFlags::FUA)).await.unwrap();
    device.flush().await.unwrap();
    device.submit(Request::write_zeroes(ByteRange::at(4096, 4096))).await.unwrap();
    device.submit(Request::discard(ByteRange::at(8192, 4096))).await.unwrap();
    let back = Buffer::zeroed(65536);
    device.read(4096, &back).await.unwrap();
    let back = back.to_vec();
    assert!(back[..8192].iter().all(|byte| *byte == 0) && back[8192..] == bytes[8192..]);
}

#[test]
fn block_device_with_blocks_of_4_kib_takes_whole_ones_only() {
    let test = "block_device_with_blocks_of_4_kib_takes_whole_ones_only";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backing");
    fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let Some(block) = LoopDevice::over(test, &file, 4096) else { return };
    run(&RunConfig::default(), |ring, _| async move {
        let device = FileDevice::open(&ring, &FileOptions::new(&block.path)).unwrap();
        assert_eq!(device.geometry().logical_block_bytes, 4096);
        let part = device.submit(Request::write(512, Buffer::zeroed(512))).await.unwrap_err();
        assert!(matches!(part.cause(), Cause::Misaligned { logical_block_bytes: 4096, .. }));
        // Memory aligned to less than a page, and in parts that are no whole blocks.
        let odd = Buffer::zeroed(3 * 4096).slice(512..512 + 8192);
        odd.fill(5);
        let parts: Buffers = [odd.slice(0..1024), odd.slice(1024..8192)].into_iter().collect();
        device.submit(Request::write(4096, parts)).await.unwrap();
        let halves = [Buffer::zeroed(1024), Buffer::zeroed(7168)];
        let halves: Buffers = halves.into_iter().collect();
        device.submit(Request::read(4096, halves.clone())).await.unwrap();
        assert_eq!(halves.to_vec(), [5; 8192]);
        assert!(device.bounced() >= 1);
        drop(device);
        drop(block);
    })
    .unwrap();
}
