//! The thread that asks once a second whether this client still has the lock.
//!
//! librbd tells nobody that a lock is lost; a request that fails tells it, but a cache in front may
//! go without one for long. The answer comes from the cluster, so that one that does not answer is
//! noticed as well, and so is a new size of the image.

use crate::answers::Answers;
use crate::image::OpenImage;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

/// The thread; it ends with [`Keeper::end`].
pub struct Keeper {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// # Errors
    /// Where no thread can be started.
    pub fn start(image: Arc<OpenImage>, answers: Arc<Answers>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if let Err(why) = ask(&image, &answers) {
                    return answers.lose(why);
                }
            }
        };
        let thread = std::thread::Builder::new().name("rbd lock".into()).spawn(run)?;
        Ok(Self { stop, thread })
    }

    /// Waits until the cluster has answered its last question.
    pub fn end(self) {
        drop(self.stop);
        // A thread that panicked asks nothing either.
        let _ = self.thread.join();
    }
}

/// # Errors
/// Why the lock is lost.
fn ask(image: &OpenImage, answers: &Answers) -> Result<(), String> {
    answers.note_question();
    let lock = image.has_lock();
    let size_bytes = image.size_bytes().ok();
    answers.note_answer(size_bytes);
    match lock {
        Ok(true) => Ok(()),
        Ok(false) => Err("another client has taken the lock".into()),
        // The cluster answers something else: the requests tell whether it serves.
        Err(errno) => lost_by(errno).map_or(Ok(()), |why| Err(why.into())),
    }
}

/// What an errno says of the lock, where it says that it is lost.
///
/// **Source**: EBLOCKLISTED is ESHUTDOWN (`include/rados.h`); without its lock a client that may
/// not take it by itself is answered EROFS (`librbd/exclusive_lock`).
pub fn lost_by(errno: i32) -> Option<&'static str> {
    match errno {
        libc::ESHUTDOWN => Some("another client has broken the lock, and the cluster excludes us"),
        libc::EROFS => Some("another client has taken the lock"),
        _ => None,
    }
}
