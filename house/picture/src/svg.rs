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

/// A picture in the making.
#[derive(Clone, Debug)]
pub struct Svg {
    label: String,
    height: f64,
    body: String,
}

/// A place in a picture: units to the right of its upper left corner, and down from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At(pub f64, pub f64);

impl Svg {
    /// A picture `height` units high; `label` says what it shows to those who do not see it.
    pub fn new(label: &str, height: f64) -> Self {
        Self { label: escape(label), height, body: String::new() }
    }

    /// Words.
    pub fn text(&mut self, At(x, y): At, class: &str, words: &str) {
        let words = escape(words);
        self.mark(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>"));
    }

    /// A straight line.
    pub fn line(&mut self, At(x, y): At, At(to_x, to_y): At) {
        self.mark(format_args!("<path class=\"line\" d=\"M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}\"/>"));
    }

    /// A level line with an end at both sides: from where to where something may be.
    pub fn whisker(&mut self, At(left, y): At, At(right, _): At) {
        let (top, bottom) = (y - 3.0, y + 3.0);
        self.mark(format_args!(
            "<path class=\"whisker\" d=\"M{left:.1} {y:.1}H{right:.1}M{left:.1} {top:.1}\
             V{bottom:.1}M{right:.1} {top:.1}V{bottom:.1}\"/>"
        ));
    }

    /// A line through places, in a colour.
    pub fn trace(&mut self, places: &[At], colour: &str) {
        let words = places.iter().map(|At(x, y)| format!("{x:.1} {y:.1}"));
        let words = words.collect::<Vec<_>>().join("L");
        if !words.is_empty() {
            self.mark(format_args!("<path class=\"trace {colour}\" d=\"M{words}\"/>"));
        }
    }

    /// A rectangle, of which `opacity` is visible; `hint` shows when pointed at.
    pub fn rect(&mut self, At(x, y): At, size: At, class: &str, opacity: f64, hint: &str) {
        let (At(width, height), hint) = (size, escape(hint));
        let opacity = match opacity {
            o if o < 1.0 => format!(" fill-opacity=\"{o:.2}\""),
            _ => String::new(),
        };
        self.mark(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\" \
             class=\"{class}\"{opacity}><title>{hint}</title></rect>"
        ));
    }

    /// A disc.
    pub fn disc(&mut self, At(x, y): At, radius: f64, class: &str, hint: &str) {
        let hint = escape(hint);
        self.mark(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\">\
             <title>{hint}</title></circle>"
        ));
    }

    fn mark(&mut self, mark: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{mark}");
    }

    /// As a part of a page that has the style.
    pub fn inline(&self) -> String {
        self.element("", "")
    }

    /// As a file.
    pub fn file(&self) -> String {
        let paper = "<rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>\n";
        let head = format!("<style>{STYLE}</style>\n{paper}");
        self.element(" xmlns=\"http://www.w3.org/2000/svg\"", &head)
    }

    /// As a file for readers that know neither variables nor dark screens.
    pub fn plain_file(&self) -> String {
        let style = plain_style();
        let paper = colour_of("paper");
        let paper = format!("<rect width=\"100%\" height=\"100%\" fill=\"{paper}\"/>\n");
        let head = format!("<style>{style}</style>\n{paper}");
        self.element(" xmlns=\"http://www.w3.org/2000/svg\" width=\"400\"", &head)
    }

    fn element(&self, space: &str, head: &str) -> String {
        let Self { label, height, body } = self;
        format!(
            "<svg{space} viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n\
             {head}{body}</svg>\n"
        )
    }
}

/// The style in its light colours.
fn plain_style() -> String {
    let rules = STYLE.split_once("} }\n").map_or(STYLE, |(_, rules)| rules);
    let mut parts = rules.split("var(--");
    let mut style = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some((name, rest)) = part.split_once(')') {
            style += colour_of(name);
            style += rest;
        }
    }
    style
}

/// A light colour by its name.
fn colour_of(name: &str) -> &'static str {
    let found = STYLE.split_once(&format!("--{name}: ")).and_then(|(_, rest)| rest.split_once(';'));
    found.map_or("#000000", |(colour, _)| colour)
}

/// Text as XML wants it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{At, Svg};

    #[test]
    fn plain_files_have_their_colours_in_place() {
        let text = Svg::new("", 10.0).plain_file();
        assert!(!text.contains("var(") && !text.contains("@media"), "{text}");
        assert!(text.contains("svg .usable { fill: #2a78c2; }"), "{text}");
        assert!(text.contains("fill=\"#ffffff\""), "{text}");
    }

    #[test]
    fn words_cannot_break_the_picture() {
        let mut svg = Svg::new("a \"b\"", 10.0);
        svg.text(At(0.0, 0.0), "soft", "<script>&");
        let text = svg.file();
        assert!(
            text.contains("&lt;script&gt;&amp;") && text.contains("aria-label=\"a &quot;b&quot;\"")
        );
    }
}
