//! Space against safety: a point for each layout, numbers at those that no other beats.

use ::picture::{Point, Svg, WIDTH};
use units::human_bytes;

use super::MAX_LAYOUTS;
use crate::capacity::{ratio, to_f64, to_u64};
use crate::plan::{LayoutPlan, Plan};
use crate::report::{abbreviate_layout, format_chance};

const PLOT_LEFT: f64 = 46.0;
const PLOT_RIGHT: f64 = WIDTH - 14.0;
const PLOT_TOP: f64 = 30.0;
const PLOT_BOTTOM: f64 = 290.0;
const LEGEND_TOP: f64 = 340.0;
const LEGEND_ROW_HEIGHT: f64 = 18.0;
/// Between two numbers, so that both can be read.
const LABEL_SPACING: f64 = 18.0;
/// The smallest probability on the axis.
const MIN_LOSS_CHANCE: f64 = 1e-14;
const TIB: u64 = 1 << 40;

/// The points of a plan's layouts.
pub(super) fn draw(plan: &Plan) -> Svg {
    let best: Vec<&LayoutPlan> = numbered_layouts(plan);
    let height = LEGEND_TOP + LEGEND_ROW_HEIGHT * to_f64(best.len() as u64);
    let mut svg = Svg::new("Usable capacity against the chance of losing the pool", height);
    let axes = Axes::new(plan);
    axes.draw(&mut svg);
    for layout in plan.layouts.iter().filter(|layout| !layout.pareto_best) {
        svg.circle(axes.point(layout), 4.0, "other", &tooltip(layout));
    }
    let mut taken: Vec<Point> = Vec::new();
    for (index, layout) in best.iter().enumerate() {
        let number = (index + 1).to_string();
        let place = axes.point(layout);
        let Point(x, y) = free_label_position(place, &taken);
        taken.push(Point(x, y));
        svg.line(place, Point(x, y));
        svg.circle(place, 3.0, "best", &tooltip(layout));
        svg.circle(Point(x, y), 8.0, "best", &tooltip(layout));
        svg.text(Point(x, y + 4.0), "small mid on bold", &number);
        let line = LEGEND_TOP + LEGEND_ROW_HEIGHT * to_f64(index as u64);
        svg.text(Point(18.0, line), "small end bold", &number);
        svg.text(Point(26.0, line), "small", &abbreviate_layout(&layout.layout));
        svg.text(Point(310.0, line), "small end", &layout.usable_shown);
        let lost = format_chance(layout.safety.lost_5_years);
        svg.text(Point(WIDTH, line), "small end", &format!("lost {lost}"));
    }
    svg
}

/// The layouts that get a number, by space.
fn numbered_layouts(plan: &Plan) -> Vec<&LayoutPlan> {
    let mut best: Vec<_> = plan.layouts.iter().filter(|layout| layout.pareto_best).collect();
    best.sort_by_key(|layout| layout.usable_bytes);
    best.truncate(MAX_LAYOUTS);
    best
}

/// The position of a number: at its point, or beside it if another number is there.
fn free_label_position(Point(x, y): Point, taken: &[Point]) -> Point {
    let rings = [0.0, 1.0, 2.0, 3.0].map(|ring| ring * LABEL_SPACING);
    let around = [(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)];
    let corners = [(0.7, -0.7), (0.7, 0.7), (-0.7, 0.7), (-0.7, -0.7)];
    let directions = around.into_iter().chain(corners);
    let mut places = rings.into_iter().flat_map(|ring| {
        directions.clone().map(move |(right, down)| Point(x + ring * right, y + ring * down))
    });
    let clear = |Point(x, y): Point| {
        let inside =
            (PLOT_LEFT..=WIDTH - 8.0).contains(&x) && (PLOT_TOP..=PLOT_BOTTOM).contains(&y);
        inside
            && taken
                .iter()
                .all(|Point(to_x, to_y)| (x - to_x).hypot(y - to_y) >= LABEL_SPACING - 1.0)
    };
    places.find(|place| clear(*place)).unwrap_or(Point(x, y))
}

fn tooltip(layout: &LayoutPlan) -> String {
    let usable = human_bytes(layout.usable_bytes);
    let lost = format_chance(layout.safety.lost_5_years);
    format!("{}: {usable}, lost in 5 years: {lost}", abbreviate_layout(&layout.layout))
}

/// How numbers become places.
struct Axes {
    /// TiB at the right end, and between two marks.
    max_tib: f64,
    tick_step: f64,
    /// Powers of ten down to which chances are shown.
    max_exponent: f64,
}

impl Axes {
    fn new(plan: &Plan) -> Self {
        let most = plan.layouts.iter().map(|layout| layout.usable_bytes).max().unwrap_or(TIB);
        let most = ratio(most.max(1), TIB) * 1.04;
        let magnitude = 10_f64.powf((most / 5.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
        let tick_step = steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(most);
        let max_exponent = plan.layouts.iter().map(loss_exponent).fold(2.0, f64::max).ceil() + 0.5;
        Self { max_tib: most, tick_step, max_exponent }
    }

    fn point(&self, layout: &LayoutPlan) -> Point {
        Point(self.x(ratio(layout.usable_bytes, TIB)), self.y(loss_exponent(layout)))
    }

    fn x(&self, tib: f64) -> f64 {
        PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * tib / self.max_tib
    }

    fn y(&self, power: f64) -> f64 {
        PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * power / self.max_exponent
    }

    fn draw(&self, svg: &mut Svg) {
        svg.text(Point(0.0, 12.0), "soft small", "chance of losing the pool in 5 years");
        svg.text(Point(WIDTH, 12.0), "soft small end", "up is safer, right is roomier");
        for mark in 0..=to_u64(self.max_tib / self.tick_step) {
            let tib = to_f64(mark) * self.tick_step;
            let x = self.x(tib);
            svg.line(Point(x, PLOT_TOP), Point(x, PLOT_BOTTOM));
            let digits = usize::from(self.tick_step < 1.0);
            svg.text(Point(x, PLOT_BOTTOM + 15.0), "soft small mid", &format!("{tib:.digits$}"));
        }
        let every = if self.max_exponent > 7.0 { 2 } else { 1 };
        for power in (0..=to_u64(self.max_exponent)).step_by(every) {
            let y = self.y(to_f64(power));
            svg.line(Point(PLOT_LEFT, y), Point(PLOT_RIGHT, y));
            let words = if power == 0 { "1".to_owned() } else { format!("1e-{power}") };
            svg.text(Point(PLOT_LEFT - 6.0, y + 4.0), "soft small end", &words);
        }
        svg.text(Point(PLOT_RIGHT, PLOT_BOTTOM + 31.0), "soft small end", "usable TiB");
    }
}

/// The powers of ten between a layout and certain loss.
fn loss_exponent(layout: &LayoutPlan) -> f64 {
    -layout.safety.lost_5_years.clamp(MIN_LOSS_CHANCE, 1.0).log10()
}
