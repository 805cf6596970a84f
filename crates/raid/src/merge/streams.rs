//! Sequential streams of writes, and the depths of their clients.
//!
//! 1. A request that begins where another ended makes a young run; the third of a run makes a
//!    stream. Requests of a stream may arrive somewhat out of order.
//! 2. The bytes of a stream in flight are counted; their recent maximum is the depth of its client,
//!    its *reach*.
//! 3. The part of the reach that is not in flight can arrive now; writes in progress will complete,
//!    and the client can send as much again. So far a stripe can still grow.
//!
//! **Invariants**: only requests in flight complete, and held ones are in flight.
//! **Source**: our own. The runs follow the volume's stream recognition, at the little cost that a
//! random write allows.

use headpond_block::ByteRange;

/// Ends of recent requests that nothing has continued yet.
const YOUNG_MAX: usize = 16;
const STREAMS_MAX: usize = 16;
/// The request of a run that makes it a stream.
const GROWN_REQUESTS: u32 = 3;
/// After so many requests, what was in flight before the last as many is forgotten.
const WINDOW_REQUESTS: u32 = 64;

/// A stream, as long as it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId {
    place: usize,
    number: u64,
}

/// The streams of one array.
pub struct Streams {
    /// How far out of order a request still belongs to a stream, in bytes.
    tolerance_bytes: u64,
    young_ends: [u64; YOUNG_MAX],
    young_requests: [u32; YOUNG_MAX],
    young_next: usize,
    streams: Vec<Stream>,
    clock: u64,
}

struct Stream {
    number: u64,
    /// Where its furthest request ended.
    end: u64,
    in_flight_bytes: u64,
    /// Of those, what waits for others.
    held_bytes: u64,
    reach: Reach,
    seen_at: u64,
}

/// The recent maximum in flight.
struct Reach {
    /// In this window and the one before.
    bytes: u64,
    /// In this one.
    window_bytes: u64,
    requests: u32,
}

impl Streams {
    pub fn new(tolerance_bytes: u64) -> Self {
        Self {
            tolerance_bytes,
            young_ends: [u64::MAX; YOUNG_MAX],
            young_requests: [0; YOUNG_MAX],
            young_next: 0,
            streams: Vec::new(),
            clock: 0,
        }
    }

    /// The stream that a write belongs to, which is in flight from now on.
    pub fn arrived(&mut self, range: ByteRange) -> Option<StreamId> {
        let place = self.find(range).or_else(|| self.grow(range))?;
        self.clock += 1;
        let stream = &mut self.streams[place];
        stream.seen_at = self.clock;
        stream.end = stream.end.max(range.end());
        stream.in_flight_bytes += range.len();
        stream.reach.note(stream.in_flight_bytes);
        Some(StreamId { place, number: stream.number })
    }

    /// A write of a stream is no longer in flight.
    pub fn answered(&mut self, id: StreamId, bytes: u64) {
        if let Some(stream) = self.get(id) {
            assert!(stream.in_flight_bytes >= bytes, "answered is what was in flight");
            stream.in_flight_bytes -= bytes;
        }
    }

    /// Writes of a stream wait for others.
    pub fn held(&mut self, id: StreamId, bytes: u64) {
        if let Some(stream) = self.get(id) {
            stream.held_bytes += bytes;
        }
    }

    /// Writes that waited are being written.
    pub fn released(&mut self, id: StreamId, bytes: u64) {
        if let Some(stream) = self.get(id) {
            assert!(stream.held_bytes >= bytes, "released is what was held");
            stream.held_bytes -= bytes;
        }
    }

    /// What can come of a stripe that lacks so many bytes.
    pub fn outlook(&self, id: StreamId, missing_bytes: u64) -> Outlook {
        let Some(stream) = self.streams.get(id.place).filter(|it| it.number == id.number) else {
            return Outlook::Nothing;
        };
        let at_once = stream.reach.bytes.saturating_sub(stream.in_flight_bytes);
        let later = stream.in_flight_bytes.saturating_sub(stream.held_bytes);
        match missing_bytes {
            0 => Outlook::Nothing,
            _ if at_once > 0 => Outlook::AtOnce,
            _ if missing_bytes <= later => Outlook::AfterAnswers,
            _ => Outlook::Nothing,
        }
    }

    /// Nothing has come of what could: the client has no more in flight than this.
    pub fn waited_in_vain(&mut self, id: StreamId) {
        if let Some(stream) = self.get(id) {
            let bytes = stream.in_flight_bytes;
            stream.reach = Reach { bytes, window_bytes: bytes, requests: 0 };
        }
    }

    /// Checks what is counted of each; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        assert!(self.streams.len() <= STREAMS_MAX, "so many are followed and no more");
        for (at, stream) in self.streams.iter().enumerate() {
            let Stream { number, in_flight_bytes, held_bytes, ref reach, seen_at, .. } = *stream;
            assert!(held_bytes <= in_flight_bytes, "held is what is in flight");
            assert!(in_flight_bytes <= reach.bytes, "all that is in flight is within reach");
            assert!(number <= seen_at && seen_at <= self.clock, "a stream that is to come");
            let is_another = |other: &Stream| other.number != number;
            assert!(self.streams[..at].iter().all(is_another), "two streams of one number");
        }
    }

    /// What of a stream waits for others.
    pub fn held_bytes(&self, id: StreamId) -> u64 {
        let stream = self.streams.get(id.place).filter(|stream| stream.number == id.number);
        stream.map_or(0, |stream| stream.held_bytes)
    }

    fn get(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(id.place).filter(|stream| stream.number == id.number)
    }

    fn find(&self, range: ByteRange) -> Option<usize> {
        let near = |stream: &Stream| stream.end.abs_diff(range.start()) <= self.tolerance_bytes;
        self.streams.iter().position(near)
    }

    /// Lets the run that `range` continues grow, into a stream at last.
    fn grow(&mut self, range: ByteRange) -> Option<usize> {
        let before = self.young_ends.iter().position(|end| *end == range.start());
        let Some(at) = before else {
            let at = self.young_next;
            self.young_next = (at + 1) % YOUNG_MAX;
            (self.young_ends[at], self.young_requests[at]) = (range.end(), 1);
            return None;
        };
        self.young_ends[at] = range.end();
        self.young_requests[at] += 1;
        if self.young_requests[at] < GROWN_REQUESTS {
            return None;
        }
        let place = self.free_place()?;
        self.young_ends[at] = u64::MAX;
        self.clock += 1;
        let reach = Reach { bytes: 0, window_bytes: 0, requests: 0 };
        let (number, end) = (self.clock, range.end());
        let stream =
            Stream { number, end, in_flight_bytes: 0, held_bytes: 0, reach, seen_at: number };
        match self.streams.get_mut(place) {
            Some(old) => *old = stream,
            None => self.streams.push(stream),
        }
        Some(place)
    }

    /// A new place, or that of the idle stream that was silent longest.
    fn free_place(&self) -> Option<usize> {
        if self.streams.len() < STREAMS_MAX {
            return Some(self.streams.len());
        }
        let idle = self.streams.iter().enumerate().filter(|(_, it)| it.in_flight_bytes == 0);
        idle.min_by_key(|(_, stream)| stream.seen_at).map(|(place, _)| place)
    }
}

/// What may still come for a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing before what waits is answered.
    Nothing,
    /// The client has not sent yet what it can.
    AtOnce,
    /// The rest, once others of the stream have been answered.
    AfterAnswers,
}

impl Reach {
    fn note(&mut self, in_flight_bytes: u64) {
        self.window_bytes = self.window_bytes.max(in_flight_bytes);
        self.bytes = self.bytes.max(in_flight_bytes);
        self.requests += 1;
        if self.requests == WINDOW_REQUESTS {
            *self = Self { bytes: self.window_bytes, window_bytes: in_flight_bytes, requests: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};
    use proptest::prelude::*;

    const BLOCK: u64 = 4096;

    fn at(block: u64) -> ByteRange {
        ByteRange::at(block * BLOCK, BLOCK)
    }

    fn grown(streams: &mut Streams) -> StreamId {
        assert_eq!((streams.arrived(at(0)), streams.arrived(at(1))), (None, None));
        streams.arrived(at(2)).expect("the third in a row makes a stream")
    }

    #[test]
    fn check_notices_what_is_wrong_with_streams() {
        let make = || {
            let mut streams = Streams::new(16 * BLOCK);
            let id = grown(&mut streams);
            streams.held(id, BLOCK);
            streams
        };
        let breaks: [Break<Streams>; 4] = [
            ("held is what is in flight", |it| it.streams[0].held_bytes += 1),
            ("is within reach", |it| it.streams[0].in_flight_bytes += 1),
            ("a stream that is to come", |it| it.clock = 0),
            ("two streams of one number", |it| {
                let mut others = Streams::new(BLOCK);
                grown(&mut others);
                it.streams.append(&mut others.streams);
            }),
        ];
        assert_trips(make, Streams::self_check, &breaks);
    }

    #[test]
    fn random_requests_make_no_stream() {
        let mut streams = Streams::new(16 * BLOCK);
        let is_none = |number: u64| streams.arrived(at(number * 7919 % 100_003)).is_none();
        assert!((0..50_000).all(is_none));
    }

    #[test]
    fn a_request_out_of_order_belongs_to_its_stream() {
        let mut streams = Streams::new(16 * BLOCK);
        let id = grown(&mut streams);
        assert_eq!(streams.arrived(at(5)), Some(id));
        assert_eq!(streams.arrived(at(3)), Some(id));
        assert_eq!(streams.arrived(at(4)), Some(id));
        assert_eq!(streams.arrived(at(6)), Some(id));
        assert_eq!(streams.arrived(at(40)), None);
    }

    #[test]
    fn a_stream_that_was_displaced_is_forgotten_and_one_in_flight_is_not() {
        let mut streams = Streams::new(BLOCK);
        let first = grown(&mut streams);
        let others = |streams: &mut Streams, from: u64| {
            for stream in from..from + STREAMS_MAX as u64 + 1 {
                for block in 0..3 {
                    if let Some(id) = streams.arrived(at(stream * 1000 + block)) {
                        streams.answered(id, BLOCK);
                    }
                }
            }
        };
        others(&mut streams, 1);
        assert_eq!(streams.arrived(at(3)), Some(first), "in flight");
        streams.answered(first, 2 * BLOCK);
        others(&mut streams, 100);
        assert_eq!(streams.outlook(first, BLOCK), Outlook::Nothing);
        streams.answered(first, BLOCK);
        assert_eq!(streams.arrived(at(4)), None);
    }

    /// A stream as a list of what has happened to it.
    #[derive(Default)]
    struct Twin {
        /// Bytes of each request in flight, and whether it waits.
        in_flight: Vec<(u64, bool)>,
        /// What was in flight when each came, since the last wait in vain.
        arrivals: Vec<u64>,
        /// What was in flight then.
        at_vain: u64,
    }

    impl Twin {
        fn bytes(&self) -> u64 {
            self.in_flight.iter().map(|(bytes, _)| bytes).sum()
        }

        /// The most of this window and the one before, each with what it began with.
        fn reach(&self) -> u64 {
            let (count, window) = (self.arrivals.len(), WINDOW_REQUESTS as usize);
            let windows_done = count / window;
            let before = windows_done.saturating_sub(1) * window;
            let most = self.arrivals[before.saturating_sub(1)..].iter().max();
            let first = if before == 0 { self.at_vain } else { 0 };
            first.max(most.copied().unwrap_or(0))
        }

        fn outlook(&self, missing: u64) -> Outlook {
            let later: u64 =
                self.in_flight.iter().filter(|(_, waits)| !waits).map(|(bytes, _)| bytes).sum();
            if missing == 0 {
                Outlook::Nothing
            } else if self.reach() > self.bytes() {
                Outlook::AtOnce
            } else if missing <= later {
                Outlook::AfterAnswers
            } else {
                Outlook::Nothing
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn what_can_come_follows_from_all_that_has_happened(
            steps in prop::collection::vec((0_u8..20, any::<prop::sample::Index>(), 1_u64..9), 1..400),
            missing in prop::collection::vec(0_u64..100, 8),
        ) {
            let mut streams = Streams::new(1 << 20);
            let id = grown(&mut streams);
            streams.answered(id, BLOCK);
            let mut twin = Twin { arrivals: vec![BLOCK], ..Twin::default() };
            let mut next = 3 * BLOCK;
            for (kind, which, blocks) in steps {
                let is_any = !twin.in_flight.is_empty();
                match kind {
                    0..9 => {
                        let bytes = blocks * BLOCK;
                        prop_assert_eq!(streams.arrived(ByteRange::at(next, bytes)), Some(id));
                        next += bytes;
                        twin.in_flight.push((bytes, false));
                        twin.arrivals.push(twin.bytes());
                    }
                    9..15 if is_any => {
                        let at = which.index(twin.in_flight.len());
                        let (bytes, waits) = twin.in_flight.remove(at);
                        if waits {
                            streams.released(id, bytes);
                        }
                        streams.answered(id, bytes);
                    }
                    15..19 if is_any => {
                        let at = which.index(twin.in_flight.len());
                        let (bytes, waits) = &mut twin.in_flight[at];
                        match *waits {
                            true => streams.released(id, *bytes),
                            false => streams.held(id, *bytes),
                        }
                        *waits = !*waits;
                    }
                    19 => {
                        streams.waited_in_vain(id);
                        twin = Twin { at_vain: twin.bytes(), arrivals: Vec::new(), ..twin };
                    }
                    _ => {}
                }
                for missing in &missing {
                    let bytes = missing * BLOCK;
                    prop_assert_eq!(streams.outlook(id, bytes), twin.outlook(bytes));
                }
            }
        }
    }
}
