//! How much of a raidz is data, by its width and the block's size.

use ::picture::{Point, Svg, WIDTH};
use units::{Ashift, human_bytes};

use crate::capacity::to_f64;
use crate::plan::RECORD_SIZES;
use crate::raidz_efficiency;

/// The widest raidz shown.
const MAX_WIDTH: u32 = 16;
const LEFT_MARGIN: f64 = 30.0;
const TOP_MARGIN: f64 = 50.0;
const ROW_HEIGHT: f64 = 21.0;
/// Where the letters on a colour must change theirs.
const LIGHT_TEXT_THRESHOLD: f64 = 0.55;

/// The map of one parity and sector.
pub(super) fn draw(parity: u32, ashift: Ashift) -> Svg {
    let widths = parity + 1..=MAX_WIDTH;
    let title = format!("raidz{parity}, ashift {ashift}");
    let rows = widths.clone().count() as u64;
    let mut svg = Svg::new(
        &format!("Part of {title} that is data, by width and record size"),
        TOP_MARGIN + ROW_HEIGHT * to_f64(rows) + 4.0,
    );
    svg.text(Point(0.0, 13.0), "bold", &title);
    svg.text(Point(WIDTH, 13.0), "soft small end", "percent of allocated bytes that are data");
    svg.text(Point(0.0, TOP_MARGIN - 8.0), "soft small", "wide");
    let column = (WIDTH - LEFT_MARGIN) / to_f64(RECORD_SIZES.len() as u64);
    for (index, record) in (0_u64..).zip(RECORD_SIZES) {
        let x = LEFT_MARGIN + column * (to_f64(index) + 0.5);
        svg.text(Point(x, TOP_MARGIN - 8.0), "soft small mid", &human_bytes(record));
    }
    for (row, width) in (0_u64..).zip(widths) {
        let y = TOP_MARGIN + ROW_HEIGHT * to_f64(row);
        svg.text(Point(LEFT_MARGIN - 8.0, y + 14.0), "soft small end", &width.to_string());
        for (index, record) in (0_u64..).zip(RECORD_SIZES) {
            let Some(part) = raidz_efficiency(width, parity, ashift, record) else { continue };
            // the colours begin at an eighth, so that the differences where it matters are seen
            let strength = ((part - 0.1) / 0.9).clamp(0.03, 1.0).powf(1.4);
            let place = Point(LEFT_MARGIN + column * to_f64(index), y);
            let percent = format!("{:.0}", part * 100.0);
            let hint = format!(
                "{title}: {width} wide, records of {}: {:.2} %",
                human_bytes(record),
                part * 100.0
            );
            svg.rect(place, Point(column - 2.0, ROW_HEIGHT - 2.0), "heat", strength, &hint);
            let class = if strength > LIGHT_TEXT_THRESHOLD { "small mid on" } else { "small mid" };
            svg.text(Point(place.0 + column / 2.0 - 1.0, y + 14.0), class, &percent);
        }
    }
    svg
}
