//! A signal ends a run cleanly: load generators end with it, settings are restored, and results are
//! kept. A second signal does not wait for that.

use anyhow::Result;
use headpond_api::outcome::Exit;
use headpond_lab::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The first signal ends the run, the second this program.
///
/// # Errors
/// Where no signals can be waited for.
pub fn ends(stop: Stop) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let mut signals = Signals([
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ]);
    drop(guard);
    std::thread::spawn(move || {
        runtime.block_on(async {
            signals.next().await;
            eprintln!("headpond: ending; a second signal does not wait for the round under way");
            stop.ask();
            signals.next().await;
            std::process::exit(Exit::Error as i32);
        });
    });
    Ok(())
}

struct Signals([Signal; 3]);

impl Signals {
    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            _ = hangup.recv() => (),
        }
    }
}
