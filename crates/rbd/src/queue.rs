//! The thread that hands requests to librbd.
//!
//! librbd queues requests too, but takes locks before that, and these are held while an image
//! recovers its lock or its header. So the data thread hands them to this thread, and never waits.
//!
//! **Invariants**
//! - The memory that an order points to is kept by the data thread until its key is completed.
//! - The image is closed after the last completion.

use crate::answers::Answers;
use crate::image::OpenImage;
use crate::keeper::Keeper;
use crate::library::{Api, Opaque, ZEROES_ALLOCATED};
use headpond_block::{Buffers, ByteRange};
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::{Arc, mpsc};

/// What librbd is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes { is_allocated: bool },
}

/// One request.
pub struct Order {
    pub key: usize,
    pub operation: Operation,
    pub range: ByteRange,
    pub parts: Parts,
}

/// Where the data is.
pub struct Parts(SmallVec<[libc::iovec; 2]>);

// SAFETY: the pointers are followed by librbd alone, while the data thread keeps the memory.
unsafe impl Send for Parts {}

impl Parts {
    pub fn of(buffers: &Buffers) -> Self {
        let part = |part: &headpond_block::Buffer| libc::iovec {
            iov_base: part.as_ptr().cast(),
            iov_len: part.len(),
        };
        Self(buffers.iter().map(part).collect())
    }
}

/// The data thread's end; the thread closes the image when it is dropped.
pub struct Queue {
    orders: mpsc::Sender<Order>,
}

impl Queue {
    /// # Errors
    /// Where no thread can be started; the image is closed.
    pub fn start(image: OpenImage, answers: &Arc<Answers>) -> io::Result<Self> {
        let (orders, ordered) = mpsc::channel();
        let image = Arc::new(image);
        let keeper = Keeper::start(Arc::clone(&image), Arc::clone(answers))?;
        let answers = Arc::clone(answers);
        let run = move || {
            ordered.iter().for_each(|order| carry_out(&image, &answers, order));
            answers.wait_for_all();
            keeper.end();
            drop(image);
            answers.close();
        };
        std::thread::Builder::new().name("rbd".into()).spawn(run)?;
        Ok(Self { orders })
    }

    pub fn order(&self, order: Order) {
        self.orders.send(order).expect("the thread ends after its queue");
    }
}

/// What a completion carries. librbd reads the list of parts as late as the data arrives.
struct Carried {
    api: &'static Api,
    answers: Arc<Answers>,
    key: usize,
    parts: Parts,
}

fn carry_out(image: &OpenImage, answers: &Arc<Answers>, order: Order) {
    let Order { key, operation, range, parts } = order;
    let api = image.api();
    answers.begin(key, matches!(operation, Operation::Read | Operation::Write));
    let carried = Carried { api, answers: Arc::clone(answers), key, parts };
    let carried = Box::into_raw(Box::new(carried));
    let mut completion = ptr::null_mut();
    // SAFETY: the callback takes the box over.
    let made = unsafe {
        (api.requests.new_completion)(carried.cast(), has_completed, &raw mut completion)
    };
    let begun = match made {
        // SAFETY: nothing has completed yet, so the box is still there.
        0.. => unsafe { begin(image, operation, range, &(*carried).parts, completion) },
        failed => failed,
    };
    if begun < 0 {
        // librbd took nothing, and will not call back.
        if !completion.is_null() {
            // SAFETY: it is not used again.
            unsafe { (api.requests.release)(completion) };
        }
        // SAFETY: the box was not given away.
        drop(unsafe { Box::from_raw(carried) });
        answers.complete(key, begun as isize);
    }
}

/// # Safety
/// The memory of the parts stays in place until the completion.
unsafe fn begin(
    image: &OpenImage,
    operation: Operation,
    range: ByteRange,
    parts: &Parts,
    completion: Opaque,
) -> c_int {
    let (requests, handle, offset) = (&image.api().requests, image.handle(), range.start());
    let (list, count) = (parts.0.as_ptr(), parts.0.len() as c_int);
    // SAFETY: the image is open, and the caller keeps the memory.
    unsafe {
        match operation {
            Operation::Read => (requests.read)(handle, list, count, offset, completion),
            Operation::Write => (requests.write)(handle, list, count, offset, completion),
            Operation::Flush => (requests.flush)(handle, completion),
            Operation::Discard => (requests.discard)(handle, offset, range.len(), completion),
            Operation::WriteZeroes { is_allocated } => {
                let flags = if is_allocated { ZEROES_ALLOCATED } else { 0 };
                let len = range.len() as usize;
                (requests.write_zeroes)(handle, offset, len, completion, flags, 0)
            }
        }
    }
}

/// On a thread of librbd's.
unsafe extern "C" fn has_completed(completion: Opaque, carried: *mut c_void) {
    // SAFETY: given by `carry_out`, and called once.
    let carried = unsafe { Box::from_raw(carried.cast::<Carried>()) };
    let requests = &carried.api.requests;
    // SAFETY: the completion is there until it is released, here.
    let result = unsafe { (requests.result)(completion) };
    // SAFETY: as above.
    unsafe { (requests.release)(completion) };
    carried.answers.complete(carried.key, result);
}
