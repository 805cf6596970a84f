//! What those commands take that have no folder of their own.

mod advice;
mod reading;
mod simulate;
mod volume;

pub use advice::{AdviseArgs, AnalyzeArgs, EffortChoice, MergeArgs, TellingArgs};
pub use reading::ReadArgs;
pub use simulate::{FitChoice, SimulateArgs};
pub use volume::{
    ArrayArgs, AttachArgs, ClearArgs, CreateArgs, DescribeArgs, DestroyArgs, DetachArgs,
    EventsArgs, FlushArgs, FoundArgs, ImportArgs, LogArgs, MetricsArgs, ProbeArgs, ScanArgs,
    ServeArgs, SetArgs, SetWord, StatsArgs, StatusArgs, StopArgs, StripingWord,
};
