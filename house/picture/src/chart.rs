//! Charts of measured figures: bars with their uncertainty, and traces over an axis.

use crate::svg::{Point, Svg, WIDTH};
use crate::text_width::truncate_middle;

/// Colours by place in a legend; the same series has the same colour in all charts.
const SERIES_COLOURS: [&str; 6] = ["usable", "parity", "spare", "tails", "padding", "kept"];

/// The colour of a series.
pub fn series_colour(series: usize) -> &'static str {
    SERIES_COLOURS[series % SERIES_COLOURS.len()]
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Which series, for its colour.
    pub series: usize,
    /// How long it is.
    pub value: f64,
    /// Half the width of the uncertainty.
    pub plus_minus: f64,
    /// The figure in words.
    pub label: String,
}

/// Bars that belong together, under a name.
#[derive(Clone, Debug)]
pub struct BarGroup {
    /// Their meaning.
    pub name: String,
    /// One for each series that has it.
    pub bars: Vec<Bar>,
}

/// The scale of bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// All by the longest of all.
    Common,
    /// Those under one name relative to the longest of them.
    PerGroup,
}

const TITLE_HEIGHT: f64 = 20.0;
const LEGEND_ROW_HEIGHT: f64 = 18.0;
const NAME_HEIGHT: f64 = 17.0;
const BAR_HEIGHT: f64 = 11.0;
const GROUP_GAP: f64 = 8.0;
/// Size of letters.
const FONT_SIZE: f64 = 12.0;
/// The width of a figure's text at the right.
const LABEL_WIDTH: f64 = 110.0;

/// Draws bars; the series' names head them, if there are several.
pub fn draw_bars(title: &str, series: &[String], groups: &[BarGroup], scale: Scale) -> Svg {
    let legend =
        if series.len() > 1 { LEGEND_ROW_HEIGHT * to_f64(series.len()) + 4.0 } else { 0.0 };
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = TITLE_HEIGHT
        + legend
        + to_f64(groups.len()) * (NAME_HEIGHT + GROUP_GAP)
        + to_f64(rows) * (BAR_HEIGHT + 2.0);
    let mut svg = Svg::new(title, height);
    svg.text(Point(0.0, 13.0), "bold", title);
    let mut y = TITLE_HEIGHT + legend;
    if series.len() > 1 {
        draw_legend(&mut svg, TITLE_HEIGHT, series);
    }
    let longest = |bars: &[Bar]| {
        bars.iter().map(|bar| bar.value + bar.plus_minus).fold(f64::MIN_POSITIVE, f64::max)
    };
    let all: Vec<Bar> = groups.iter().flat_map(|group| group.bars.clone()).collect();
    let common = longest(&all);
    for group in groups {
        svg.text(Point(0.0, y + 12.0), "", &truncate_middle(&group.name, WIDTH, FONT_SIZE));
        y += NAME_HEIGHT;
        let full = if scale == Scale::PerGroup { longest(&group.bars) } else { common };
        for bar in &group.bars {
            draw_bar(&mut svg, Point(0.0, y), bar, full, &group.name);
            y += BAR_HEIGHT + 2.0;
        }
        y += GROUP_GAP;
    }
    svg
}

fn draw_bar(svg: &mut Svg, Point(x, y): Point, bar: &Bar, full: f64, name: &str) {
    let unit = (WIDTH - LABEL_WIDTH) / full;
    let width = (bar.value * unit).max(0.5);
    let hint = format!("{name}: {}", bar.label);
    svg.rect(Point(x, y), Point(width, BAR_HEIGHT), series_colour(bar.series), 1.0, &hint);
    if bar.plus_minus > 0.0 {
        let (low, high) = (bar.value - bar.plus_minus, bar.value + bar.plus_minus);
        let (left, right, middle) =
            (x + (low * unit).max(0.0), x + high * unit, y + BAR_HEIGHT / 2.0);
        svg.whisker(Point(left, middle), Point(right, middle));
    }
    svg.text(Point(WIDTH, y + BAR_HEIGHT - 1.5), "small end", &bar.label);
}

fn draw_legend(svg: &mut Svg, top: f64, series: &[String]) {
    for (index, name) in series.iter().enumerate() {
        let y = top + LEGEND_ROW_HEIGHT * to_f64(index);
        svg.rect(Point(0.0, y + 2.0), Point(11.0, 11.0), series_colour(index), 1.0, name);
        svg.text(
            Point(16.0, y + 12.0),
            "soft small",
            &truncate_middle(name, WIDTH - 16.0, FONT_SIZE),
        );
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
const PLOT_LEFT: f64 = 68.0;
const PLOT_RIGHT: f64 = WIDTH - 10.0;
const PLOT_HEIGHT: f64 = 210.0;
const AXIS_HEIGHT: f64 = 40.0;

/// Draws traces over an axis from 0 to `end`; `figure` puts an ordinate into words.
pub fn draw_traces(
    title: &str,
    axis: (&str, f64),
    traces: &[Trace],
    figure: impl Fn(f64) -> String,
) -> Svg {
    let (axis, end) = axis;
    let names: Vec<String> = traces.iter().map(|trace| trace.name.clone()).collect();
    let top = TITLE_HEIGHT + LEGEND_ROW_HEIGHT * to_f64(names.len()) + 12.0;
    let bottom = top + PLOT_HEIGHT;
    let mut svg = Svg::new(title, bottom + AXIS_HEIGHT);
    svg.text(Point(0.0, 13.0), "bold", title);
    draw_legend(&mut svg, TITLE_HEIGHT, &names);
    let points = traces.iter().flat_map(|trace| trace.points.iter());
    let most = points.map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
    let step = tick_step(most);
    let place = |(x, y): (f64, f64)| {
        Point(
            PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * x / end.max(f64::MIN_POSITIVE),
            bottom - PLOT_HEIGHT * y / most,
        )
    };
    let mut mark = 0.0;
    while mark <= most {
        let Point(_, y) = place((0.0, mark));
        svg.line(Point(PLOT_LEFT, y), Point(PLOT_RIGHT, y));
        svg.text(Point(PLOT_LEFT - 6.0, y + 4.0), "soft small end", &figure(mark));
        mark += step;
    }
    svg.text(Point(PLOT_LEFT, bottom + 16.0), "soft small", "0");
    svg.text(Point(PLOT_RIGHT, bottom + 16.0), "soft small end", axis);
    for (index, trace) in traces.iter().enumerate() {
        let places: Vec<Point> = trace.points.iter().map(|point| place(*point)).collect();
        svg.polyline(&places, series_colour(index));
        for (at, point) in places.iter().zip(&trace.points) {
            let hint = format!("{}: {}", trace.name, figure(point.1));
            svg.circle(*at, 2.5, series_colour(index), &hint);
        }
    }
    svg
}

/// A round distance between marks, four to six of which fit.
fn tick_step(most: f64) -> f64 {
    let magnitude = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
    steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(most)
}

fn to_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::{Bar, BarGroup, Scale, Trace, draw_bars, draw_traces, tick_step};

    #[test]
    fn every_bar_and_point_is_drawn() {
        let bar = |series, value| Bar { series, value, plus_minus: 1.0, label: "x".into() };
        let group = BarGroup { name: "read <1>".into(), bars: vec![bar(0, 3.0), bar(1, 0.0)] };
        for scale in [Scale::Common, Scale::PerGroup] {
            let names = ["a".to_owned(), "b".to_owned()];
            let text = draw_bars("t", &names, std::slice::from_ref(&group), scale).to_document();
            assert_eq!(text.matches("<title>read").count(), 2, "{text}");
            assert!(text.contains("&lt;1&gt;") && !text.contains("NaN"), "{text}");
        }
        let line =
            Trace { name: "sda".into(), points: vec![(0.0, 5.0), (50.0, 4.0), (100.0, 2.0)] };
        let text =
            draw_traces("zones", ("inner", 100.0), &[line], |y| format!("{y:.0}")).to_document();
        assert_eq!(text.matches("<circle").count(), 3);
        assert!(!text.contains("NaN"));
        draw_traces("none", ("", 0.0), &[], |y| y.to_string());
    }

    #[test]
    fn long_names_are_truncated() {
        let name = format!("/a/{}/drive-7", "folder/".repeat(40));
        let bar = Bar { series: 1, value: 3.0, plus_minus: 1.0, label: "3".into() };
        let group = BarGroup { name: name.clone(), bars: vec![bar] };
        let series = [name.clone(), "b".to_owned()];
        let text = draw_bars("t", &series, &[group], Scale::PerGroup).to_document();
        let line = Trace { name: name.clone(), points: vec![(0.0, 5.0)] };
        let text = text
            + &draw_traces("zones", ("inner", 100.0), &[line], |y| y.to_string()).to_document();
        let shown: Vec<&str> = text.lines().filter(|line| line.contains("<text")).collect();
        assert_eq!(shown.iter().filter(|line| line.contains("…")).count(), 3, "{shown:?}");
        assert!(shown.iter().all(|line| !line.contains(&name)), "{shown:?}");
        assert!(text.contains(&format!("<title>{name}")), "pointed at, it is whole");
    }

    #[test]
    fn tick_steps_are_round() {
        assert!((tick_step(180.0) - 50.0).abs() < 1e-9 && (tick_step(6.0) - 1.0).abs() < 1e-9);
    }
}
