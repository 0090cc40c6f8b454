//! Pictures and pages in SVG and HTML, which stand by themselves.
//!
//! ```text
//! chart    bars and traces of measured figures
//! letters  words cut to the room there is
//! svg      marks and words, in the colours of light and dark
//! page     a page around them: title, sections, tables
//! ```
//!
//! Pages fetch nothing and run no script. Pictures are 400 units wide, so that their text can be
//! read on a phone; colours are classes, which one style sheet defines for all pictures of a page.
#![forbid(unsafe_code)]

pub mod chart;
mod page;
mod svg;
mod text_width;

pub use page::{Page, Table};
pub use svg::{Point, STYLE, Svg, WIDTH, escape};
