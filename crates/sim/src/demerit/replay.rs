//! A closed loop of one request at a time.
//!
//! The next request is issued a pause after the *model's* completion, not after the measured one.
//! That keeps the spindle in step: a read ends where its last sector is, in the model as on the
//! drive, and the pause from there is what was measured. On the measured clock the model's spindle
//! would drift away from the drive's within seconds.

use super::trace::{MeasuredRequest, Operation};
use crate::Machine;
use crate::hdd::{Command, CommandKind, Drive, HddModel};
use headpond_block::{ByteRange, Instant};
use std::rc::Rc;

const SECTOR_BYTES: u64 = 512;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReplayError {
    #[error("request {number} ends at sector {end}, and the drive has {sectors}")]
    BeyondTheDrive { number: usize, end: u64, sectors: u64 },
}

/// The service time of each request on a drive of `model`, in milliseconds.
///
/// # Errors
/// Where a request lies outside the drive.
pub fn replay(
    model: &Rc<HddModel>,
    requests: impl IntoIterator<Item = MeasuredRequest>,
) -> Result<Vec<f64>, ReplayError> {
    let mut drive = Drive::new(model.clone(), 0);
    let sectors = model.size_bytes() / SECTOR_BYTES;
    let mut issued = Instant::START;
    let mut service = Vec::new();
    for (number, request) in (1..).zip(requests) {
        let end = request.first_sector.saturating_add(request.sectors);
        if end > sectors {
            return Err(ReplayError::BeyondTheDrive { number, end, sectors });
        }
        let completed = serve(&mut drive, issued, &request);
        service.push(completed.since(issued).as_nanos() as f64 / 1e6);
        issued = completed + request.pause;
    }
    Ok(service)
}

fn serve(drive: &mut Drive, issued: Instant, request: &MeasuredRequest) -> Instant {
    let kind = match request.operation {
        Operation::Read => CommandKind::Read,
        Operation::Write => CommandKind::Write,
    };
    let (start, len) = (request.first_sector * SECTOR_BYTES, request.sectors * SECTOR_BYTES);
    let tag = drive.submit(issued, Command { kind, range: ByteRange::at(start, len) });
    loop {
        let look = drive.next_answer().expect("a command waits");
        if let Some(answer) = drive.take_answer(look) {
            assert_eq!(answer.tag, tag, "one command at a time");
            return answer.at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(first_sector: u64) -> MeasuredRequest {
        let pause = Duration::from_millis(3);
        MeasuredRequest { operation: Operation::Read, first_sector, sectors: 8, pause }
    }

    #[test]
    fn a_read_of_the_same_place_hits_and_one_elsewhere_moves_the_arm() {
        let model = Rc::new(HddModel::builtin("hdd-7k2-4t").unwrap());
        let service = replay(&model, [read(800), read(800), read(4_000_000_000)]).unwrap();
        assert!(service[1] < 0.5, "{service:?}");
        assert!(service[2] > 5.0, "{service:?}");
    }

    #[test]
    fn a_request_beyond_the_drive_is_refused_by_number() {
        let model = Rc::new(HddModel::builtin("hdd-7k2-4t").unwrap());
        let error = replay(&model, [read(0), read(u64::MAX)]).unwrap_err();
        assert!(matches!(error, ReplayError::BeyondTheDrive { number: 2, .. }), "{error}");
    }
}
