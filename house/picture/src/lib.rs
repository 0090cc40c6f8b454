//! Pictures and pages in SVG and HTML, without other files.
//!
//! ```text
//! chart       bars and traces of measured figures
//! text_width  text cut to a width
//! svg         marks and text, for light and dark screens
//! page        a page around them: title, sections, tables
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
