//! What a run says when it has ended; one program, so that it is linked once and all
//! tests share the processors.

mod carried_out;
mod conclusions;
mod maps;
mod periodic;
mod remarks;
mod stored;
