//! One page with words, tables and pictures, which stands by itself and can be read on a phone.

use std::fmt::Write;

use crate::svg::{STYLE, Svg, escape};

const PAGE_STYLE: &str = "
body { margin: 0 auto; padding: 16px; max-width: 1100px; background: var(--paper); \
color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .4em 0; }
h2 { font-size: 1.15rem; margin: 2em 0 .6em; } h3 { font-size: 1rem; margin: 1.6em 0 .8em; }
p, li { max-width: 70ch; } .soft { color: var(--soft); }
svg { display: block; width: 100%; height: auto; max-width: 560px; }
.pair { display: grid; gap: 0 40px; \
grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.pair > div { min-width: 0; }
.maps { display: grid; gap: 24px; margin: 1.5em 0; \
grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr)); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th { text-align: right; color: var(--soft); font-weight: 500; vertical-align: bottom; }
td { text-align: right; white-space: nowrap; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 8.5rem; }
@media (min-width: 700px) { td:first-child { white-space: nowrap; } }
tr.best td:first-child { font-weight: 600; }
";

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    html: String,
}

impl Page {
    /// A page with a title.
    pub fn new(title: &str) -> Self {
        let title = escape(title);
        Self {
            html: format!(
                "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
                 <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
                 <title>{title}</title>\n<style>{STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n\
                 <h1>{title}</h1>\n"
            ),
        }
    }

    /// Begins a section with an explanation, which may be empty.
    pub fn add_section(&mut self, title: &str, words: &str) {
        let _ = writeln!(self.html, "<h2>{}</h2>", escape(title));
        if !words.is_empty() {
            self.add_note(words);
        }
    }

    /// A part of a section begins.
    pub fn add_subsection(&mut self, title: &str) {
        let _ = writeln!(self.html, "<h3>{}</h3>", escape(title));
    }

    /// Words.
    pub fn add_paragraph(&mut self, words: &str) {
        let _ = writeln!(self.html, "<p>{}</p>", escape(words));
    }

    /// Words that stand back.
    pub fn add_note(&mut self, words: &str) {
        let _ = writeln!(self.html, "<p class=\"soft\">{}</p>", escape(words));
    }

    /// A list.
    pub fn add_list(&mut self, items: impl IntoIterator<Item = impl AsRef<str>>) {
        self.html.push_str("<ul>\n");
        for item in items {
            let _ = writeln!(self.html, "<li>{}</li>", escape(item.as_ref()));
        }
        self.html.push_str("</ul>\n");
    }

    /// A table.
    pub fn add_table(&mut self, table: &Table) {
        let cells = |out: &mut String, name: &str, cells: &[String]| {
            for cell in cells {
                // a screen reader would announce a head without words
                let name = if cell.is_empty() { "td" } else { name };
                let _ = write!(out, "<{name}>{}</{name}>", escape(cell));
            }
        };
        self.html.push_str("<div class=\"scroll\" tabindex=\"0\"><table>\n<tr>");
        cells(&mut self.html, "th", &table.header);
        self.html.push_str("</tr>\n");
        for (best, row) in &table.rows {
            self.html.push_str(if *best { "<tr class=\"best\">" } else { "<tr>" });
            cells(&mut self.html, "td", row);
            self.html.push_str("</tr>\n");
        }
        self.html.push_str("</table></div>\n");
    }

    /// A picture.
    pub fn add_picture(&mut self, svg: &Svg) {
        self.html.push_str(&svg.to_inline());
    }

    /// Pictures side by side, as many as fit.
    pub fn add_pictures<'a>(&mut self, svgs: impl IntoIterator<Item = &'a Svg>) {
        self.html.push_str("<div class=\"maps\">\n");
        for svg in svgs {
            self.add_picture(svg);
        }
        self.html.push_str("</div>\n");
    }

    /// Sections side by side, if they fit; `fill` gets the number of each.
    pub fn add_columns(&mut self, count: usize, mut fill: impl FnMut(&mut Self, usize)) {
        self.html.push_str("<div class=\"pair\">\n");
        for index in 0..count {
            self.html.push_str("<div>\n");
            fill(self, index);
            self.html.push_str("</div>\n");
        }
        self.html.push_str("</div>\n");
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        self.html.push_str("</main>\n</body>\n</html>\n");
        self.html
    }
}

/// A table under construction: words in the first column, numbers in the others.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<(bool, Vec<String>)>,
}

impl Table {
    /// A table with a head.
    pub fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { header: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row; the `best` ones stand out.
    pub fn add_row(&mut self, best: bool, cells: impl IntoIterator<Item = String>) {
        self.rows.push((best, cells.into_iter().collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::{Page, Table};

    #[test]
    fn text_is_escaped_in_pages() {
        let mut page = Page::new("<a>");
        page.add_section("b & c", "d < e");
        let mut table = Table::new(["", "\"f\""]);
        table.add_row(true, ["<g>".to_owned(), "h".to_owned()]);
        page.add_table(&table);
        let text = page.finish();
        for part in
            ["<title>&lt;a&gt;</title>", "b &amp; c", "d &lt; e", "<td>&lt;g&gt;</td>", "<main>"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("<th></th>"), "a head without words: {text}");
    }
}
