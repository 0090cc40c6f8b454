//! The table of vdevs below `config:`, with the widths that zpool(8) gives its columns.
//!
//! ```text
//! TAB NAME        STATE     READ WRITE CKSUM
//! TAB tank        ONLINE       0     0     0
//! TAB   mirror-0  ONLINE       0     0     0
//! ```

use std::io::{self, Write};

use crate::table::escape_control;

/// The least width of the column of names.
const MIN_NAME_WIDTH: usize = 10;
/// The least width of a column of counts.
const MIN_COUNT_WIDTH: usize = 5;

/// A row: a vdev, or the head of a class such as `logs`.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// How far below the pool, which is 0.
    pub(super) depth: usize,
    /// The name of the vdev.
    pub(super) name: String,
    /// Its state; none for the head of a class.
    pub(super) state: Option<String>,
    /// Its counts of errors, if it has any; `-` where they make no sense.
    pub(super) counts: Vec<String>,
    /// The words behind them.
    pub(super) notes: Vec<String>,
}

impl Row {
    /// The head of a class of vdevs.
    pub(super) fn class(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// Prints rows below a head with these columns of counts.
pub(super) fn print_rows(rows: &[Row], counts: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let width = name_width(rows);
    let widths: Vec<usize> = counts
        .iter()
        .enumerate()
        .map(|(at, head)| {
            let cells =
                rows.iter().filter_map(|row| row.counts.get(at)).map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(head.chars().count()).max(MIN_COUNT_WIDTH)
        })
        .collect();
    write!(out, "\t{:width$}  {:<8}", "NAME", "STATE")?;
    for (count, width) in counts.iter().zip(&widths) {
        write!(out, " {:>width$}", escape_control(count))?;
    }
    writeln!(out)?;
    for row in rows {
        let name = indented_name(row);
        let Some(state) = &row.state else {
            writeln!(out, "\t{name}\t")?;
            continue;
        };
        write!(out, "\t{name:width$}  {state:<8}")?;
        for (count, width) in row.counts.iter().zip(&widths) {
            write!(out, " {:>width$}", escape_control(count))?;
        }
        for note in &row.notes {
            write!(out, "  {}", escape_control(note))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Prints the names and states of rows without a head, as `zpool import` does.
pub(super) fn print_states(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let width = name_width(rows);
    for row in rows {
        let name = indented_name(row);
        match &row.state {
            Some(state) => writeln!(out, "\t{name:width$}  {state}")?,
            None => writeln!(out, "\t{name}\t")?,
        }
    }
    Ok(())
}

/// The width of the column of names.
fn name_width(rows: &[Row]) -> usize {
    let widths = rows.iter().map(|row| indented_name(row).chars().count());
    widths.max().unwrap_or(0).max(MIN_NAME_WIDTH)
}

fn indented_name(row: &Row) -> String {
    format!("{}{}", "  ".repeat(row.depth), escape_control(&row.name))
}

#[cfg(test)]
mod tests {
    use super::{Row, print_rows};

    #[test]
    fn rows_have_the_widths_of_zpool_status() {
        let vdev = |depth, name: &str| Row {
            depth,
            name: name.to_owned(),
            state: Some("ONLINE".to_owned()),
            counts: ["0", "0", "12"].map(str::to_owned).to_vec(),
            notes: Vec::new(),
        };
        let spare =
            Row { counts: Vec::new(), state: Some("AVAIL".to_owned()), ..vdev(1, "/ram/c") };
        let noted = Row { notes: vec!["was /ram/f".to_owned()], ..vdev(1, "/ram/f") };
        let rows = [vdev(0, "tank"), vdev(1, "mirror-0"), Row::class("spares"), spare, noted];
        let mut out = Vec::new();
        print_rows(&rows, &["READ", "WRITE", "CKSUM"], &mut out).unwrap();
        let wanted = "\tNAME        STATE     READ WRITE CKSUM\n\
                      \ttank        ONLINE       0     0    12\n\
                      \t  mirror-0  ONLINE       0     0    12\n\
                      \tspares\t\n\
                      \t  /ram/c    AVAIL   \n\
                      \t  /ram/f    ONLINE       0     0    12  was /ram/f\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
