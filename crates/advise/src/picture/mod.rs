//! A signature, and the advice drawn from it, as pictures: one page that needs nothing else, in the
//! light and in the dark, on a desk and on a phone.
//!
//! 1. `charts` says what is shown of a signature, `turning` what would change the answer of an
//!    advice. 2. `headpond-report` draws it; `heat` draws requests over time and address, `gains`
//!    puts bars beside the figures of a table. 3. `page` and `advice_page` put it together.
//!
//! **Not here**: text for a terminal (`render`).

mod advice_page;
mod charts;
mod courses;
mod gains;
mod heat;
mod page;
mod turning;

pub use advice_page::render_advice_page;
pub use page::{render_page, render_reuse_page};
