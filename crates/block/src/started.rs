//! An operation that was started by one task and is awaited by another.

use crate::{BlockDevice, Outcome, Request, Submission};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A submission that keeps its device alive, so that it may be moved to a task of its own.
pub struct Started {
    /// Borrows from the device: declared, and so dropped, before it.
    submission: Submission<'static>,
    _device: Rc<dyn BlockDevice>,
}

/// Submits a request.
///
/// # Errors
/// Not an error: the operation in flight, where the device did not complete it immediately.
#[inline]
pub fn start(device: &Rc<dyn BlockDevice>, request: Request) -> Result<Outcome, Started> {
    match device.submit(request).now_or() {
        Ok(outcome) => Ok(outcome),
        Err(submission) => {
            // SAFETY: the submission borrows from the device alone. The device lies behind a
            // counted pointer, so it does not move, and `Started` holds it until the submission is
            // gone.
            let submission: Submission<'static> = unsafe { std::mem::transmute(submission) };
            Err(Started { submission, _device: Rc::clone(device) })
        }
    }
}

impl Future for Started {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.submission).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::RamDevice;
    use crate::{Buffer, DeviceName, Geometry};

    struct Later(RamDevice);

    impl BlockDevice for Later {
        fn name(&self) -> &DeviceName {
            self.0.name()
        }

        fn geometry(&self) -> &Geometry {
            self.0.geometry()
        }

        fn submit(&self, request: Request) -> Submission<'_> {
            Submission::pending(async move { self.0.submit(request).await })
        }
    }

    #[test]
    fn a_started_operation_outlives_its_callers_handle_to_the_device() {
        let ram = RamDevice::new("ram", 4096);
        let memory = ram.memory().clone();
        let device: Rc<dyn BlockDevice> = Rc::new(Later(ram));
        let write = Request::write(0, Buffer::from_slice(&[5; 512]));
        let started = start(&device, write).expect_err("it takes a poll");
        drop(device);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert_eq!(Box::pin(started).as_mut().poll(&mut context), Poll::Ready(Ok(())));
        assert_eq!(memory.slice(0..1).to_vec(), [5]);
    }
}
