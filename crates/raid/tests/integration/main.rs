//! Arrays as their users assemble them; one program, so that it is linked once and all tests share
//! the processors.

mod copies;
mod deadlines;
mod declustered;
mod equalised;
mod failures;
mod forced;
mod histories;
mod images;
mod integrity;
mod integrity_cuts;
mod interplay;
mod journal;
mod lives;
mod lost;
mod lost_cuts;
mod merge;
mod mirrors;
mod model;
mod reshape;
mod reshape_cuts;
mod returning;
mod scrub;
mod spares;
mod starts;
mod support;
mod suspect_parity;
mod verifier;
mod volume_record;
mod weighted;
