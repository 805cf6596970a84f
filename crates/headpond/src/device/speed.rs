//! The read rate of a device, measured by reading it briefly. Nothing is written.

use headpond_block::{BlockDevice, Buffer, DeviceError, Request, Runtime};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Long enough to use up a drive's readahead.
const TIME: Duration = Duration::from_millis(500);
const REQUEST_BYTES: u64 = 1 << 20;
const IN_FLIGHT: usize = 8;

/// 10^6 bytes a second of sequential reads from the start of a device, several in flight.
///
/// # Errors
/// Where it cannot be read.
pub async fn read_mb_per_s(
    device: &Rc<dyn BlockDevice>,
    runtime: &Runtime,
) -> Result<f64, DeviceError> {
    let begun = runtime.now();
    let (next, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0_u64)));
    let requests = (device.geometry().size_bytes / REQUEST_BYTES).max(1);
    let bytes = REQUEST_BYTES.min(device.geometry().size_bytes);
    let reader = |_| {
        let (device, runtime) = (Rc::clone(device), runtime.clone());
        let (next, done) = (Rc::clone(&next), Rc::clone(&done));
        runtime.clone().spawn(async move {
            let memory = Buffer::zeroed(bytes as usize);
            while runtime.now().since(begun) < TIME {
                let number = next.replace((next.get() + 1) % requests);
                device.submit(Request::read(number * REQUEST_BYTES, &memory)).await?;
                done.set(done.get() + bytes);
            }
            Ok(())
        })
    };
    let readers: Vec<_> = (0..IN_FLIGHT).map(reader).collect();
    for reader in readers {
        reader.await?;
    }
    Ok(done.get() as f64 / 1e6 / runtime.now().since(begun).as_secs_f64())
}
