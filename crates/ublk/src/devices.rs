//! The driver's devices: made, taken over, removed.
//!
//! Every method waits for the driver. One that shows or removes a block device waits for requests
//! of it, which are served on other threads.

use crate::features::{Features, Flags};
use crate::information::Information;
use crate::parameters::{Parameters, Shape};
use headpond_uring::ublk::{Control, ControlCommand, ControlError};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a device's node may take to come, and a server that was killed to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
const CHARACTER_DEVICES: &str = "/sys/class/ublk-char";

/// Why the driver did not do it.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(transparent)]
    Unavailable(#[from] ControlError),
    #[error("the ublk driver of this kernel is too old ({0}): Linux 6.5 or newer is needed")]
    TooOld(String),
    #[error("the ublk driver refuses to {what} ublk device {number}: {error}")]
    Refused { what: &'static str, number: u32, error: io::Error },
    #[error("{path} cannot be opened: {error}")]
    Node { path: String, error: io::Error },
}

/// The driver.
pub struct Devices {
    control: Control,
    features: Features,
}

impl Devices {
    /// # Errors
    /// Where there is no driver, or one that lacks what is needed.
    pub fn open() -> Result<Self, DriverError> {
        let mut control = Control::open()?;
        let mut bytes = [0; 8];
        let told = control.command(ControlCommand::Features, 0, 0, &mut bytes);
        told.map_err(|error| DriverError::TooOld(error.to_string()))?;
        let features = Features(Flags::from_bits_retain(u64::from_ne_bytes(bytes)));
        if !features.lacking().is_empty() {
            return Err(DriverError::TooOld(format!("it lacks {:?}", features.lacking())));
        }
        Ok(Self { control, features })
    }

    pub fn features(&self) -> Features {
        self.features
    }

    /// The numbers of all devices.
    pub fn numbers() -> Vec<u32> {
        let entries = fs::read_dir(CHARACTER_DEVICES).into_iter().flatten().flatten();
        let number =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok();
        let mut numbers: Vec<u32> = entries.filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// What a device is; none where there is none of this number.
    ///
    /// # Errors
    /// Where the driver does not tell.
    pub fn information(&mut self, number: u32) -> Result<Option<Information>, DriverError> {
        let mut bytes = [0; Information::BYTES];
        match self.control.command(ControlCommand::Information, number, 0, &mut bytes) {
            Ok(()) => Ok(Some(Information::decode(&bytes))),
            Err(error) if is(&error, Errno::NODEV) => Ok(None),
            Err(error) => Err(DriverError::Refused { what: "tell of", number, error }),
        }
    }

    /// Makes a device, of any number that is free where none is wished; it is not shown yet.
    ///
    /// # Errors
    /// Where the driver refuses.
    pub fn add(
        &mut self,
        number: Option<u32>,
        shape: &Shape,
        tag: u64,
        parameters: &Parameters,
    ) -> Result<Information, DriverError> {
        let flags = self.features.of_device();
        let shape = (shape.queues, shape.depth, shape.io_bytes_max);
        let wanted = Information::wanted(number, shape, flags, tag);
        let mut bytes = wanted.encode();
        self.order(ControlCommand::Add, "make", wanted.number, 0, &mut bytes)?;
        let made = Information::decode(&bytes);
        let set = self.order(
            ControlCommand::SetParameters,
            "set up",
            made.number,
            0,
            &mut parameters.encode(),
        );
        if let Err(error) = set {
            let _ = self.delete(made.number);
            return Err(error);
        }
        Ok(made)
    }

    /// Whether a device was made read-only.
    ///
    /// # Errors
    /// Where the driver does not tell.
    pub fn is_read_only(&mut self, number: u32) -> Result<bool, DriverError> {
        let mut bytes = [0; Parameters::BYTES];
        bytes[0..4].copy_from_slice(&(Parameters::BYTES as u32).to_ne_bytes());
        self.order(ControlCommand::Parameters, "look at", number, 0, &mut bytes)?;
        Ok(Parameters::are_read_only(&bytes))
    }

    /// The character device, once its node is there and nobody else has it open.
    ///
    /// # Errors
    /// Where that takes too long.
    pub fn character_device(number: u32) -> Result<OwnedFd, DriverError> {
        let path = format!("/dev/ublkc{number}");
        let begun = Instant::now();
        loop {
            match File::options().read(true).write(true).open(&path) {
                Ok(file) => return Ok(file.into()),
                // Its node is made by another process; a server that was killed is ending.
                Err(error) if begun.elapsed() < PATIENCE && is_passing(&error) => sleep(PAUSE),
                Err(error) => return Err(DriverError::Node { path, error }),
            }
        }
    }

    /// Shows the block device; ends when every tag was asked with.
    ///
    /// # Errors
    /// Where the driver refuses.
    pub fn start(&mut self, number: u32) -> Result<(), DriverError> {
        self.order(ControlCommand::Start, "start", number, this_process(), &mut [])
    }

    /// Begins to take over a device whose server is gone; waits for its end.
    ///
    /// # Errors
    /// Where the driver refuses.
    pub fn begin_recovery(&mut self, number: u32) -> Result<(), DriverError> {
        let begun = Instant::now();
        loop {
            match self.order(ControlCommand::StartRecovery, "take over", number, 0, &mut []) {
                Err(DriverError::Refused { error, .. })
                    if is(&error, Errno::BUSY) && begun.elapsed() < PATIENCE =>
                {
                    sleep(PAUSE);
                }
                ended => return ended,
            }
        }
    }

    /// Requests go on; ends when every tag was asked with.
    ///
    /// # Errors
    /// Where the driver refuses.
    pub fn end_recovery(&mut self, number: u32) -> Result<(), DriverError> {
        let process = this_process();
        self.order(ControlCommand::EndRecovery, "take over", number, process, &mut [])
    }

    /// # Errors
    /// Where the driver refuses, or cannot.
    pub fn resize(&mut self, number: u32, size_bytes: u64) -> Result<(), DriverError> {
        self.order(ControlCommand::UpdateSize, "resize", number, size_bytes / 512, &mut [])
    }

    /// Requests that come wait for the next server, and those of this one are answered, if that
    /// takes no longer than its users may wait. An error is not without effect: the device takes no
    /// more requests, and its server has to end.
    ///
    /// # Errors
    /// Where the driver refuses, or one takes longer.
    pub fn quiesce(&mut self, number: u32) -> Result<(), DriverError> {
        let time = PATIENCE.as_millis() as u64;
        self.order(ControlCommand::Quiesce, "quiesce", number, time, &mut [])
    }

    /// Removes the block device, when what is in flight is answered; requests without a server
    /// fail.
    ///
    /// # Errors
    /// Where the driver refuses.
    pub fn stop(&mut self, number: u32) -> Result<(), DriverError> {
        self.order(ControlCommand::Stop, "stop", number, 0, &mut [])
    }

    /// Frees the number as soon as nobody has the character device open. A ring of its server may
    /// keep it for a while (before Linux 6.13), which only older kernels wait for here.
    ///
    /// # Errors
    /// Where the driver refuses.
    pub fn delete(&mut self, number: u32) -> Result<(), DriverError> {
        match self.order(ControlCommand::DeleteLater, "remove", number, 0, &mut []) {
            Err(DriverError::Refused { error, .. })
                if is(&error, Errno::INVAL) || is(&error, Errno::OPNOTSUPP) =>
            {
                self.order(ControlCommand::Delete, "remove", number, 0, &mut [])
            }
            ended => ended,
        }
    }

    fn order(
        &mut self,
        command: ControlCommand,
        what: &'static str,
        number: u32,
        data: u64,
        buffer: &mut [u8],
    ) -> Result<(), DriverError> {
        let refused = |error| DriverError::Refused { what, number, error };
        self.control.command(command, number, data, buffer).map_err(refused)
    }
}

fn this_process() -> u64 {
    std::process::id().into()
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

fn is_passing(error: &io::Error) -> bool {
    is(error, Errno::NOENT) || is(error, Errno::BUSY)
}
