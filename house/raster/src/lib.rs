//! Pictures as PNG: a heavy dependency, kept to itself.
//!
//! Letters come from two small fonts in the program, so that a picture looks the same on a machine
//! without any, and nobody's own are looked for.
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
const FAMILY: &str = "DejaVu Sans";
/// Points of a picture at most: four bytes of memory each.
const MOST_POINTS: u64 = 1 << 27;

/// Why a picture cannot be painted.
#[derive(Debug, Error)]
pub enum Error {
    /// It is not as SVG must be.
    #[error("the picture cannot be painted: {why}")]
    Broken {
        /// What is wrong with it.
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

static LETTERS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut all = Database::new();
    for font in FONTS {
        all.load_font_data(font.to_vec());
    }
    all.set_sans_serif_family(FAMILY);
    Arc::new(all)
});

/// Paints a picture, each of its units as `scale` points, in its light colours.
pub fn png(svg: &Svg, scale: u16) -> Result<Vec<u8>, Error> {
    let broken = |error: String| Error::Broken { why: error };
    let options = Options {
        font_family: FAMILY.to_owned(),
        fontdb: Arc::clone(&LETTERS),
        ..Options::default()
    };
    let tree =
        Tree::from_str(&svg.plain_file(), &options).map_err(|error| broken(error.to_string()))?;
    let size = tree.size().to_int_size();
    let scale = u32::from(scale.max(1));
    let width = size.width().saturating_mul(scale);
    let height = size.height().saturating_mul(scale);
    let too_large = Error::TooLarge { width, height };
    if u64::from(width) * u64::from(height) > MOST_POINTS {
        return Err(too_large);
    }
    let mut points = Pixmap::new(width, height).ok_or(too_large)?;
    let scale = Transform::from_scale(float(scale), float(scale));
    resvg::render(&tree, scale, &mut points.as_mut());
    points.encode_png().map_err(|error| broken(error.to_string()))
}

fn float(scale: u32) -> f32 {
    f32::from(u16::try_from(scale).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use picture::{At, Svg};
    use resvg::tiny_skia::Pixmap;

    use super::png;

    fn colours(svg: &Svg) -> (Pixmap, usize) {
        let points = Pixmap::decode_png(&png(svg, 2).unwrap()).unwrap();
        let mut seen: Vec<_> =
            points.pixels().iter().map(|p| (p.red(), p.green(), p.blue())).collect();
        seen.sort_unstable();
        seen.dedup();
        (points, seen.len())
    }

    #[test]
    fn marks_and_letters_are_painted_on_paper() {
        let mut svg = Svg::new("test", 40.0);
        let (empty, one) = colours(&svg);
        assert_eq!((empty.width(), empty.height(), one), (800, 80, 1));
        let white = empty.pixel(5, 5).unwrap();
        assert_eq!((white.red(), white.green(), white.blue(), white.alpha()), (255, 255, 255, 255));
        svg.rect(At(0.0, 0.0), At(100.0, 20.0), "usable", 1.0, "");
        let (painted, _) = colours(&svg);
        let blue = painted.pixel(50, 20).unwrap();
        assert_eq!((blue.red(), blue.green(), blue.blue()), (0x2a, 0x78, 0xc2));
        svg.text(At(200.0, 20.0), "bold", "Ärger ±3 %");
        let (_, many) = colours(&svg);
        assert!(many > 10, "letters have soft edges: {many} colours");
    }

    #[test]
    fn no_picture_is_too_large_for_an_error() {
        assert!(png(&Svg::new("", 1e9), u16::MAX).is_err());
    }
}
