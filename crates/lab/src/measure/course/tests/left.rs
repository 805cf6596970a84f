//! What a run that is gone has left behind.

use super::*;
use rustix::fs::{FlockOperation, flock};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Locks a file and leaves it open nowhere but in a message that nobody reads: as the kernel holds
/// what the ring of a killed process had open.
fn left_behind(path: &Path) -> [UnixStream; 2] {
    let file = File::open(path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&near, &[IoSlice::new(b"f")], &mut message, SendFlags::empty()).unwrap();
    [near, far]
}

/// Lets go of what was left behind, some time after a cell has begun.
struct LetsGo(Option<[UnixStream; 2]>);

impl Watcher for LetsGo {
    fn begins(&mut self, _: &Cell) {
        let Some(left) = self.0.take() else { return };
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(left);
        });
    }

    fn round(&mut self, _: &Cell, _: u32, _: &Round) {}

    fn ends(&mut self, cell: &Cell, ending: &Ending) {
        assert_eq!(*ending, Ending::Complete, "{cell:?}");
    }

    fn prepares(&mut self, _: &str) {}
}

#[test]
fn a_file_that_only_a_killed_run_has_open_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    std::fs::write(&image, vec![1; 4 << 20]).unwrap();
    let target = format!("file = \"{}\"\nsize = \"4M\"\nload = \"in-process\"", image.display());
    let plan = plan(&target, MATRIX);
    let mut course = Course::create(&plan, &folder.path().join("out"), &Nobody).unwrap();
    course.run(&mut LetsGo(Some(left_behind(&image)))).unwrap();
}
