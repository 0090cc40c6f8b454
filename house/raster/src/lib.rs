//! Pictures as PNG: a heavy dependency, kept to itself.
//!
//! Two small fonts in the program give the letters, so that a picture looks the same on every
//! machine. The system's fonts are not used.
#![forbid(unsafe_code)]

use std::sync::{Arc, LazyLock};

use picture::Svg;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};
use thiserror::Error;

/// Letters: plain and bold.
const FONTS: [&[u8]; 2] =
    [include_bytes!("../fonts/DejaVuSans.ttf"), include_bytes!("../fonts/DejaVuSans-Bold.ttf")];
const FONT_FAMILY: &str = "DejaVu Sans";
/// Points of a picture at most: four bytes of memory each.
const MAX_PIXELS: u64 = 1 << 27;

/// Why a picture cannot be painted.
#[derive(Debug, Error)]
pub enum Error {
    /// It is not as SVG must be.
    #[error("the picture cannot be painted: {why}")]
    InvalidSvg {
        /// The error.
        why: String,
    },
    /// It would have more points than there is memory for.
    #[error("the picture is too large to be painted: {width} by {height} points")]
    TooLarge {
        /// Points from left to right.
        width: u32,
        /// Points from top to bottom.
        height: u32,
    },
}

static FONT_DATABASE: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut all = Database::new();
    for font in FONTS {
        all.load_font_data(font.to_vec());
    }
    all.set_sans_serif_family(FONT_FAMILY);
    Arc::new(all)
});

/// Paints a picture, each of its units as `scale` points, in its light colours.
pub fn render_png(svg: &Svg, scale: u16) -> Result<Vec<u8>, Error> {
    let broken = |error: String| Error::InvalidSvg { why: error };
    let options = Options {
        font_family: FONT_FAMILY.to_owned(),
        fontdb: Arc::clone(&FONT_DATABASE),
        ..Options::default()
    };
    let tree = Tree::from_str(&svg.to_plain_document(), &options)
        .map_err(|error| broken(error.to_string()))?;
    let size = tree.size().to_int_size();
    let scale = u32::from(scale.max(1));
    let width = size.width().saturating_mul(scale);
    let height = size.height().saturating_mul(scale);
    let too_large = Error::TooLarge { width, height };
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(too_large);
    }
    let mut points = Pixmap::new(width, height).ok_or(too_large)?;
    let scale = Transform::from_scale(to_f32(scale), to_f32(scale));
    resvg::render(&tree, scale, &mut points.as_mut());
    points.encode_png().map_err(|error| broken(error.to_string()))
}

fn to_f32(scale: u32) -> f32 {
    f32::from(u16::try_from(scale).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use picture::{Point, Svg};
    use resvg::tiny_skia::Pixmap;

    use super::render_png;

    fn render_and_count_colours(svg: &Svg) -> (Pixmap, usize) {
        let points = Pixmap::decode_png(&render_png(svg, 2).unwrap()).unwrap();
        let mut seen: Vec<_> =
            points.pixels().iter().map(|p| (p.red(), p.green(), p.blue())).collect();
        seen.sort_unstable();
        seen.dedup();
        (points, seen.len())
    }

    #[test]
    fn shapes_and_text_are_rendered() {
        let mut svg = Svg::new("test", 40.0);
        let (empty, one) = render_and_count_colours(&svg);
        assert_eq!((empty.width(), empty.height(), one), (800, 80, 1));
        let white = empty.pixel(5, 5).unwrap();
        assert_eq!((white.red(), white.green(), white.blue(), white.alpha()), (255, 255, 255, 255));
        svg.rect(Point(0.0, 0.0), Point(100.0, 20.0), "usable", 1.0, "");
        let (painted, _) = render_and_count_colours(&svg);
        let blue = painted.pixel(50, 20).unwrap();
        assert_eq!((blue.red(), blue.green(), blue.blue()), (0x2a, 0x78, 0xc2));
        svg.text(Point(200.0, 20.0), "bold", "Ärger ±3 %");
        let (_, many) = render_and_count_colours(&svg);
        assert!(many > 10, "letters have soft edges: {many} colours");
    }

    #[test]
    fn oversized_picture_is_refused() {
        assert!(render_png(&Svg::new("", 1e9), u16::MAX).is_err());
    }
}
