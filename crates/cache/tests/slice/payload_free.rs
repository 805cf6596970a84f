//! Memory without payload beside memory with it: no byte that matters is lost to it.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use headpond_block::{BlockDevice, Buffer, Buffers, Request};
use headpond_cache::Slice;
use std::time::Duration;

const BLOCK: usize = 4096;

fn bare() -> Buffer {
    Buffer::payload_free(BLOCK)
}

async fn write(slice: &Slice, index: u64, buffers: impl Into<Buffers>) {
    slice.submit(Request::write(index * BLOCK as u64, buffers)).await.unwrap();
}

#[test]
fn block_without_payload_reads_as_zeros_until_the_core_has_it() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        bench.core.memory().fill(7);
        let slice = bench.open(nop()).await;
        write(&slice, 0, bare()).await;
        assert_eq!(byte_at(&slice, 0).await.unwrap(), 0);
        slice.flush_dirty().await.unwrap();
        let core = byte_at(&*bench.core, 0).await.unwrap();
        assert_eq!(byte_at(&slice, 0).await.unwrap(), core);
        assert_eq!(slice.stats().counters.errors.cache_checksum, 0);
    });
}

#[test]
fn neighbours_with_payload_reach_the_core() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        write(&slice, 0, block(1)).await;
        write(&slice, 1, bare()).await;
        // One request of three blocks, the middle one without payload in its second half.
        let mixed = [block(2), block(3).slice(0..512), bare().slice(512..BLOCK), block(4)];
        write(&slice, 2, mixed.into_iter().collect::<Buffers>()).await;
        slice.flush_dirty().await.unwrap();
        assert_eq!((slice.stats().dirty_bytes, slice.stats().counters.cleaned_blocks), (0, 5));
        for (index, expected) in [(0, 1), (2, 2), (4, 4)] {
            let at = index * BLOCK as u64;
            assert_eq!(byte_at(&*bench.core, at).await.unwrap(), expected);
            assert_eq!(byte_at(&slice, at).await.unwrap(), expected);
        }
    });
}

#[test]
fn read_without_payload_inserts_nothing_that_a_later_read_would_believe() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        bench.core.memory().fill(7);
        let slice = bench.open(nop()).await;
        (&slice as &dyn BlockDevice).read(0, bare()).await.unwrap();
        runtime.sleep(Duration::from_millis(1)).await;
        assert_eq!(slice.stats().clean_bytes, BLOCK as u64, "inserted");
        assert_eq!(byte_at(&slice, 0).await.unwrap(), 7);
    });
}

#[test]
fn sectors_without_payload_over_a_block_and_with_it_over_none() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        slice.submit(Request::write(512, Buffer::payload_free(512))).await.unwrap();
        slice.submit(Request::write(1024, block(9).slice(0..512))).await.unwrap();
        assert_eq!(byte_at(&slice, 512).await.unwrap(), 0);
        assert_eq!(byte_at(&slice, 1024).await.unwrap(), 9);
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*bench.core, 1024).await.unwrap(), 9);
    });
}

#[test]
fn what_had_no_payload_is_not_there_in_the_next_life() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        write(&slice, 0, block(1)).await;
        write(&slice, 1, bare()).await;
        slice.stop().await.unwrap();
        let again = bench.open(nop()).await;
        assert_eq!(again.stats().dirty_bytes, BLOCK as u64);
        assert_eq!(byte_at(&again, 0).await.unwrap(), 1);
        assert_eq!(byte_at(&again, BLOCK as u64).await.unwrap(), 0);
        again.flush_dirty().await.unwrap();
    });
}
