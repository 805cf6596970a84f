//! One connection from its first byte to its last.

use super::handshake::{Agreement, Handshake, HangUp, Next};
use super::serving::Serving;
use super::stats::ConnectionStats;
use super::transmission::{TransmissionError, drain, serve_requests};
use super::{Shared, export::Export};
use crate::link::{InFlightLimits, Link, SendQueue};
use headpond_block::{Buffers, Stream};
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// What others may know of and do to a connection.
pub struct Connection {
    pub stream: Rc<dyn Stream>,
    pub queue: Rc<SendQueue>,
    pub stats: Rc<ConnectionStats>,
    /// Set when the handshake is over.
    is_established: Cell<bool>,
}

/// Why a connection was closed by the server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("handshake: {0}")]
    HangUp(#[from] HangUp),
    #[error("handshake: the client left before its end")]
    LeftEarly,
    #[error("handshake: {0}")]
    Stream(#[from] io::Error),
    #[error("export {0:?} went away during the handshake")]
    ExportGone(String),
    #[error(transparent)]
    Transmission(#[from] TransmissionError),
}

impl Connection {
    pub fn new(stream: Rc<dyn Stream>, shared: &Shared) -> Self {
        let limits = &shared.limits;
        let (requests_max, bytes_max) = (limits.in_flight_requests_max, limits.in_flight_bytes_max);
        let in_flight = InFlightLimits { requests_max, bytes_max };
        let queue = Rc::new(SendQueue::new(in_flight, shared.pool.clone()));
        let stats = Rc::new(ConnectionStats::new(stream.peer()));
        Self { stream, queue, stats, is_established: Cell::new(false) }
    }

    pub fn is_established(&self) -> bool {
        self.is_established.get()
    }

    /// Serves the client until one side has enough, and lets everything in flight come to its end.
    ///
    /// # Errors
    /// Why the connection did not end by the client's wish.
    pub async fn run(self: &Rc<Self>, shared: &Rc<Shared>) -> Result<(), ConnectionError> {
        let queue = Rc::clone(&self.queue);
        let mut link = Link::new(&*self.stream, queue, shared.receive_pool.clone());
        link.set_deadline(Some(shared.runtime.sleep(shared.limits.handshake_time_max)));
        let outcome = self.shake_hands_and_serve(&mut link, shared).await;
        if is_lost(&outcome) {
            self.queue.break_off();
        }
        link.set_deadline(Some(shared.runtime.sleep(shared.limits.stop_time_max)));
        drain(&mut link).await;
        self.stream.shutdown();
        outcome
    }

    async fn shake_hands_and_serve(
        &self,
        link: &mut Link<'_>,
        shared: &Rc<Shared>,
    ) -> Result<(), ConnectionError> {
        let agreement = shake_hands(link, shared).await?;
        let export = shared.exports.get(&agreement.export);
        let export = export.ok_or_else(|| ConnectionError::ExportGone(agreement.export.clone()))?;
        link.set_deadline(None);
        self.is_established.set(true);
        self.stats.serves(&agreement.export);
        let serving = self.serving(shared, export, &agreement);
        serve_requests(link, &serving, shared).await?;
        Ok(())
    }

    fn serving(&self, shared: &Shared, export: Rc<Export>, agreement: &Agreement) -> Rc<Serving> {
        Rc::new(Serving {
            runtime: shared.runtime.clone(),
            pool: shared.pool.clone(),
            export,
            structured_replies: agreement.structured_replies,
            queue: Rc::clone(&self.queue),
            stats: Rc::clone(&self.stats),
            refused: Cell::new(None),
        })
    }
}

/// Whether the stream is no longer fit to carry answers.
fn is_lost(outcome: &Result<(), ConnectionError>) -> bool {
    matches!(
        outcome,
        Err(ConnectionError::Stream(_)
            | ConnectionError::Transmission(TransmissionError::Stream(_)))
    )
}

/// Feeds the handshake machine from the link until it comes to a result.
async fn shake_hands(link: &mut Link<'_>, shared: &Shared) -> Result<Agreement, ConnectionError> {
    let mut out = Vec::new();
    let mut machine = Handshake::new(shared.limits, &mut out);
    loop {
        let mut input = vec![0; link.available().min(machine.wanted_bytes())];
        link.peek(&mut input);
        let infos = shared.exports.infos();
        let exports = (!shared.is_stopping()).then_some(&infos[..]);
        let step = machine.advance(&input, exports, &mut out);
        link.consume(step.consumed);
        if !out.is_empty() {
            link.queue().push(&out, &Buffers::new());
            out.clear();
        }
        match step.next {
            Next::Serve(agreement) => return Ok(agreement),
            Next::HangUp(reason) => return Err(reason.into()),
            Next::Continue => {}
        }
        let wanted = machine.wanted_bytes();
        if link.available() < wanted && !link.fill(wanted).await? {
            return Err(ConnectionError::LeftEarly);
        }
    }
}
