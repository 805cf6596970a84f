//! Records the workload of a served volume to a file, until stopped or as a short sample.

use crate::run_blocking::run_blocking;
use anyhow::{Context, Result, anyhow, bail};
use headpond_api::answers::{Recorded, RecordingStarted};
use headpond_api::requests::{RecordBody, SampleBody};
use headpond_block::Runtime;
use headpond_trace::{CaptureDevice, CaptureSummary, capture};
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Minimum length of a sample, and the interval of the check for its end.
const LOOKED_EVERY: Duration = Duration::from_millis(10);

/// At most one recording at a time.
pub struct Recording {
    device: Rc<CaptureDevice>,
    volume: String,
    active: RefCell<Option<Active>>,
}

struct Active {
    output: PathBuf,
    writer: JoinHandle<()>,
    ended: oneshot::Receiver<Result<CaptureSummary>>,
}

impl Recording {
    pub fn new(device: Rc<CaptureDevice>, volume: String) -> Self {
        Self { device, volume, active: RefCell::default() }
    }

    /// The output file of the active recording.
    pub fn output(&self) -> Option<PathBuf> {
        self.active.borrow().as_ref().map(|active| active.output.clone())
    }

    /// Records every request from now on.
    ///
    /// # Errors
    /// If a recording is active, or the file exists or cannot be created.
    pub async fn start(&self, RecordBody { output }: RecordBody) -> Result<RecordingStarted> {
        if let Some(other) = self.output() {
            bail!("a recording to {} is active: stop it first", other.display());
        }
        let path = output.clone();
        let create = move || {
            File::create_new(&path).with_context(|| format!("cannot record to {}", path.display()))
        };
        let file = run_blocking(create).await?;
        if let Some(other) = self.output() {
            bail!("a recording to {} was started concurrently: stop it first", other.display());
        }
        let (recorder, drain) = capture();
        let (tell, ended) = oneshot::channel();
        let volume = self.volume.clone();
        let writer = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let written = drain.run(BufWriter::new(file), &volume, begun.as_nanos() as u64);
            let finished = written.and_then(|(mut output, summary)| {
                output.flush()?;
                output.get_ref().sync_all()?;
                Ok(summary)
            });
            // The daemon may have ended.
            let _ = tell.send(finished.map_err(anyhow::Error::from));
        })?;
        self.device.start(recorder);
        *self.active.borrow_mut() = Some(Active { output: output.clone(), writer, ended });
        Ok(RecordingStarted { output })
    }

    /// Records a short sample: until the count or the time limit is reached.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Self::stop`].
    pub async fn look(&self, runtime: &Runtime, look: SampleBody) -> Result<Recorded> {
        let SampleBody { output, requests_max, milliseconds_max } = look;
        self.start(RecordBody { output }).await?;
        let end = runtime.now() + Duration::from_millis(milliseconds_max);
        let is_enough = || self.device.noted() >= requests_max;
        while runtime.now() < end && self.device.is_recording() && !is_enough() {
            runtime.sleep(LOOKED_EVERY).await;
        }
        self.stop().await
    }

    /// Ends the recording and waits until the file is complete.
    ///
    /// # Errors
    /// Where there is none, or it could not be written.
    pub async fn stop(&self) -> Result<Recorded> {
        let active = self.active.borrow_mut().take();
        let active = active.context("no recording is active")?;
        self.device.stop();
        let ended =
            active.ended.await.map_err(|_| anyhow!("the recorder ended without a result"))?;
        active.writer.join().map_err(|_| anyhow!("the recorder failed"))?;
        let ended = ended.with_context(|| format!("recording to {}", active.output.display()));
        ended.map(|CaptureSummary { records, dropped }| Recorded { records, dropped })
    }
}
