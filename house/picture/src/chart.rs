//! Charts of measured figures: bars with their uncertainty, and traces over an axis.

use crate::letters::fitted;
use crate::svg::{At, Svg, WIDTH};

/// Colours by place in a legend; the same series has the same colour in all charts.
const COLOURS: [&str; 6] = ["usable", "parity", "spare", "tails", "padding", "kept"];

/// The colour of a series.
pub fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Which series, for its colour.
    pub series: usize,
    /// How long it is.
    pub value: f64,
    /// Half the width of what is uncertain.
    pub plus_minus: f64,
    /// The figure in words.
    pub words: String,
}

/// Bars that belong together, under a name.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What they show.
    pub name: String,
    /// One for each series that has it.
    pub bars: Vec<Bar>,
}

/// What bars are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// All by the longest of all.
    Common,
    /// Those under one name by the longest of them.
    Each,
}

const TITLE: f64 = 20.0;
const LEGEND: f64 = 18.0;
const NAME: f64 = 17.0;
const BAR: f64 = 11.0;
const GAP: f64 = 8.0;
/// Size of letters.
const LETTER: f64 = 12.0;
/// The words of a figure take so much at the right.
const FIGURE: f64 = 110.0;

/// Draws bars; the series' names head them, if there are several.
pub fn bars(title: &str, series: &[String], groups: &[Bars], scale: Scale) -> Svg {
    let legend = if series.len() > 1 { LEGEND * count(series.len()) + 4.0 } else { 0.0 };
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = TITLE + legend + count(groups.len()) * (NAME + GAP) + count(rows) * (BAR + 2.0);
    let mut svg = Svg::new(title, height);
    svg.text(At(0.0, 13.0), "bold", title);
    let mut y = TITLE + legend;
    if series.len() > 1 {
        draw_legend(&mut svg, TITLE, series);
    }
    let longest = |bars: &[Bar]| {
        bars.iter().map(|bar| bar.value + bar.plus_minus).fold(f64::MIN_POSITIVE, f64::max)
    };
    let all: Vec<Bar> = groups.iter().flat_map(|group| group.bars.clone()).collect();
    let common = longest(&all);
    for group in groups {
        svg.text(At(0.0, y + 12.0), "", &fitted(&group.name, WIDTH, LETTER));
        y += NAME;
        let full = if scale == Scale::Each { longest(&group.bars) } else { common };
        for bar in &group.bars {
            draw_bar(&mut svg, At(0.0, y), bar, full, &group.name);
            y += BAR + 2.0;
        }
        y += GAP;
    }
    svg
}

fn draw_bar(svg: &mut Svg, At(x, y): At, bar: &Bar, full: f64, name: &str) {
    let unit = (WIDTH - FIGURE) / full;
    let width = (bar.value * unit).max(0.5);
    let hint = format!("{name}: {}", bar.words);
    svg.rect(At(x, y), At(width, BAR), colour(bar.series), 1.0, &hint);
    if bar.plus_minus > 0.0 {
        let (low, high) = (bar.value - bar.plus_minus, bar.value + bar.plus_minus);
        let (left, right, middle) = (x + (low * unit).max(0.0), x + high * unit, y + BAR / 2.0);
        svg.whisker(At(left, middle), At(right, middle));
    }
    svg.text(At(WIDTH, y + BAR - 1.5), "small end", &bar.words);
}

fn draw_legend(svg: &mut Svg, top: f64, series: &[String]) {
    for (index, name) in series.iter().enumerate() {
        let y = top + LEGEND * count(index);
        svg.rect(At(0.0, y + 2.0), At(11.0, 11.0), colour(index), 1.0, name);
        svg.text(At(16.0, y + 12.0), "soft small", &fitted(name, WIDTH - 16.0, LETTER));
    }
}

/// A line through points.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its name.
    pub name: String,
    /// Its points, along the axis.
    pub points: Vec<(f64, f64)>,
}

/// A figure with its unit stands left of the plot.
const LEFT: f64 = 68.0;
const RIGHT: f64 = WIDTH - 10.0;
const PLOT: f64 = 210.0;
const BELOW: f64 = 40.0;

/// Draws traces over an axis from 0 to `end`; `figure` puts an ordinate into words.
pub fn traces(
    title: &str,
    axis: (&str, f64),
    traces: &[Trace],
    figure: impl Fn(f64) -> String,
) -> Svg {
    let (axis, end) = axis;
    let names: Vec<String> = traces.iter().map(|trace| trace.name.clone()).collect();
    let top = TITLE + LEGEND * count(names.len()) + 12.0;
    let bottom = top + PLOT;
    let mut svg = Svg::new(title, bottom + BELOW);
    svg.text(At(0.0, 13.0), "bold", title);
    draw_legend(&mut svg, TITLE, &names);
    let points = traces.iter().flat_map(|trace| trace.points.iter());
    let most = points.map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
    let step = step(most);
    let place = |(x, y): (f64, f64)| {
        At(LEFT + (RIGHT - LEFT) * x / end.max(f64::MIN_POSITIVE), bottom - PLOT * y / most)
    };
    let mut mark = 0.0;
    while mark <= most {
        let At(_, y) = place((0.0, mark));
        svg.line(At(LEFT, y), At(RIGHT, y));
        svg.text(At(LEFT - 6.0, y + 4.0), "soft small end", &figure(mark));
        mark += step;
    }
    svg.text(At(LEFT, bottom + 16.0), "soft small", "0");
    svg.text(At(RIGHT, bottom + 16.0), "soft small end", axis);
    for (index, trace) in traces.iter().enumerate() {
        let places: Vec<At> = trace.points.iter().map(|point| place(*point)).collect();
        svg.trace(&places, colour(index));
        for (at, point) in places.iter().zip(&trace.points) {
            let hint = format!("{}: {}", trace.name, figure(point.1));
            svg.disc(*at, 2.5, colour(index), &hint);
        }
    }
    svg
}

/// A round distance between marks, four to six of which fit.
fn step(most: f64) -> f64 {
    let magnitude = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
    steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(most)
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::{Bar, Bars, Scale, Trace, bars, step, traces};

    #[test]
    fn every_bar_and_point_is_drawn() {
        let bar = |series, value| Bar { series, value, plus_minus: 1.0, words: "x".into() };
        let group = Bars { name: "read <1>".into(), bars: vec![bar(0, 3.0), bar(1, 0.0)] };
        for scale in [Scale::Common, Scale::Each] {
            let names = ["a".to_owned(), "b".to_owned()];
            let text = bars("t", &names, std::slice::from_ref(&group), scale).file();
            assert_eq!(text.matches("<title>read").count(), 2, "{text}");
            assert!(text.contains("&lt;1&gt;") && !text.contains("NaN"), "{text}");
        }
        let line =
            Trace { name: "sda".into(), points: vec![(0.0, 5.0), (50.0, 4.0), (100.0, 2.0)] };
        let text = traces("zones", ("inner", 100.0), &[line], |y| format!("{y:.0}")).file();
        assert_eq!(text.matches("<circle").count(), 3);
        assert!(!text.contains("NaN"));
        traces("none", ("", 0.0), &[], |y| y.to_string());
    }

    #[test]
    fn long_names_stay_in_the_picture() {
        let name = format!("/a/{}/drive-7", "folder/".repeat(40));
        let bar = Bar { series: 1, value: 3.0, plus_minus: 1.0, words: "3".into() };
        let group = Bars { name: name.clone(), bars: vec![bar] };
        let series = [name.clone(), "b".to_owned()];
        let text = bars("t", &series, &[group], Scale::Each).file();
        let line = Trace { name: name.clone(), points: vec![(0.0, 5.0)] };
        let text = text + &traces("zones", ("inner", 100.0), &[line], |y| y.to_string()).file();
        let shown: Vec<&str> = text.lines().filter(|line| line.contains("<text")).collect();
        assert_eq!(shown.iter().filter(|line| line.contains("…")).count(), 3, "{shown:?}");
        assert!(shown.iter().all(|line| !line.contains(&name)), "{shown:?}");
        assert!(text.contains(&format!("<title>{name}")), "pointed at, it is whole");
    }

    #[test]
    fn marks_are_round() {
        assert!((step(180.0) - 50.0).abs() < 1e-9 && (step(6.0) - 1.0).abs() < 1e-9);
    }
}
