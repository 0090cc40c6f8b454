//! Tables: aligned columns, as wide as needed.

use std::io::{self, Write};

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table under construction.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    indent: usize,
    columns: Vec<Align>,
    min_widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns, without a head.
    pub(crate) fn new(columns: impl Into<Vec<Align>>) -> Self {
        Self { indent: 0, columns: columns.into(), min_widths: Vec::new(), rows: Vec::new() }
    }

    /// A table with a head.
    pub(crate) fn with_header(columns: &[(&str, Align)]) -> Self {
        let mut table = Self::new(columns.iter().map(|column| column.1).collect::<Vec<_>>());
        table.add_row(columns.iter().map(|column| column.0.to_owned()));
        table
    }

    /// A table without a head, of columns with sides and least widths.
    pub(crate) fn with_shapes(shapes: &[(Align, usize)]) -> Self {
        let min_widths = shapes.iter().map(|shape| shape.1).collect();
        Self { min_widths, ..Self::new(shapes.iter().map(|shape| shape.0).collect::<Vec<_>>()) }
    }

    /// Spaces before each row.
    pub(crate) fn with_indent(mut self, spaces: usize) -> Self {
        self.indent = spaces;
        self
    }

    /// Adds a row.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| escape_control(&cell)).collect());
    }

    /// Adds a row of which tabs and line ends stay as they are, as zfs(8) prints the values of users' own properties.
    pub(crate) fn add_text_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| escape_terminal(&cell)).collect());
    }

    /// Prints its rows for programs: cells separated by tabs.
    pub(crate) fn print_tab_separated(&self, out: &mut dyn Write) -> io::Result<()> {
        for row in &self.rows {
            writeln!(out, "{}", row.join("\t"))?;
        }
        Ok(())
    }

    /// Prints it.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let least = self.min_widths.get(column).copied().unwrap_or(0);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(least)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            for ((cell, width), align) in row.iter().zip(&widths).zip(&self.columns) {
                let width = *width;
                match align {
                    Align::Left => line += &format!("{cell:width$}  "),
                    Align::Right => line += &format!("{cell:>width$}  "),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The same without anything that a terminal would obey: names come from disks that others wrote.
pub(crate) fn escape_control(text: &str) -> String {
    escape_if(text, char::is_control)
}

/// The same with tabs and line ends as they are.
pub(crate) fn escape_terminal(text: &str) -> String {
    escape_if(text, |c| c.is_control() && !matches!(c, '\t' | '\n'))
}

fn escape_if(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    if !text.chars().any(&is_escaped) {
        return text.to_owned();
    }
    let plain = |c: char| if is_escaped(c) { c.escape_default().to_string() } else { c.into() };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::{Align, Table, escape_control, escape_terminal};

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        let mut table = Table::with_header(&[("NAME", Align::Left), ("USED", Align::Right)]);
        table.add_row(["tank/long".to_owned(), "1K".to_owned()]);
        let mut out = Vec::new();
        table.with_indent(1).print(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), " NAME       USED\n tank/long    1K\n");
    }

    #[test]
    fn no_name_can_command_the_terminal() {
        assert_eq!(escape_control("a\x1b[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(escape_terminal("a\x1b[31m\tb\n"), "a\\u{1b}[31m\tb\n");
    }
}
