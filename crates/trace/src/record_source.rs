//! The interface of every format's reader: records in batches, and counts.

use crate::error::TraceError;
use crate::format::Lacks;
use crate::names::Names;
use crate::record::TraceRecord;
use crate::tally::Tally;

/// One format's reader.
pub(crate) trait RecordSource: Send {
    /// Adds the next records to `batch`, up to [`BATCH`](crate::event::BATCH) together, and says
    /// whether more may come. A call for each record would copy it several times.
    ///
    /// # Errors
    /// With the place; `batch` holds what came before, and nothing can be read after it.
    fn fill(&mut self, batch: &mut Vec<TraceRecord>) -> Result<bool, TraceError>;

    fn names(&self) -> &Names;
    fn tally(&self) -> Tally;

    /// What this trace lacks beyond its format.
    fn lacks(&self) -> Lacks {
        Lacks::empty()
    }
}
