//! The steps in which a signature is drawn, for whoever wants to know what each takes.

/// A step; all of a batch of requests go through one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Parts of one request are joined, and requests gathered.
    Gather,
    /// Depth over all streams together.
    Depth,
    /// Gaps, and requests in windows of time.
    Arrivals,
    /// Sizes, alignment and seeks.
    Placement,
    HeatMap,
    /// Extents that are written most.
    HotSpots,
    /// Blocks are hashed, and counted where they are different.
    WorkingSet,
    /// Miss-ratio curves, and times between accesses to a block.
    Reuse,
    /// Caches in miniature.
    Policies,
    /// Sequential runs are found.
    Runs,
    /// Streams and their phases are summed up.
    Streams,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 11] = [
        Step::Gather,
        Step::Depth,
        Step::Arrivals,
        Step::Placement,
        Step::HeatMap,
        Step::HotSpots,
        Step::WorkingSet,
        Step::Reuse,
        Step::Policies,
        Step::Runs,
        Step::Streams,
    ];

    /// The words for it.
    pub fn words(self) -> &'static str {
        match self {
            Step::Gather => "gather",
            Step::Depth => "depth",
            Step::Arrivals => "arrivals",
            Step::Placement => "placement",
            Step::HeatMap => "heat map",
            Step::HotSpots => "hot spots",
            Step::WorkingSet => "working set",
            Step::Reuse => "reuse",
            Step::Policies => "policies",
            Step::Runs => "runs",
            Step::Streams => "streams",
        }
    }
}
