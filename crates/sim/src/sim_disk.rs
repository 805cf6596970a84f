//! A medium attached to a run: operations take time, end out of order, and stop when the power
//! does.

use crate::medium::{Data, Medium};
use crate::sparse::read_into;
use crate::{Power, Random, Sim};
use headpond_block::{
    BlockDevice, Buffers, ByteRange, Cause, DeviceError, DeviceName, Geometry, Outcome, Request,
    RequestKind, Runtime, SECTOR_BYTES, Submission,
};
use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

/// The times that operations take: drawn, so that they end out of order.
#[derive(Clone, Copy, Debug)]
pub struct OperationTime {
    pub shortest: Duration,
    pub longest: Duration,
}

impl OperationTime {
    /// Between 10 µs and 1 ms.
    pub const SOME: Self =
        Self { shortest: Duration::from_micros(10), longest: Duration::from_millis(1) };
}

/// A disk of one run over a medium that outlives it.
pub struct SimDisk {
    medium: Rc<Medium>,
    power: Power,
    runtime: Runtime,
    time: OperationTime,
    /// Of so many flushes one fails, and loses what it was to make durable.
    one_flush_fails_of: Option<u64>,
    /// A discard does nothing.
    keeps_discarded: bool,
    random: RefCell<Random>,
}

impl SimDisk {
    pub fn attach(
        medium: Rc<Medium>,
        power: &Power,
        runtime: &Runtime,
        sim: &Sim,
        time: OperationTime,
    ) -> Self {
        let random = RefCell::new(sim.random());
        let (power, runtime) = (power.clone(), runtime.clone());
        let (one_flush_fails_of, keeps_discarded) = (None, false);
        Self { medium, power, runtime, time, one_flush_fails_of, keeps_discarded, random }
    }

    /// What is discarded stays as it was, as on a disk that takes no discards.
    pub fn that_keeps_discarded(self) -> Self {
        Self { keeps_discarded: true, ..self }
    }

    /// Now and then a flush fails, one of so many: what had been written by then may be gone after
    /// a power cut, whatever is flushed later.
    pub fn with_failing_flushes(self, one_of: u64) -> Self {
        Self { one_flush_fails_of: Some(one_of), ..self }
    }

    async fn read(&self, request: Request) -> Outcome {
        self.take_time().await;
        read_into(&self.medium.current(), request.range.start(), &request.buffers);
        Ok(())
    }

    /// The caller's memory is read at once; what happens to it later is of no consequence.
    fn write(&self, request: Request) -> Submission<'_> {
        let begun = self.medium.begin_write(request.range, data(&request));
        self.power.note_write(self.medium.name());
        let is_fua = request.is_fua();
        Submission::pending(async move {
            self.take_time().await;
            self.medium.complete_write(begun);
            if is_fua {
                self.medium.complete_fua(begun);
            }
            Ok(())
        })
    }

    fn flush(&self) -> Submission<'_> {
        let begun = self.medium.begin_flush();
        let fails = self.one_flush_fails_of.is_some_and(|of| self.random.borrow_mut().one_in(of));
        Submission::pending(async move {
            self.take_time().await;
            if fails {
                self.medium.fail_flush(&mut self.random.borrow_mut());
                let range = ByteRange::at(0, SECTOR_BYTES);
                return Err(DeviceError::new(self.name(), Cause::Media { range }));
            }
            self.medium.complete_flush(begun);
            Ok(())
        })
    }

    /// Waits as long as an operation takes; for ever where the power goes meanwhile.
    async fn take_time(&self) {
        let time = self.random.borrow_mut().between(self.time.shortest, self.time.longest);
        self.runtime.sleep(time).await;
        if !self.power.is_on() {
            pending::<()>().await;
        }
    }
}

impl BlockDevice for SimDisk {
    fn name(&self) -> &DeviceName {
        self.medium.name()
    }

    fn geometry(&self) -> &Geometry {
        self.medium.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if let Err(error) = request.check(self.name(), self.geometry()) {
            return Submission::ready(Err(error));
        }
        if !self.power.begin_operation() {
            return Submission::pending(pending());
        }
        match request.kind {
            RequestKind::Read => Submission::pending(self.read(request)),
            RequestKind::Flush => self.flush(),
            RequestKind::Discard if self.keeps_discarded => Submission::ready(Ok(())),
            RequestKind::Write | RequestKind::WriteZeroes | RequestKind::Discard => {
                self.write(request)
            }
        }
    }
}

fn data(request: &Request) -> Data {
    match request.kind {
        RequestKind::Write => Data::Parts(parts_with_payload(&request.buffers)),
        _ => Data::Zeroes,
    }
}

/// What a write brings, and how far from its start.
fn parts_with_payload(buffers: &Buffers) -> Vec<(u64, Vec<u8>)> {
    let mut at = 0;
    let mut parts = Vec::with_capacity(buffers.count());
    for part in buffers.iter() {
        if !part.is_payload_free() {
            parts.push((at, part.to_vec()));
        }
        at += part.len() as u64;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::Buffer;

    #[test]
    fn what_a_failed_flush_has_lost_is_read_until_the_power_is_cut_and_no_flush_covers_it() {
        let lost = |seed| {
            let medium = Rc::new(Medium::flushable("disk", 1 << 20));
            let main = async |runtime: Runtime, sim: Sim| {
                let (power, time) = (Power::on(), OperationTime::SOME);
                let disk = SimDisk::attach(Rc::clone(&medium), &power, &runtime, &sim, time);
                let disk = disk.with_failing_flushes(2);
                disk.submit(Request::write(0, Buffer::from_slice(&[1; 512]))).await.unwrap();
                let has_failed = disk.submit(Request::flush()).await.is_err();
                assert_eq!(medium.peek(0, 1), [1]);
                while disk.submit(Request::flush()).await.is_err() {}
                has_failed
            };
            let has_failed = crate::run(seed, main).expect("no deadlock");
            medium.lose_power(&mut Random::new(seed));
            let is_lost = medium.peek(0, 1) == [0];
            assert!(has_failed || !is_lost);
            is_lost
        };
        assert!((0..16).any(lost));
    }

    #[test]
    fn a_write_keeps_the_parts_that_have_payload() {
        let medium = Rc::new(Medium::flushable("disk", 4096));
        let main = async |runtime: Runtime, sim: Sim| {
            let (power, time) = (Power::on(), OperationTime::SOME);
            let disk = SimDisk::attach(Rc::clone(&medium), &power, &runtime, &sim, time);
            disk.submit(Request::write(0, Buffer::from_slice(&[1; 1536]))).await.unwrap();
            let parts = [&[2; 512][..], &[3; 512]].map(Buffer::from_slice);
            let [first, last] = parts;
            let mixed: Buffers = [first, Buffer::payload_free(512), last].into_iter().collect();
            disk.submit(Request::write(0, mixed)).await.unwrap();
            disk.submit(Request::flush()).await.unwrap();
        };
        crate::run(1, main).expect("no deadlock");
        medium.lose_power(&mut Random::new(1));
        let bytes = medium.peek(0, 2048);
        assert_eq!([0, 512, 1024, 1536].map(|at| bytes[at]), [2, 1, 3, 0]);
    }
}
