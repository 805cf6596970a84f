//! One connection from its first byte to its last.

use super::handshake::{Agreement, Denial, Handshake, HangUp, Next};
use super::serving::Serving;
use super::stats::ConnectionReport;
use super::stats::ConnectionStats;
use super::transmission::{TransmissionError, drain, serve_requests};
use super::{Shared, export::Export};
use crate::link::{InFlightLimits, Link, SendQueue, Transfers};
use headpond_block::{Buffers, Instant, Stream};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// The shared handle of a connection.
pub struct Connection {
    pub stream: Rc<dyn Stream>,
    pub queue: Rc<SendQueue>,
    pub stats: Rc<ConnectionStats>,
    standing: Cell<Standing>,
    /// When the handshake ended.
    established: Cell<Option<Instant>>,
    /// The peer's progress when last checked, and since when it has not changed.
    progress: Cell<(Transfers, Instant)>,
}

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Served,
    /// All places are in use: the client is only refused.
    TurnedAway,
    /// It is being replaced by another one.
    GaveWay,
}

/// Why a connection was closed by the server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("handshake: {0}")]
    HangUp(#[from] HangUp),
    #[error("the client disconnected during the handshake")]
    LeftEarly,
    #[error("handshake: {0}")]
    Stream(#[from] io::Error),
    #[error("export {0:?} was removed during the handshake")]
    ExportGone(String),
    #[error(transparent)]
    Transmission(#[from] TransmissionError),
}

impl Connection {
    pub fn new(stream: Rc<dyn Stream>, standing: Standing, shared: &Shared) -> Self {
        let now = shared.runtime.now();
        let limits = &shared.limits;
        let (requests_max, bytes_max) = (limits.in_flight_requests_max, limits.in_flight_bytes_max);
        let in_flight = InFlightLimits { requests_max, bytes_max };
        let (memory, pool) = (Rc::clone(&shared.memory), shared.pool.clone());
        let queue = Rc::new(SendQueue::new(in_flight, memory, pool));
        let stats = Rc::new(ConnectionStats::new(stream.peer(), now));
        let (standing, established) = (Cell::new(standing), Cell::new(None));
        let progress = Cell::new((Transfers::default(), now));
        Self { stream, queue, stats, standing, established, progress }
    }

    pub fn standing(&self) -> Standing {
        self.standing.get()
    }

    pub fn is_established(&self) -> bool {
        self.established.get().is_some()
    }

    /// Whether the client has sent no request for so long since the handshake.
    pub fn is_unused(&self, now: Instant, time: Duration) -> bool {
        let is_old = self.established.get().is_some_and(|since| now.since(since) >= time);
        is_old && self.stats.totals().requests == 0
    }

    /// Whether a transfer to or from the client has made no progress for so long.
    pub fn has_stalled(&self, now: Instant, time: Duration) -> bool {
        let transfers = self.queue.transfers();
        let (seen, since) = self.progress.get();
        if transfers != seen || transfers.begun == transfers.ended {
            self.progress.set((transfers, now));
            return false;
        }
        self.queue.in_flight_bytes() > 0 && now.since(since) >= time
    }

    /// Ends a connection that is replaced by another one.
    pub fn give_way(&self) {
        self.standing.set(Standing::GaveWay);
        self.cut_off();
    }

    /// Ends the connection, without waiting for transfers to the client.
    pub fn cut_off(&self) {
        self.queue.break_off();
        self.stream.shutdown();
    }

    pub fn report(&self, now: Instant) -> ConnectionReport {
        self.stats.report(now, self.queue.in_flight(), self.queue.in_flight_bytes())
    }

    /// Serves the client until one side ends the connection, and completes everything in flight.
    ///
    /// # Errors
    /// Why the connection ended other than by a disconnect.
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
        let agreement = self.shake_hands(link, shared).await?;
        let export = shared.exports.get(&agreement.export);
        let export = export.ok_or_else(|| ConnectionError::ExportGone(agreement.export.clone()))?;
        link.set_deadline(None);
        self.established.set(Some(shared.runtime.now()));
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

    /// Feeds the handshake machine from the link until it has a result.
    async fn shake_hands(
        &self,
        link: &mut Link<'_>,
        shared: &Shared,
    ) -> Result<Agreement, ConnectionError> {
        let mut out = Vec::new();
        let mut machine = Handshake::new(shared.limits, &mut out);
        loop {
            let mut input = vec![0; link.available().min(machine.wanted_bytes())];
            link.peek(&mut input);
            let infos = shared.exports.infos();
            let exports = self.denial(shared).map_or(Ok(&infos[..]), Err);
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

    /// Why the client will not be served, if so.
    fn denial(&self, shared: &Shared) -> Option<Denial> {
        match self.standing() {
            _ if shared.is_stopping() => Some(Denial::ShuttingDown),
            Standing::TurnedAway => {
                Some(Denial::Full { connections: shared.limits.connections_max })
            }
            Standing::Served | Standing::GaveWay => None,
        }
    }
}

/// Whether the stream can no longer carry replies.
fn is_lost(outcome: &Result<(), ConnectionError>) -> bool {
    matches!(
        outcome,
        Err(ConnectionError::Stream(_)
            | ConnectionError::Transmission(
                TransmissionError::Stream(_) | TransmissionError::Left
            ))
    )
}
