//! The judge and the witness of the field; one program, so that it is linked once and all
//! tests share the processors.

mod announcements;
mod common;
mod every_world;
mod field;
mod hostile;
mod probe;
mod subject;
