//! One connection from its first byte to its last.

use super::handshake::{Agreement, Denial, Handshake, HangUp, Next};
use super::serving::Serving;
use super::stats::ConnectionReport;
use super::stats::ConnectionStats;
use super::threads::{Back, Load, Moving, ThreadHandle};
use super::transmission::{Ending, TransmissionError, drain, is_quiet_soon, serve_requests};
use super::{Shared, export::Export};
use crate::link::{InFlightLimits, Link, SendQueue, Transfers};
use headpond_block::channel::{Receiver, channel, mailbox};
use headpond_block::{Buffers, Instant, Stream};
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The shared handle of a connection.
pub struct Connection {
    pub stream: Rc<dyn Stream>,
    pub queue: Rc<SendQueue>,
    pub stats: Arc<ConnectionStats>,
    standing: Cell<Standing>,
    /// Terms without a handshake.
    agreed: Option<Agreement>,
    /// When the handshake ended.
    established: Cell<Option<Instant>>,
    /// The peer's progress when last checked, and since when it has not changed.
    progress: Cell<(Transfers, Instant)>,
    was_cut_off_for_memory: Cell<bool>,
    /// It has moved, and not returned.
    is_on_thread: Cell<bool>,
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
    #[error("the thread that served it has ended")]
    ThreadEnded,
}

impl Connection {
    pub fn new(stream: Rc<dyn Stream>, standing: Standing, shared: &Shared) -> Self {
        let stats = Arc::new(ConnectionStats::new(stream.peer(), shared.runtime.now()));
        Self::with_stats(stream, standing, stats, shared)
    }

    /// One that another thread has begun.
    pub fn adopted(stream: Rc<dyn Stream>, stats: Arc<ConnectionStats>, shared: &Shared) -> Self {
        Self::with_stats(stream, Standing::Served, stats, shared)
    }

    /// One whose client knows the terms already.
    pub fn agreed(stream: Rc<dyn Stream>, agreement: Agreement, shared: &Shared) -> Self {
        let agreed = Some(agreement);
        Self { agreed, ..Self::new(stream, Standing::Served, shared) }
    }

    fn with_stats(
        stream: Rc<dyn Stream>,
        standing: Standing,
        stats: Arc<ConnectionStats>,
        shared: &Shared,
    ) -> Self {
        let now = shared.runtime.now();
        let limits = &shared.limits;
        let (requests_max, bytes_max) = (limits.in_flight_requests_max, limits.in_flight_bytes_max);
        let in_flight = InFlightLimits { requests_max, bytes_max };
        let (memory, pool) = (Rc::clone(&shared.memory), shared.pool.clone());
        let queue = SendQueue::new(in_flight, memory, pool, Arc::clone(&stats.in_flight));
        let queue = Rc::new(queue);
        let (standing, established) = (Cell::new(standing), Cell::new(None));
        let progress = Cell::new((Transfers::default(), now));
        Self {
            stream,
            queue,
            stats,
            standing,
            agreed: None,
            established,
            progress,
            was_cut_off_for_memory: Cell::new(false),
            is_on_thread: Cell::new(false),
        }
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
        self.queue.in_flight().bytes() > 0 && now.since(since) >= time
    }

    /// Ends a connection that is replaced by another one.
    pub fn give_way(&self) {
        self.standing.set(Standing::GaveWay);
        self.cut_off();
    }

    /// Ends a connection whose client holds memory that others wait for.
    pub fn cut_off_for_memory(&self) {
        self.was_cut_off_for_memory.set(true);
        self.cut_off();
    }

    /// Ends the connection, without waiting for transfers to the client.
    pub fn cut_off(&self) {
        self.queue.break_off();
        self.stream.shutdown();
    }

    pub fn report(&self, now: Instant) -> ConnectionReport {
        self.stats.report(now, self.is_on_thread.get())
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
        self.finish(&mut link, is_lost(&outcome), shared).await;
        self.stream.shutdown();
        outcome
    }

    /// Completes everything in flight, and sends the replies where the stream can carry them.
    async fn finish(&self, link: &mut Link<'_>, is_lost: bool, shared: &Shared) {
        if is_lost {
            self.queue.break_off();
        }
        link.set_deadline(Some(shared.runtime.sleep(shared.limits.stop_time_max)));
        drain(link).await;
    }

    async fn shake_hands_and_serve(
        &self,
        link: &mut Link<'_>,
        shared: &Rc<Shared>,
    ) -> Result<(), ConnectionError> {
        let agreement = match &self.agreed {
            Some(agreement) => agreement.clone(),
            None => self.shake_hands(link, shared).await?,
        };
        let export = shared.exports.get(&agreement.export);
        let export = export.ok_or_else(|| ConnectionError::ExportGone(agreement.export.clone()))?;
        link.set_deadline(None);
        self.established.set(Some(shared.runtime.now()));
        self.stats.serves(&agreement.export);
        let serving = self.serving(shared, Rc::clone(&export), &agreement);
        let mut load = Load::beside_devices(shared.limits.moves);
        while serve_requests(link, &serving, shared, &mut load).await? == Ending::Moves {
            let Some(thread) = shared.thread_for_connection() else { continue };
            if !is_quiet_soon(link, &shared.runtime).await {
                load.be_slower();
                continue;
            }
            let moved = self.move_to(&thread, link, shared, (&export, &agreement, load.window()));
            let Some(back) = moved else {
                load.be_slower();
                continue;
            };
            self.is_on_thread.set(true);
            thread.connections.set(thread.connections.get() + 1);
            shared.closed.borrow_mut().moves += 1;
            let back = poll_fn(|context| back.poll_receive(context)).await;
            thread.connections.set(thread.connections.get() - 1);
            self.is_on_thread.set(false);
            match back {
                Some(Back::Returned { received, requests }) => {
                    link.put_received(&received);
                    load.returned(requests);
                }
                Some(Back::Ended { outcome, has_stalled }) => {
                    shared.closed.borrow_mut().stalled += u64::from(has_stalled);
                    return Ok(outcome?);
                }
                None => {
                    self.stats.in_flight.forget();
                    return Err(ConnectionError::ThreadEnded);
                }
            }
        }
        Ok(())
    }

    /// Hands the connection over, which has nothing in flight; what became of it comes back.
    /// Nothing where it stays.
    fn move_to(
        &self,
        thread: &ThreadHandle,
        link: &mut Link<'_>,
        shared: &Shared,
        (export, agreement, window): (&Export, &Agreement, u32),
    ) -> Option<Receiver<Back>> {
        let stream = self.stream.for_thread()?;
        let device = export.device();
        let places = shared.limits.in_flight_requests_max.next_power_of_two();
        let (client, end) = channel(device.geometry().clone(), places);
        let (sender, back) = mailbox(1);
        let moving = Moving {
            stream,
            received: link.take_received(),
            agreement: agreement.clone(),
            export: export.info().clone(),
            device: client,
            window,
            stats: Arc::clone(&self.stats),
            back: sender,
        };
        if let Err(moving) = thread.serve(Box::new(moving)) {
            link.put_received(&moving.received);
            return None;
        }
        drop(shared.runtime.spawn(end.serve(shared.runtime.clone(), Rc::clone(device))));
        Some(back)
    }

    /// Goes on with what another thread has begun, until the client leaves or is calm.
    pub async fn go_on(
        &self,
        shared: &Rc<Shared>,
        export: Rc<Export>,
        agreement: &Agreement,
        (received, mut load): (Vec<u8>, Load),
    ) -> Back {
        let before = self.stats.totals().requests;
        let queue = Rc::clone(&self.queue);
        let mut link = Link::new(&*self.stream, queue, shared.receive_pool.clone());
        link.put_received(&received);
        let serving = self.serving(shared, export, agreement);
        let outcome = loop {
            match serve_requests(&mut link, &serving, shared, &mut load).await {
                Ok(Ending::Moves) if is_quiet_soon(&mut link, &shared.runtime).await => {
                    let requests = self.stats.totals().requests - before;
                    return Back::Returned { received: link.take_received(), requests };
                }
                Ok(Ending::Moves) => load.be_slower(),
                Ok(Ending::Left) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let is_lost = outcome.as_ref().is_err_and(TransmissionError::is_lost);
        self.finish(&mut link, is_lost, shared).await;
        Back::Ended { outcome, has_stalled: self.was_cut_off_for_memory.get() }
    }

    fn serving(&self, shared: &Shared, export: Rc<Export>, agreement: &Agreement) -> Rc<Serving> {
        Rc::new(Serving {
            runtime: shared.runtime.clone(),
            pool: shared.pool.clone(),
            export,
            structured_replies: agreement.structured_replies,
            resends: agreement.resends,
            queue: Rc::clone(&self.queue),
            stats: Arc::clone(&self.stats),
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
    match outcome {
        Err(ConnectionError::Transmission(error)) => error.is_lost(),
        Err(error) => matches!(error, ConnectionError::Stream(_) | ConnectionError::ThreadEnded),
        Ok(()) => false,
    }
}
