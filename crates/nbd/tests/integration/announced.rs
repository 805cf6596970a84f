//! What a device is told of requests that were received together.

use crate::common::{SIZE_BYTES, Stage};
use crate::raw::RawClient;
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, ByteRange, DeviceName, Geometry, Request, Submission};
use headpond_nbd::codec::request::RequestHeader;
use headpond_nbd::codec::wire::{Command, CommandFlags};
use headpond_nbd::limits::Limits;
use headpond_sim::run;
use std::cell::RefCell;
use std::rc::Rc;

/// Writes down what it is told.
struct Told {
    inner: RamDevice,
    batches: RefCell<Vec<Vec<ByteRange>>>,
}

impl BlockDevice for Told {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        self.inner.submit(request)
    }

    fn expect(&self, ranges: &[ByteRange]) {
        self.batches.borrow_mut().push(ranges.to_vec());
    }
}

fn header(command: Command, offset: u64, length_bytes: u32) -> RequestHeader {
    let flags = CommandFlags::empty();
    RequestHeader { flags, command: command.to_wire(), cookie: offset, offset, length_bytes }
}

#[test]
fn device_is_told_of_requests_that_arrive_together_and_of_no_others() {
    run(1, |runtime, sim| async move {
        let inner = RamDevice::new("ram", SIZE_BYTES);
        let told = Rc::new(Told { inner, batches: RefCell::default() });
        let stage = Stage::new(runtime, sim, told.clone(), Limits::default());
        let raw = RawClient::go(&stage).await;
        assert_eq!(raw.outcome(Command::Trim, 0, 4096).await, 0);
        let mut bytes = Vec::new();
        let requests = [
            header(Command::Read, 8192, 4096),
            header(Command::Write, 16384, 512),
            header(Command::Flush, 0, 0),
            header(Command::Read, SIZE_BYTES, 4096),
            header(Command::Read, u64::MAX - 511, 4096),
            header(Command::Write, 512, 512),
        ];
        for request in &requests {
            bytes.extend_from_slice(&request.encode());
            if request.command == Command::Write.to_wire() {
                bytes.extend_from_slice(&[7; 512]);
            }
        }
        raw.send(&bytes).await;
        // A flush has no answer to compare: of reads and writes there is a header each, and data.
        let answered = raw.receive(requests.len() * 16 + 4096).await;
        assert_eq!(answered.len(), requests.len() * 16 + 4096);
        let range = |offset, len| ByteRange::at(offset, len);
        let expected = [range(8192, 4096), range(16384, 512), range(512, 512)];
        let batches = told.batches.take().concat();
        // They may have arrived in pieces, and one alone is not announced.
        assert!(batches.len() > 1 && batches.iter().all(|it| expected.contains(it)), "{batches:?}");
    })
    .unwrap();
}
