//! How much of a raidz is data, by its width and the block's size.

use ::picture::{At, Svg, WIDTH};
use units::{Ashift, human_bytes};

use crate::capacity::float;
use crate::plan::RECORDS;
use crate::raidz_efficiency;

/// The widest raidz shown.
const WIDEST: u32 = 16;
const LEFT: f64 = 30.0;
const TOP: f64 = 50.0;
const ROW: f64 = 21.0;
/// Where the letters on a colour must change theirs.
const STRONG: f64 = 0.55;

/// The map of one parity and sector.
pub(super) fn draw(parity: u32, ashift: Ashift) -> Svg {
    let widths = parity + 1..=WIDEST;
    let title = format!("raidz{parity}, ashift {ashift}");
    let rows = widths.clone().count() as u64;
    let mut svg = Svg::new(
        &format!("Part of {title} that is data, by width and record size"),
        TOP + ROW * float(rows) + 4.0,
    );
    svg.text(At(0.0, 13.0), "bold", &title);
    svg.text(At(WIDTH, 13.0), "soft small end", "percent of allocated bytes that are data");
    svg.text(At(0.0, TOP - 8.0), "soft small", "wide");
    let column = (WIDTH - LEFT) / float(RECORDS.len() as u64);
    for (index, record) in (0_u64..).zip(RECORDS) {
        let x = LEFT + column * (float(index) + 0.5);
        svg.text(At(x, TOP - 8.0), "soft small mid", &human_bytes(record));
    }
    for (row, width) in (0_u64..).zip(widths) {
        let y = TOP + ROW * float(row);
        svg.text(At(LEFT - 8.0, y + 14.0), "soft small end", &width.to_string());
        for (index, record) in (0_u64..).zip(RECORDS) {
            let Some(part) = raidz_efficiency(width, parity, ashift, record) else { continue };
            // the colours begin at an eighth, so that the differences where it matters are seen
            let strength = ((part - 0.1) / 0.9).clamp(0.03, 1.0).powf(1.4);
            let place = At(LEFT + column * float(index), y);
            let percent = format!("{:.0}", part * 100.0);
            let hint = format!(
                "{title}: {width} wide, records of {}: {:.2} %",
                human_bytes(record),
                part * 100.0
            );
            svg.rect(place, At(column - 2.0, ROW - 2.0), "heat", strength, &hint);
            let class = if strength > STRONG { "small mid on" } else { "small mid" };
            svg.text(At(place.0 + column / 2.0 - 1.0, y + 14.0), class, &percent);
        }
    }
    svg
}
