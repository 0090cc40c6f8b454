//! Where the bytes of all drives go, a bar for each layout.

use ::picture::{Point, Svg, WIDTH};
use units::human_bytes;

use super::MAX_LAYOUTS;
use crate::capacity::{SpaceAccount, ratio, to_f64};
use crate::plan::Plan;
use crate::report::{abbreviate_layout, format_percent};

const TOP_MARGIN: f64 = 44.0;
const ROW_HEIGHT: f64 = 36.0;
const BAR_HEIGHT: f64 = 15.0;
/// Letters of a layout's name that fit.
const MAX_NAME_LEN: usize = 46;

/// The parts that are shown, the smaller ones together: class, words, bytes.
fn shown_parts(account: &SpaceAccount) -> [(&'static str, &'static str, u64); 7] {
    let rest = account.rounding_bytes + account.label_bytes + account.partition_bytes;
    [
        ("usable", "usable", account.usable_bytes),
        ("kept", "kept back", account.slop_bytes + account.log_bytes),
        ("parity", "parity, copies", account.parity_bytes),
        ("padding", "padding", account.padding_bytes),
        ("spare", "spare", account.spare_bytes),
        ("tails", "unused tails", account.tail_bytes),
        ("rounding", "rounding", rest),
    ]
}

/// The bars of a plan's layouts, in their order.
pub(super) fn draw(plan: &Plan) -> Svg {
    let shown = plan.layouts.len().min(MAX_LAYOUTS);
    let height = TOP_MARGIN + ROW_HEIGHT * to_f64(shown as u64);
    let mut svg = Svg::new("Where the bytes of all drives go, for each layout", height);
    draw_legend(&mut svg);
    for (row, layout) in (0_u64..).zip(plan.layouts.iter().take(shown)) {
        let y = TOP_MARGIN + ROW_HEIGHT * to_f64(row);
        let mut name = abbreviate_layout(&layout.layout);
        if name.len() > MAX_NAME_LEN {
            name.truncate(MAX_NAME_LEN - 3);
            name.push_str("...");
        }
        svg.text(Point(0.0, y + 13.0), "", &name);
        svg.text(Point(WIDTH, y + 13.0), "end bold", &layout.usable_shown);
        let mut x = 0.0;
        for (class, words, bytes) in shown_parts(&layout.account) {
            let part = ratio(bytes, layout.raw_bytes);
            let width = part * WIDTH;
            if width < 0.05 {
                continue;
            }
            let hint = format!("{name}: {words} {} ({})", human_bytes(bytes), format_percent(part));
            let gap = if width > 3.0 { 1.0 } else { 0.0 };
            svg.rect(Point(x, y + 17.0), Point(width - gap, BAR_HEIGHT), class, 1.0, &hint);
            x += width;
        }
    }
    svg
}

/// The legend of the colours, in two lines.
fn draw_legend(svg: &mut Svg) {
    for (index, (class, words, _)) in (0_u8..).zip(shown_parts(&SpaceAccount::default())) {
        let (column, row) = (f64::from(index % 4), f64::from(index / 4));
        let (x, y) = (column * WIDTH / 4.0, row * 18.0);
        svg.rect(Point(x, y + 2.0), Point(11.0, 11.0), class, 1.0, words);
        svg.text(Point(x + 16.0, y + 12.0), "soft small", words);
    }
}
