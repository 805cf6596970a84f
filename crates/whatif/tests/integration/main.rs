//! Replays on modelled machines; one program, so that it is linked once and all
//! tests share the processors.

mod bypass;
mod engine;
mod fit;
mod plan;
mod readahead;
mod reference;
mod replay;
mod simulate;
mod small_cache;
mod stacks;
mod starving;
