//! Pictures as files in a folder: SVG, or PNG for programs that do not know that.

use std::path::Path;

use picture::Svg;

use crate::outcome::Failure;

/// Points for each unit of a picture: letters are sharp on paper too.
const PNG_SCALE: u16 = 3;

/// Writes pictures as SVG.
pub(crate) fn write_svg(
    dir: &Path,
    pictures: impl IntoIterator<Item = (String, Svg)>,
) -> Result<(), Failure> {
    write_files(dir, "svg", pictures, |svg| Ok(svg.to_document().into_bytes()))
}

/// Writes pictures as PNG.
pub(crate) fn write_png(
    dir: &Path,
    pictures: impl IntoIterator<Item = (String, Svg)>,
) -> Result<(), Failure> {
    write_files(dir, "png", pictures, |svg| Ok(raster::render_png(svg, PNG_SCALE)?))
}

fn write_files(
    dir: &Path,
    ending: &str,
    pictures: impl IntoIterator<Item = (String, Svg)>,
    paint: impl Fn(&Svg) -> Result<Vec<u8>, Failure>,
) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::destination(dir, &error))?;
    for (name, svg) in pictures {
        let path = dir.join(format!("{name}.{ending}"));
        std::fs::write(&path, paint(&svg)?).map_err(|error| Failure::destination(&path, &error))?;
    }
    Ok(())
}

impl From<raster::Error> for Failure {
    fn from(error: raster::Error) -> Self {
        Self::usage(error.to_string())
    }
}
