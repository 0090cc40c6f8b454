//! Writing SVG: a few marks, words, and the colours of light and dark.

use std::fmt::Write;

/// Width of every picture; about a phone's, so that 12 units are letters that can be read.
pub const WIDTH: f64 = 400.0;

/// Colours and letters, by class. The page has the same once for all its pictures.
pub const STYLE: &str = "
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d2330; --soft: #5b6475; \
--line: #d9dde5; --heat: #0b5fa5; --on-heat: #ffffff; --usable: #2a78c2; --kept: #8c94a3; \
--parity: #e08a1e; --padding: #c2452d; --rounding: #c4c9d2; --spare: #2a9d78; --tails: #a65fa8; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --ink: #e8ebf0; --soft: #a3acbb; \
--line: #343b47; --heat: #66b1f2; --on-heat: #0c1116; --usable: #4b97dd; --kept: #7d8696; \
--parity: #dd9433; --padding: #d9634c; --rounding: #4c5463; --spare: #3bb28c; --tails: #b778b9; } }
svg { font: 12px system-ui, sans-serif; } svg text { fill: var(--ink); }
svg .soft { fill: var(--soft); } svg .small { font-size: 11px; } svg .on { fill: var(--on-heat); }
svg .bold { font-weight: 600; } svg .end { text-anchor: end; } svg .mid { text-anchor: middle; }
svg .line { stroke: var(--line); fill: none; } svg .heat { fill: var(--heat); }
svg .other { fill: var(--kept); fill-opacity: .6; }
svg .best { fill: var(--usable); stroke: var(--paper); }
svg .usable { fill: var(--usable); } svg .kept { fill: var(--kept); }
svg .parity { fill: var(--parity); } svg .padding { fill: var(--padding); }
svg .rounding { fill: var(--rounding); } svg .spare { fill: var(--spare); }
svg .tails { fill: var(--tails); }
svg .whisker { stroke: var(--ink); stroke-opacity: .7; fill: none; }
svg .trace { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .trace.usable { stroke: var(--usable); } svg .trace.parity { stroke: var(--parity); }
svg .trace.spare { stroke: var(--spare); } svg .trace.tails { stroke: var(--tails); }
svg .trace.padding { stroke: var(--padding); } svg .trace.kept { stroke: var(--kept); }
";

/// A picture under construction.
#[derive(Clone, Debug)]
pub struct Svg {
    label: String,
    height: f64,
    body: String,
}

/// A place in a picture: units to the right of its upper left corner, and down from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point(pub f64, pub f64);

impl Svg {
    /// A picture `height` units high; `label` describes it for screen readers.
    pub fn new(label: &str, height: f64) -> Self {
        Self { label: escape(label), height, body: String::new() }
    }

    /// Words.
    pub fn text(&mut self, Point(x, y): Point, class: &str, words: &str) {
        let words = escape(words);
        self.push_element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>"
        ));
    }

    /// A straight line.
    pub fn line(&mut self, Point(x, y): Point, Point(to_x, to_y): Point) {
        self.push_element(format_args!(
            "<path class=\"line\" d=\"M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}\"/>"
        ));
    }

    /// A level line with an end at both sides: from where to where something may be.
    pub fn whisker(&mut self, Point(left, y): Point, Point(right, _): Point) {
        let (top, bottom) = (y - 3.0, y + 3.0);
        self.push_element(format_args!(
            "<path class=\"whisker\" d=\"M{left:.1} {y:.1}H{right:.1}M{left:.1} {top:.1}\
             V{bottom:.1}M{right:.1} {top:.1}V{bottom:.1}\"/>"
        ));
    }

    /// A line through places, in a colour.
    pub fn polyline(&mut self, places: &[Point], colour: &str) {
        let words = places.iter().map(|Point(x, y)| format!("{x:.1} {y:.1}"));
        let words = words.collect::<Vec<_>>().join("L");
        if !words.is_empty() {
            self.push_element(format_args!("<path class=\"trace {colour}\" d=\"M{words}\"/>"));
        }
    }

    /// A rectangle, of which `opacity` is visible; `hint` shows when pointed at.
    pub fn rect(&mut self, Point(x, y): Point, size: Point, class: &str, opacity: f64, hint: &str) {
        let (Point(width, height), hint) = (size, escape(hint));
        let opacity = match opacity {
            o if o < 1.0 => format!(" fill-opacity=\"{o:.2}\""),
            _ => String::new(),
        };
        self.push_element(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\" \
             class=\"{class}\"{opacity}><title>{hint}</title></rect>"
        ));
    }

    /// A disc.
    pub fn circle(&mut self, Point(x, y): Point, radius: f64, class: &str, hint: &str) {
        let hint = escape(hint);
        self.push_element(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\">\
             <title>{hint}</title></circle>"
        ));
    }

    fn push_element(&mut self, mark: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{mark}");
    }

    /// As a part of a page that has the style.
    pub fn to_inline(&self) -> String {
        self.render("", "")
    }

    /// As a file.
    pub fn to_document(&self) -> String {
        let paper = "<rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>\n";
        let head = format!("<style>{STYLE}</style>\n{paper}");
        self.render(" xmlns=\"http://www.w3.org/2000/svg\"", &head)
    }

    /// As a file for viewers without variables and dark mode.
    pub fn to_plain_document(&self) -> String {
        let style = light_style();
        let paper = light_colour("paper");
        let paper = format!("<rect width=\"100%\" height=\"100%\" fill=\"{paper}\"/>\n");
        let head = format!("<style>{style}</style>\n{paper}");
        self.render(" xmlns=\"http://www.w3.org/2000/svg\" width=\"400\"", &head)
    }

    fn render(&self, space: &str, head: &str) -> String {
        let Self { label, height, body } = self;
        format!(
            "<svg{space} viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n\
             {head}{body}</svg>\n"
        )
    }
}

/// The style in its light colours.
fn light_style() -> String {
    let rules = STYLE.split_once("} }\n").map_or(STYLE, |(_, rules)| rules);
    let mut parts = rules.split("var(--");
    let mut style = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some((name, rest)) = part.split_once(')') {
            style += light_colour(name);
            style += rest;
        }
    }
    style
}

/// A light colour by its name.
fn light_colour(name: &str) -> &'static str {
    let found = STYLE.split_once(&format!("--{name}: ")).and_then(|(_, rest)| rest.split_once(';'));
    found.map_or("#000000", |(colour, _)| colour)
}

/// Text as XML wants it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{Point, Svg};

    #[test]
    fn plain_documents_have_literal_colours() {
        let text = Svg::new("", 10.0).to_plain_document();
        assert!(!text.contains("var(") && !text.contains("@media"), "{text}");
        assert!(text.contains("svg .usable { fill: #2a78c2; }"), "{text}");
        assert!(text.contains("fill=\"#ffffff\""), "{text}");
    }

    #[test]
    fn text_is_escaped_in_svg() {
        let mut svg = Svg::new("a \"b\"", 10.0);
        svg.text(Point(0.0, 0.0), "soft", "<script>&");
        let text = svg.to_document();
        assert!(
            text.contains("&lt;script&gt;&amp;") && text.contains("aria-label=\"a &quot;b&quot;\"")
        );
    }
}
