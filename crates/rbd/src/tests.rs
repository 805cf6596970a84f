//! The device over a cluster in memory.

use crate::image::{ImageError, OpenImage, Opener};
use crate::twin::{CLIENT, PLACE, SIZE_BYTES, Twin};
use crate::{ImageAddress, RbdDevice};
use headpond_block::{
    BlockDevice, Buffer, Buffers, ByteRange, Cause, RemoteStorage, Request, RequestFlags, Runtime,
    Stability,
};
use headpond_uring::{RunConfig, run};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

fn opener(tag: &str) -> Opener {
    Opener { tag: tag.into(), is_gone: Box::new(|tag| tag == "gone") }
}

fn address() -> ImageAddress {
    PLACE.parse().unwrap()
}

/// Runs against an open image of a new cluster.
fn with_device<F: Future<Output = ()>>(
    test: impl FnOnce(&'static Twin, Runtime, Rc<RbdDevice>) -> F,
) -> &'static Twin {
    let (twin, api) = Twin::new();
    let done = run(&RunConfig::default(), |_, runtime| async move {
        let image = OpenImage::open_by(api, &address(), &opener("us")).unwrap();
        let device = Rc::new(RbdDevice::new(&runtime, image).unwrap());
        test(twin, runtime, device).await;
    });
    done.unwrap();
    twin
}

/// Until it is so, or for too long.
async fn until(runtime: &Runtime, is_so: impl Fn() -> bool) {
    let end = runtime.now() + Duration::from_secs(20);
    while !is_so() {
        assert!(runtime.now() < end, "it never is");
        runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn what_is_written_is_read_also_in_parts() {
    with_device(|_, _, device| async move {
        let device = device as Rc<dyn BlockDevice>;
        assert_eq!(device.geometry().size_bytes, SIZE_BYTES);
        assert_eq!(device.geometry().stability, Stability::Flushable);
        let parts: Buffers = [[1; 512], [2; 512]].iter().map(|it| Buffer::from_slice(it)).collect();
        device.write(4096, parts.clone()).await.unwrap();
        let (one, other) = (Buffer::zeroed(600), Buffer::zeroed(424));
        let read: Buffers = [one, other].into_iter().collect();
        device.read(4096, read.clone()).await.unwrap();
        assert!(read.to_vec() == parts.to_vec());
    });
}

#[test]
fn fua_flushes_after_its_write_and_zeros_and_discards_arrive_as_such() {
    let twin = with_device(|_, _, device| async move {
        let data = Buffer::from_slice(&[7; 512]);
        let fua = Request::write(0, data).with_flags(RequestFlags::FUA);
        device.submit(fua).await.unwrap();
        device.submit(Request::flush()).await.unwrap();
        let range = ByteRange::at(1024, 2048);
        device.submit(Request::discard(range)).await.unwrap();
        device.submit(Request::write_zeroes(range)).await.unwrap();
        let allocated = Request::write_zeroes(range).with_flags(RequestFlags::NO_UNMAP);
        device.submit(allocated).await.unwrap();
    });
    let asked = twin.state().requests;
    let expected = [
        ("write", 0, 1),
        ("flush", 0, 0),
        ("flush", 0, 0),
        ("discard", 1024, 2048),
        ("zero", 1024, 2048),
        ("zero, allocated", 1024, 2048),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn the_cache_of_librbd_is_off_and_nothing_times_out() {
    let twin = with_device(|_, _, _| async {});
    let options = twin.state().options;
    for (name, value) in [("rbd_cache", "false"), ("rados_osd_op_timeout", "0")] {
        assert!(options.contains(&(name.into(), value.into())), "{options:?}");
    }
}

#[test]
fn a_silent_cluster_is_waited_for_and_that_is_told() {
    with_device(|twin, runtime, device| async move {
        twin.change(|state| state.is_silent = true);
        let waiting = Rc::clone(&device);
        let write = runtime.spawn(async move {
            waiting.submit(Request::write(0, Buffer::from_slice(&[9; 512]))).await
        });
        until(&runtime, || device.status().waiting_s.is_some()).await;
        assert_eq!(twin.state().contents[0], 0);
        twin.change(|state| state.is_silent = false);
        write.await.unwrap();
        assert_eq!(twin.state().contents[0], 9);
        until(&runtime, || device.status().waiting_s.is_none()).await;
    });
}

#[test]
fn a_full_cluster_that_still_answers_questions_is_told_as_well() {
    with_device(|twin, runtime, device| async move {
        twin.change(|state| state.is_full = true);
        let waiting = Rc::clone(&device);
        let write = runtime.spawn(async move {
            waiting.submit(Request::write(0, Buffer::from_slice(&[9; 512]))).await
        });
        until(&runtime, || device.status().waiting_s.is_some()).await;
        device.submit(Request::read(0, Buffer::zeroed(512))).await.unwrap();
        assert!(device.status().waiting_s.is_some(), "a read says nothing of the write");
        twin.change(|state| state.is_full = false);
        write.await.unwrap();
        until(&runtime, || device.status().waiting_s.is_none()).await;
    });
}

#[test]
fn a_lock_that_is_lost_is_told_without_a_request_and_nothing_is_asked_any_more() {
    with_device(|twin, runtime, device| async move {
        let told = Rc::new(RefCell::new(Vec::new()));
        let tell = Rc::clone(&told);
        device.when_lost(Rc::new(move |why| tell.borrow_mut().push(why.to_owned())));
        twin.change(|state| state.owner = Some("another".into()));
        until(&runtime, || !told.borrow().is_empty()).await;
        let before = twin.state().requests.len();
        let error = device.submit(Request::read(0, Buffer::zeroed(512))).await.unwrap_err();
        assert!(error.is_gone(), "{error}");
        assert_eq!(twin.state().requests.len(), before);
        assert!(device.status().lost.unwrap().contains("another client"));
        let again = Rc::new(RefCell::new(0));
        let count = Rc::clone(&again);
        device.when_lost(Rc::new(move |_| *count.borrow_mut() += 1));
        assert_eq!((told.borrow().len(), *again.borrow()), (1, 1));
        twin.change(|state| state.owner = None);
    });
}

#[test]
fn a_request_of_an_excluded_client_tells_that_the_lock_is_lost() {
    with_device(|twin, _, device| async move {
        twin.change(|state| state.errno = libc::ESHUTDOWN);
        let error = device.submit(Request::flush()).await.unwrap_err();
        assert!(error.is_gone(), "{error}");
        assert!(device.status().lost.unwrap().contains("excludes us"));
    });
}

#[test]
fn errnos_become_causes_and_an_image_that_shrank_is_no_short_read() {
    with_device(|twin, runtime, device| async move {
        let read = async || {
            let read = device.submit(Request::read(SIZE_BYTES - 512, Buffer::zeroed(512)));
            read.await.unwrap_err().cause().clone()
        };
        for (errno, is_it) in [
            (libc::EIO, (|it| matches!(it, Cause::Media { .. })) as fn(&Cause) -> bool),
            (libc::EDQUOT, |it| *it == Cause::NoSpace),
            (libc::ENOENT, |it| *it == Cause::Gone),
            (libc::EINVAL, |it| matches!(it, Cause::Os { .. })),
        ] {
            twin.change(|state| state.errno = errno);
            let cause = read().await;
            assert!(is_it(&cause), "{errno}: {cause:?}");
        }
        twin.change(|state| (state.errno, state.size_bytes) = (0, SIZE_BYTES - 1024));
        assert!(matches!(read().await, Cause::OutOfRange { .. }));
        until(&runtime, || device.status().size_bytes == SIZE_BYTES - 1024).await;
        assert_eq!(device.status().lost, None);
    });
}

#[test]
fn memory_stays_until_the_cluster_has_answered_though_nobody_waits() {
    with_device(|twin, runtime, device| async move {
        twin.change(|state| state.is_silent = true);
        drop(device.submit(Request::write(512, Buffer::from_slice(&[5; 512]))));
        drop(device);
        runtime.sleep(Duration::from_millis(20)).await;
        assert_eq!(twin.state().opened, 1, "it is closed after the last request");
        twin.change(|state| state.is_silent = false);
        until(&runtime, || twin.state().opened == 0).await;
        assert_eq!(twin.state().contents[512], 5);
        assert_eq!(twin.state().owner, None, "the lock is released");
    });
}

#[test]
fn a_lock_is_taken_from_a_process_of_this_host_that_has_ended_and_from_no_other_client() {
    let locked_by = |note: Option<&str>| {
        let (twin, api) = Twin::new();
        twin.change(|state| {
            state.owner = Some("10.0.0.1:0/3".into());
            state.note = note.map(str::to_owned);
        });
        (twin, OpenImage::open_by(api, &address(), &opener("us")))
    };
    let (twin, opened) = locked_by(Some("10.0.0.1:0/3 gone"));
    let opened = opened.unwrap();
    assert_eq!(twin.state().broken, ["10.0.0.1:0/3"]);
    assert_eq!(twin.state().note, Some(format!("{CLIENT} us")));
    drop(opened);
    for note in [None, Some("10.0.0.1:0/3 alive"), Some("10.0.0.1:0/4 gone"), Some("x")] {
        let (twin, opened) = locked_by(note);
        let Err(error @ ImageError::Locked { .. }) = opened else { panic!("{note:?}") };
        assert!(error.to_string().contains("10.0.0.1:0/3"), "{error}");
        assert_eq!((twin.state().broken.len(), twin.state().opened), (0, 0), "{note:?}");
    }
}

#[test]
fn what_cannot_be_opened_names_the_way_out_and_leaves_nothing_open() {
    let opened = |text: &str, features| {
        let (twin, api) = Twin::new();
        twin.change(|state| state.features = features);
        let error = OpenImage::open_by(api, &text.parse().unwrap(), &opener("us"));
        let error = error.err().expect("it is refused").to_string();
        assert_eq!((twin.state().opened, twin.state().owner), (0, None));
        error
    };
    for (text, features, way_out) in [
        ("no/image", 4, "ceph osd pool ls"),
        ("pool/no", 4, "rbd ls -p POOL"),
        ("pool/image", 3, "rbd feature enable pool/image exclusive-lock"),
    ] {
        let error = opened(text, features);
        assert!(error.contains(way_out), "{error}");
    }
}
