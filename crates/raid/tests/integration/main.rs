//! Arrays as whoever puts them together has them; one program, so that it is linked once and all
//! tests share the processors.

mod copies;
mod declustered;
mod doubts;
mod equalised;
mod failures;
mod forced;
mod growth;
mod growth_cuts;
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
mod patience;
mod returning;
mod scrub;
mod spares;
mod starts;
mod support;
mod voucher;
mod weighted;
