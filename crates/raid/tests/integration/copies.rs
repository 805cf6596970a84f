//! The copies of a mirror one by one.

use crate::support::*;
use headpond_block::{BlockDevice, Buffer, Cause, DeviceError, Request};
use headpond_raid::{Array, ArrayState, Level};

const LEN: usize = 3 * STRIP as usize;

async fn read_copy(array: &Array, copy: usize, offset: u64) -> Result<Vec<u8>, DeviceError> {
    let buffer = Buffer::zeroed(LEN);
    let copies = array.copies().expect("a mirror");
    copies.read_copy(copy, Request::read(offset, &buffer)).await?;
    Ok(buffer.to_vec())
}

async fn mend_copy(
    array: &Array,
    copy: usize,
    offset: u64,
    bytes: &[u8],
) -> headpond_block::Outcome {
    let copies = array.copies().expect("a mirror");
    copies.mend_copy(copy, Request::write(offset, Buffer::from_slice(bytes))).await
}

#[test]
fn each_copy_is_read_as_it_is_and_mended_alone() {
    run(1, |runtime| async move {
        let members = devices(3, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid1, 1)).await;
        assert_eq!(array.copies().unwrap().count(), 3);
        let at = 512;
        for (copy, member) in members.iter().enumerate() {
            let start = (headpond_raid::superblock::DATA_OFFSET_MIN + at) as usize;
            member.memory().slice(start..start + LEN).fill(copy as u8 + 1);
        }
        for copy in 0..3 {
            assert_eq!(read_copy(&array, copy, at).await.unwrap(), [copy as u8 + 1; LEN]);
        }
        mend_copy(&array, 1, at, &[9; LEN]).await.unwrap();
        for (copy, byte) in [1, 9, 3].into_iter().enumerate() {
            assert_eq!(read_copy(&array, copy, at).await.unwrap(), [byte; LEN]);
        }
        assert_eq!(array.status().counts.rewritten_strips, 4, "it begins within a strip");
    });
}

#[test]
fn a_copy_that_cannot_be_read_is_an_error_although_others_can() {
    run(2, |runtime| async move {
        let members = devices(2, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid1, 1)).await;
        write(&array, 0, &[7; LEN]).await.unwrap();
        members[1].make_bad(512, 512);
        let error = read_copy(&array, 1, 0).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Media { .. }), "{error}");
        mend_copy(&array, 1, 0, &[7; LEN]).await.unwrap();
        assert_eq!(read_copy(&array, 1, 0).await.unwrap(), [7; LEN]);
        assert_eq!(array.state(), ArrayState::Optimal);
    });
}

#[test]
fn a_copy_that_does_not_take_what_it_lacks_is_out_and_answers_no_more() {
    run(3, |runtime| async move {
        let members = devices(2, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid1, 1)).await;
        write(&array, 0, &[7; LEN]).await.unwrap();
        members[0].writes_left.set(0);
        mend_copy(&array, 0, 0, &[7; LEN]).await.unwrap();
        assert_eq!(array.state(), ArrayState::Degraded);
        let error = read_copy(&array, 0, 0).await.unwrap_err();
        assert!(error.is_gone(), "{error}");
        assert_eq!(read_copy(&array, 1, 0).await.unwrap(), [7; LEN]);
    });
}

#[test]
fn only_mirrors_have_copies() {
    run(4, |runtime| async move {
        for (level, count) in [(Level::Raid0, 3), (Level::Raid5, 3), (Level::Raid6, 4)] {
            let members = devices(count, 8, &runtime);
            let array = new_array(&members, &options(level, 1)).await;
            assert!(array.copies().is_none(), "{level}");
        }
    });
}
