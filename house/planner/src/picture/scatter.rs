//! Room against safety: a point for each layout, numbers at those that no other beats.

use ::picture::{At, Svg, WIDTH};
use units::human_bytes;

use super::MOST_LAYOUTS;
use crate::capacity::{float, ratio, whole};
use crate::plan::{LayoutPlan, Plan};
use crate::report::{chance, short};

const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 290.0;
const KEY: f64 = 340.0;
const KEY_ROW: f64 = 18.0;
/// Between two numbers, so that both can be read.
const APART: f64 = 18.0;
/// The smallest chance that is told apart.
const LEAST: f64 = 1e-14;
const TIB: u64 = 1 << 40;

/// The points of a plan's layouts.
pub(super) fn draw(plan: &Plan) -> Svg {
    let best: Vec<&LayoutPlan> = numbered(plan);
    let height = KEY + KEY_ROW * float(best.len() as u64);
    let mut svg = Svg::new("Usable capacity against the chance of losing the pool", height);
    let axes = Axes::new(plan);
    axes.draw(&mut svg);
    for layout in plan.layouts.iter().filter(|layout| !layout.pareto_best) {
        svg.disc(axes.place(layout), 4.0, "other", &hint(layout));
    }
    let mut taken: Vec<At> = Vec::new();
    for (index, layout) in best.iter().enumerate() {
        let number = (index + 1).to_string();
        let place = axes.place(layout);
        let At(x, y) = free(place, &taken);
        taken.push(At(x, y));
        svg.line(place, At(x, y));
        svg.disc(place, 3.0, "best", &hint(layout));
        svg.disc(At(x, y), 8.0, "best", &hint(layout));
        svg.text(At(x, y + 4.0), "small mid on bold", &number);
        let line = KEY + KEY_ROW * float(index as u64);
        svg.text(At(18.0, line), "small end bold", &number);
        svg.text(At(26.0, line), "small", &short(&layout.layout));
        svg.text(At(310.0, line), "small end", &layout.usable_shown);
        let lost = chance(layout.safety.lost_5_years);
        svg.text(At(WIDTH, line), "small end", &format!("lost {lost}"));
    }
    svg
}

/// The layouts that get a number, by room.
fn numbered(plan: &Plan) -> Vec<&LayoutPlan> {
    let mut best: Vec<_> = plan.layouts.iter().filter(|layout| layout.pareto_best).collect();
    best.sort_by_key(|layout| layout.usable_bytes);
    best.truncate(MOST_LAYOUTS);
    best
}

/// A place for a number: where its point is, or beside it if another number is there.
fn free(At(x, y): At, taken: &[At]) -> At {
    let rings = [0.0, 1.0, 2.0, 3.0].map(|ring| ring * APART);
    let around = [(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)];
    let corners = [(0.7, -0.7), (0.7, 0.7), (-0.7, 0.7), (-0.7, -0.7)];
    let directions = around.into_iter().chain(corners);
    let mut places = rings.into_iter().flat_map(|ring| {
        directions.clone().map(move |(right, down)| At(x + ring * right, y + ring * down))
    });
    let clear = |At(x, y): At| {
        let inside = (LEFT..=WIDTH - 8.0).contains(&x) && (TOP..=BOTTOM).contains(&y);
        inside && taken.iter().all(|At(to_x, to_y)| (x - to_x).hypot(y - to_y) >= APART - 1.0)
    };
    places.find(|place| clear(*place)).unwrap_or(At(x, y))
}

fn hint(layout: &LayoutPlan) -> String {
    let usable = human_bytes(layout.usable_bytes);
    let lost = chance(layout.safety.lost_5_years);
    format!("{}: {usable}, lost in 5 years: {lost}", short(&layout.layout))
}

/// How numbers become places.
struct Axes {
    /// TiB at the right end, and between two marks.
    room: f64,
    step: f64,
    /// Powers of ten down to which chances are shown.
    powers: f64,
}

impl Axes {
    fn new(plan: &Plan) -> Self {
        let most = plan.layouts.iter().map(|layout| layout.usable_bytes).max().unwrap_or(TIB);
        let most = ratio(most.max(1), TIB) * 1.04;
        let magnitude = 10_f64.powf((most / 5.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
        let step = steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(most);
        let powers = plan.layouts.iter().map(power).fold(2.0, f64::max).ceil() + 0.5;
        Self { room: most, step, powers }
    }

    fn place(&self, layout: &LayoutPlan) -> At {
        At(self.x(ratio(layout.usable_bytes, TIB)), self.y(power(layout)))
    }

    fn x(&self, tib: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * tib / self.room
    }

    fn y(&self, power: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * power / self.powers
    }

    fn draw(&self, svg: &mut Svg) {
        svg.text(At(0.0, 12.0), "soft small", "chance of losing the pool in 5 years");
        svg.text(At(WIDTH, 12.0), "soft small end", "up is safer, right is roomier");
        for mark in 0..=whole(self.room / self.step) {
            let tib = float(mark) * self.step;
            let x = self.x(tib);
            svg.line(At(x, TOP), At(x, BOTTOM));
            let digits = usize::from(self.step < 1.0);
            svg.text(At(x, BOTTOM + 15.0), "soft small mid", &format!("{tib:.digits$}"));
        }
        let every = if self.powers > 7.0 { 2 } else { 1 };
        for power in (0..=whole(self.powers)).step_by(every) {
            let y = self.y(float(power));
            svg.line(At(LEFT, y), At(RIGHT, y));
            let words = if power == 0 { "1".to_owned() } else { format!("1e-{power}") };
            svg.text(At(LEFT - 6.0, y + 4.0), "soft small end", &words);
        }
        svg.text(At(RIGHT, BOTTOM + 31.0), "soft small end", "usable TiB");
    }
}

/// How many powers of ten a layout is away from certain loss.
fn power(layout: &LayoutPlan) -> f64 {
    -layout.safety.lost_5_years.clamp(LEAST, 1.0).log10()
}
