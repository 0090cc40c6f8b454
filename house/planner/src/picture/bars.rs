//! Where the bytes of all drives go, a bar for each layout.

use ::picture::{At, Svg, WIDTH};
use units::human_bytes;

use super::MOST_LAYOUTS;
use crate::capacity::{Account, float, ratio};
use crate::plan::Plan;
use crate::report::{percent, short};

const TOP: f64 = 44.0;
const ROW: f64 = 36.0;
const BAR: f64 = 15.0;
/// Letters of a layout's name that fit.
const NAME: usize = 46;

/// The parts that are shown, the smaller ones together: class, words, bytes.
fn parts(account: &Account) -> [(&'static str, &'static str, u64); 7] {
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
    let shown = plan.layouts.len().min(MOST_LAYOUTS);
    let height = TOP + ROW * float(shown as u64);
    let mut svg = Svg::new("Where the bytes of all drives go, for each layout", height);
    legend(&mut svg);
    for (row, layout) in (0_u64..).zip(plan.layouts.iter().take(shown)) {
        let y = TOP + ROW * float(row);
        let mut name = short(&layout.layout);
        if name.len() > NAME {
            name.truncate(NAME - 3);
            name.push_str("...");
        }
        svg.text(At(0.0, y + 13.0), "", &name);
        svg.text(At(WIDTH, y + 13.0), "end bold", &layout.usable_shown);
        let mut x = 0.0;
        for (class, words, bytes) in parts(&layout.account) {
            let part = ratio(bytes, layout.raw_bytes);
            let width = part * WIDTH;
            if width < 0.05 {
                continue;
            }
            let hint = format!("{name}: {words} {} ({})", human_bytes(bytes), percent(part));
            let gap = if width > 3.0 { 1.0 } else { 0.0 };
            svg.rect(At(x, y + 17.0), At(width - gap, BAR), class, 1.0, &hint);
            x += width;
        }
    }
    svg
}

/// What the colours mean, in two lines.
fn legend(svg: &mut Svg) {
    for (index, (class, words, _)) in (0_u8..).zip(parts(&Account::default())) {
        let (column, row) = (f64::from(index % 4), f64::from(index / 4));
        let (x, y) = (column * WIDTH / 4.0, row * 18.0);
        svg.rect(At(x, y + 2.0), At(11.0, 11.0), class, 1.0, words);
        svg.text(At(x + 16.0, y + 12.0), "soft small", words);
    }
}
