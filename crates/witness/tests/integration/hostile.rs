//! Peers that hold no key, another key, or nothing good: none of them gets anywhere, and an honest
//! one is served meanwhile.

use crate::common::{LOAD, Rig, SIZE_BYTES, key};
use headpond_block::{Buffer, Stream};
use headpond_sim::{Medium, run};
use headpond_witness::field::auth::Key;
use headpond_witness::field::event::Event;
use headpond_witness::field::link::{Link, LinkError};
use headpond_witness::field::server::Limits;
use headpond_witness::field::session::{OpenError, open};
use headpond_witness::field::wire::{BODY_BYTES_MAX, FromWitness, Purpose, Region, ToWitness};
use std::rc::Rc;
use std::time::Duration;

/// Runs with a witness in a folder of its own.
fn with_rig(seed: u64, test: impl AsyncFnOnce(Rig)) {
    let folder = headpond_testkit::tempdir();
    let path = folder.path().to_owned();
    run(seed, |runtime, sim| async move { test(Rig::new(runtime, sim, &path)).await }).unwrap();
}

async fn send(stream: &dyn Stream, bytes: &[u8]) {
    let _ = stream.write_all(Buffer::from_slice(bytes).into()).await;
}

/// Reads until the witness closes; how many bytes it said.
async fn until_closed(stream: &dyn Stream) -> usize {
    let mut count = 0;
    loop {
        match stream.read(Buffer::zeroed(256)).await {
            Ok(0) | Err(_) => return count,
            Ok(more) => count += more,
        }
    }
}

#[test]
fn another_key_is_refused_by_either_end() {
    with_rig(1, async |rig| {
        let stranger = Key::new([8; 32]);
        let link = Link::connect(rig.dial(), &stranger, rig.nonce()).await;
        assert!(matches!(link, Err(LinkError::Forged(_))));
        // A client that does not mind who the witness is gets no further.
        let stream = rig.dial();
        send(&*stream, &[b"HPWITN01", &[1; 32][..], &[2; 32]].concat()).await;
        assert_eq!(until_closed(&*stream).await, 72, "the witness's proof, and nothing more");
    });
}

#[test]
fn noise_silence_and_too_many_are_cut_off_and_others_are_served() {
    with_rig(2, async |rig| {
        let noise = rig.dial();
        send(&*noise, &[0x55; 100]).await;
        assert_eq!(until_closed(&*noise).await, 0);
        let silent: Vec<_> = (0..Limits::default().connections_max).map(|_| rig.dial()).collect();
        rig.runtime.sleep(Duration::from_secs(1)).await;
        let one_more = rig.dial();
        assert_eq!(until_closed(&*one_more).await, 0, "a connection too many");
        for stream in &silent {
            until_closed(&**stream).await;
        }
        assert!(rig.runtime.now().as_nanos() > 10_000_000_000, "they had their time");
        let medium = Rc::new(Medium::flushable("disk", SIZE_BYTES));
        rig.write(rig.powered(&medium), LOAD, Duration::from_millis(20)).await.unwrap();
    });
}

#[test]
fn a_frame_that_is_too_long_changed_or_repeated_ends_the_session() {
    with_rig(3, async |rig| {
        let stream = rig.dial();
        let link = Link::connect(Rc::clone(&stream) as Rc<dyn Stream>, &key(), rig.nonce()).await;
        let _link = link.unwrap();
        send(&*stream, &(BODY_BYTES_MAX as u32 + 1).to_le_bytes()).await;
        assert_eq!(until_closed(&*stream).await, 0);
        let stream = rig.dial();
        let link = Link::connect(Rc::clone(&stream) as Rc<dyn Stream>, &key(), rig.nonce()).await;
        let _link = link.unwrap();
        let body = ToWitness::Hello(rig.hello(Purpose::Write)).encode();
        let frame = [&(body.len() as u32).to_le_bytes()[..], &body, &[0; 32]].concat();
        send(&*stream, &frame).await;
        assert_eq!(until_closed(&*stream).await, 0, "no proof, no answer");
    });
}

#[test]
fn a_client_with_the_key_that_lies_is_refused_and_leaves_nothing() {
    with_rig(4, async |rig| {
        let untrue = [
            vec![Event::Begun { sequence: 1 }],
            vec![Event::Announced { sequence: 1, block: 1 << 40, blocks: 1 }],
            vec![Event::FlushAcknowledged],
        ];
        for events in untrue {
            let hello = rig.hello(Purpose::WriteAnew);
            let opened = open(&rig.runtime, rig.dial(), &key(), rig.nonce(), &hello).await;
            let (link, welcome) = opened.unwrap();
            assert_eq!(welcome.next_sequence, 1);
            link.send(&ToWitness::Events(events)).await.unwrap();
            let answer = link.receive_answer().await.unwrap();
            assert!(matches!(answer, FromWitness::Refused(_)), "{answer:?}");
        }
    });
}

#[test]
fn a_region_beyond_the_limit_takes_no_memory() {
    with_rig(5, async |rig| {
        let mut hello = rig.hello(Purpose::Write);
        hello.region = Some(Region { start_bytes: 0, blocks: 1 << 50, atom_bytes: 512 });
        let opened = open(&rig.runtime, rig.dial(), &key(), rig.nonce(), &hello).await;
        assert!(matches!(opened.map(drop), Err(OpenError::Link(_))));
    });
}

#[test]
fn a_device_of_another_size_is_another_device() {
    with_rig(6, async |rig| {
        let medium = Rc::new(Medium::flushable("disk", SIZE_BYTES));
        rig.write(rig.powered(&medium), LOAD, Duration::from_millis(20)).await.unwrap();
        let mut hello = rig.hello(Purpose::Verify);
        hello.device_bytes += 4096;
        let opened = open(&rig.runtime, rig.dial(), &key(), rig.nonce(), &hello).await;
        let refused = opened.map(drop).unwrap_err().to_string();
        assert!(refused.contains("another one"), "{refused}");
    });
}

#[test]
fn a_damaged_folder_is_told_and_can_be_given_up() {
    let folder = headpond_testkit::tempdir();
    let path = folder.path().to_owned();
    run(7, |runtime, sim| async move {
        let rig = Rig::new(runtime, sim, &path);
        let medium = Rc::new(Medium::flushable("disk", SIZE_BYTES));
        rig.write(rig.powered(&medium), LOAD, Duration::from_millis(20)).await.unwrap();
        let log = path.join("disk/log");
        let mut bytes = std::fs::read(&log).unwrap();
        bytes[40] ^= 1;
        std::fs::write(&log, bytes).unwrap();
        rig.start_witness(&path, Limits::default());
        let refused = rig.verify(rig.powered(&medium)).await.unwrap_err().to_string();
        assert!(refused.contains("damaged"), "{refused}");
        let hello = rig.hello(Purpose::WriteAnew);
        open(&rig.runtime, rig.dial(), &key(), rig.nonce(), &hello).await.map(drop).unwrap();
    })
    .unwrap();
}
