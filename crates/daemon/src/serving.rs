//! The loop of the data thread: listeners, and wishes one after the other, until a stop is over.

use super::control::Control;
use super::desk::Desk;
use super::message::Message;
use anyhow::Result;
use headpond_api::outcome::Exit;
use headpond_block::{BlockDevice, Listener};
use std::io::Write;
use std::rc::Rc;
use tokio::sync::mpsc;

/// Everything the data thread owns.
pub struct Data {
    pub desk: Rc<Desk>,
    pub control: Control,
    pub messages: mpsc::Receiver<Message>,
}

impl Data {
    /// Serves until a stop is over.
    ///
    /// # Errors
    /// What was not shut down cleanly.
    pub async fn serve(self) -> Result<Exit> {
        let Self { desk, control, mut messages } = self;
        let runtime = desk.runtime.clone();
        desk.listeners.iter().for_each(|listener| serve_at(&desk, listener));
        while let Some(Message { wish, reply, place }) = desk.next(&mut messages).await {
            let desk = Rc::clone(&desk);
            drop(runtime.spawn(async move {
                // Who has gone away meanwhile does not want to know.
                let _ = reply.send(desk.grant(wish).await);
                drop(place);
            }));
        }
        // Who asked something meanwhile is told that there is nobody any more; what was granted
        // before may still come to its end.
        drop(messages);
        // While the control thread still heeds signals.
        desk.files.written().await;
        control.stop(&runtime).await?;
        desk.outcome()
    }
}

fn serve_at(desk: &Desk, listener: &Rc<dyn Listener>) {
    // Who started it may read it no more.
    let _ = writeln!(std::io::stdout(), "serving {} at {}", desk.volume.name(), listener.address());
    let (server, listener) = (Rc::clone(&desk.server), Rc::clone(listener));
    drop(desk.runtime.spawn(async move {
        if let Err(error) = server.serve(listener).await {
            eprintln!("headpond: error: a listener ended: {error}");
        }
    }));
}
