//! A device that fails on command.

use crate::{
    BlockDevice, ByteRange, Cause, DeviceError, DeviceName, Geometry, Outcome, Request,
    RequestKind, Runtime, Submission,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The effect of a rule on a matching operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A medium error; nothing reaches the device.
    Media,
    /// Reads of the rule's range fail with a medium error until all of it is written again.
    Latent,
    /// The device is gone, for this operation and every later one.
    Gone,
    /// No space is left; nothing reaches the device.
    NoSpace,
    /// The operation never completes, and is never executed.
    Hang,
    /// The operation is executed after this time.
    Delay(Duration),
    /// A read returns with its first byte inverted; a write stores it so.
    Corrupt,
    /// A write is acknowledged but not executed; other operations are executed.
    Lose,
    /// The operation is executed, but completes with a medium error.
    Deny,
}

/// Which operations a fault affects.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// `None`: every kind.
    pub kind: Option<RequestKind>,
    /// `None`: everywhere, and requests without a range.
    pub range: Option<ByteRange>,
    /// Matching operations that pass before the first fault.
    pub after: u64,
    /// How many operations fail; `None`: all that follow.
    pub times: Option<u64>,
    pub fault: Fault,
}

impl FaultRule {
    /// `fault` for every operation of `kind`.
    pub fn on(kind: RequestKind, fault: Fault) -> Self {
        Self { kind: Some(kind), range: None, after: 0, times: None, fault }
    }

    fn matches(&self, request: &Request) -> bool {
        self.kind.is_none_or(|kind| kind == request.kind)
            && self.range.is_none_or(|range| range.overlaps(request.range))
    }

    /// Whether the request repairs the fault of the rule.
    fn is_healed_by(&self, request: &Request) -> bool {
        let is_write = matches!(request.kind, RequestKind::Write | RequestKind::WriteZeroes);
        self.fault == Fault::Latent
            && is_write
            && self.range.is_some_and(|range| request.range.intersect(range) == range)
    }

    /// Whether this match is one of those that fail; counts it.
    fn strike(&mut self) -> bool {
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        match &mut self.times {
            Some(0) => false,
            Some(times) => {
                *times -= 1;
                true
            }
            None => true,
        }
    }
}

/// The rules of a [`FaultDevice`], to change while it is in use. Cloning shares them.
#[derive(Clone, Default)]
pub struct FaultControl(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    rules: Vec<FaultRule>,
    is_gone: bool,
    struck: u64,
}

impl FaultControl {
    pub fn add(&self, rule: FaultRule) {
        self.0.borrow_mut().rules.push(rule);
    }

    /// The device is healthy again.
    pub fn clear(&self) {
        let mut state = self.0.borrow_mut();
        state.rules.clear();
        state.is_gone = false;
    }

    /// Whether there is a rule, or the device is gone.
    pub fn is_armed(&self) -> bool {
        let state = self.0.borrow();
        state.is_gone || !state.rules.is_empty()
    }

    /// Operations affected by a fault.
    pub fn struck(&self) -> u64 {
        self.0.borrow().struck
    }

    fn draw(&self, request: &Request) -> Option<Fault> {
        let state = &mut *self.0.borrow_mut();
        state.rules.retain(|rule| !rule.is_healed_by(request));
        let fault = match state.is_gone {
            true => Some(Fault::Gone),
            false => {
                let mut matching = state.rules.iter_mut().filter(|rule| rule.matches(request));
                matching.find_map(|rule| rule.strike().then(|| rule.fault.clone()))
            }
        };
        state.is_gone |= fault == Some(Fault::Gone);
        state.struck += u64::from(fault.is_some());
        fault
    }
}

/// Passes requests on to `inner`, except where a rule says otherwise.
pub struct FaultDevice {
    inner: Rc<dyn BlockDevice>,
    control: FaultControl,
    runtime: Runtime,
}

impl FaultDevice {
    pub fn new(inner: Rc<dyn BlockDevice>, control: FaultControl, runtime: Runtime) -> Self {
        Self { inner, control, runtime }
    }

    async fn late(&self, after: Duration, request: Request) -> Outcome {
        self.runtime.sleep(after).await;
        self.inner.submit(request).await
    }

    async fn deny(&self, request: Request) -> Outcome {
        let range = request.range;
        self.inner.submit(request).await?;
        Err(DeviceError::new(self.name(), Cause::Media { range }))
    }

    async fn corrupt(&self, mut request: Request) -> Outcome {
        if request.kind == RequestKind::Write {
            let copy = crate::Buffer::from_slice(&request.buffers.to_vec());
            invert_first_byte(&copy);
            request.buffers = copy.into();
            return self.inner.submit(request).await;
        }
        let buffers = request.buffers.clone();
        self.inner.submit(request).await?;
        if let Some(first) = buffers.iter().next() {
            invert_first_byte(first);
        }
        Ok(())
    }
}

impl BlockDevice for FaultDevice {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let fails = |cause| Submission::ready(Err(DeviceError::new(self.name(), cause)));
        match self.control.draw(&request) {
            None => self.inner.submit(request),
            Some(Fault::Media | Fault::Latent) => fails(Cause::Media { range: request.range }),
            Some(Fault::Gone) => fails(Cause::Gone),
            Some(Fault::NoSpace) => fails(Cause::NoSpace),
            Some(Fault::Hang) => Submission::pending(std::future::pending()),
            Some(Fault::Delay(after)) => Submission::pending(self.late(after, request)),
            Some(Fault::Corrupt) => Submission::pending(self.corrupt(request)),
            Some(Fault::Lose) if request.kind == RequestKind::Write => Submission::ready(Ok(())),
            Some(Fault::Lose) => self.inner.submit(request),
            Some(Fault::Deny) => Submission::pending(self.deny(request)),
        }
    }
}

fn invert_first_byte(buffer: &crate::Buffer) {
    let mut byte = [0];
    buffer.copy_to(&mut byte);
    buffer.copy_from(&[!byte[0]]);
}
