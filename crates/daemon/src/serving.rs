//! The loop of the data thread: listeners, and commands as they come, until a stop is over.

use super::command::Message;
use super::control::Control;
use super::service::ControlService;
use anyhow::Result;
use headpond_api::outcome::Exit;
use headpond_block::{BlockDevice, Listener};
use std::io::Write;
use std::rc::Rc;
use tokio::sync::mpsc;

/// State of the data thread.
pub struct Data {
    pub service: Rc<ControlService>,
    pub control: Control,
    pub messages: mpsc::Receiver<Message>,
}

impl Data {
    /// Serves until a stop is over.
    ///
    /// # Errors
    /// What was not shut down cleanly.
    pub async fn serve(self) -> Result<Exit> {
        let Self { service, control, mut messages } = self;
        let runtime = service.runtime.clone();
        service.listeners.iter().for_each(|listener| serve_at(&service, listener));
        service.notifier.ready(&serving_line(&service));
        while let Some(Message { command, permit }) = service.next(&mut messages).await {
            let service = Rc::clone(&service);
            drop(runtime.spawn(async move {
                service.execute(command).await;
                drop(permit);
            }));
        }
        // Commands that arrive now are refused; those in progress may complete.
        drop(messages);
        // While the control thread still handles signals.
        service.files.written().await;
        control.stop(&runtime).await?;
        service.outcome()
    }
}

fn serving_line(service: &ControlService) -> String {
    let addresses: Vec<String> = service.listeners.iter().map(|it| it.address()).collect();
    format!("serving at {}", addresses.join(", "))
}

fn serve_at(service: &ControlService, listener: &Rc<dyn Listener>) {
    // The reader of the output may be gone.
    let _ =
        writeln!(std::io::stdout(), "serving {} at {}", service.volume.name(), listener.address());
    let (server, listener) = (Rc::clone(&service.server), Rc::clone(listener));
    drop(service.runtime.spawn(async move {
        if let Err(error) = server.serve(listener).await {
            tracing::error!("a listener ended: {error}");
        }
    }));
}
