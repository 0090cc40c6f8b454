//! Prints facts: names and values in columns, lists of equal types as tables.

use std::io::{self, Write};

use engine::inspect::Facts;

use crate::table::{Align, Table, escape_control};
use crate::time;

/// Columns by which each level is indented.
const INDENT: usize = 2;

/// Prints facts.
pub(crate) fn print(facts: &Facts) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    print_tree(&mut out, facts, 0)?;
    out.flush()
}

/// Prints a pool's history: a line a record.
pub(crate) fn print_history(facts: &Facts, long: bool) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let records = facts["records"].as_array().map_or(&[][..], Vec::as_slice);
    for record in records {
        let text = |name: &str| match &record[name] {
            Facts::Null => None,
            Facts::String(text) => Some(escape_control(text)),
            other => Some(other.to_string()),
        };
        let when = record["time"].as_u64().map_or_else(|| "-".to_owned(), time::format_local);
        write!(out, "{when}  ")?;
        if let Some(error) = text("error") {
            writeln!(out, "cannot be read: {error}")?;
            continue;
        }
        let is_internal = record.get("txg").is_some();
        if is_internal {
            write!(out, "[txg {}] ", text("txg").unwrap_or_default())?;
        }
        write!(out, "{}", text("what").unwrap_or_default())?;
        for name in ["dataset", "detail"] {
            if let Some(text) = text(name) {
                write!(out, " {text}")?;
            }
        }
        if long {
            let user = text("user").map(|user| format!("user {user}"));
            let host = text("host").map(|host| format!("on {host}"));
            let who: Vec<String> = user.into_iter().chain(host).collect();
            if !who.is_empty() {
                write!(out, "  [{}]", who.join(" "))?;
            }
        }
        writeln!(out)?;
        for name in ["input", "output"] {
            if let Some(list) = record.get(name) {
                writeln!(out, "    {name}:")?;
                print_tree(&mut out, list, 6)?;
            }
        }
    }
    out.flush()
}

fn print_tree(out: &mut dyn Write, facts: &Facts, indent: usize) -> io::Result<()> {
    match facts {
        Facts::Object(entries) => {
            let plain = entries.iter().filter(|(_, value)| is_scalar(value));
            let mut table = Table::new([Align::Left, Align::Left]);
            for (name, value) in plain {
                table.add_row([format!("{name}:"), scalar_text(name, value)]);
            }
            table.with_indent(indent).print(out)?;
            for (name, value) in entries.iter().filter(|(_, value)| !is_scalar(value)) {
                if value.as_array().is_some_and(Vec::is_empty) {
                    writeln!(out, "{:indent$}{}: none", "", escape_control(name))?;
                    continue;
                }
                writeln!(out, "{:indent$}{}:", "", escape_control(name))?;
                print_tree(out, value, indent + INDENT)?;
            }
            Ok(())
        }
        Facts::Array(all) => match table_columns(all) {
            Some(columns) => print_table(out, all, &columns, indent),
            None => print_list(out, all, indent),
        },
        other => writeln!(out, "{:indent$}{}", "", scalar_text("", other)),
    }
}

fn print_list(out: &mut dyn Write, all: &[Facts], indent: usize) -> io::Result<()> {
    for (index, each) in all.iter().enumerate() {
        if is_scalar(each) {
            writeln!(out, "{:indent$}{}", "", scalar_text("", each))?;
        } else {
            writeln!(out, "{:indent$}[{index}]", "")?;
            print_tree(out, each, indent + INDENT)?;
        }
    }
    Ok(())
}

fn is_scalar(value: &Facts) -> bool {
    match value {
        Facts::Object(_) => false,
        Facts::Array(all) => !all.is_empty() && all.len() <= 16 && all.iter().all(Facts::is_number),
        _ => true,
    }
}

/// The columns of a table, if all of a list are things with plain values.
fn table_columns(all: &[Facts]) -> Option<Vec<String>> {
    let mut columns: Vec<String> = Vec::new();
    for each in all {
        for (name, value) in each.as_object()? {
            if !is_scalar(value) {
                return None;
            }
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
    }
    (!columns.is_empty() && columns.len() <= 12).then_some(columns)
}

fn print_table(
    out: &mut dyn Write,
    all: &[Facts],
    columns: &[String],
    indent: usize,
) -> io::Result<()> {
    let align = |name: &String| {
        let mut values = all.iter().filter_map(|each| each.get(name));
        let numbers = values.all(|value| value.is_number() || value.is_null());
        if numbers && !name.ends_with("time") { Align::Right } else { Align::Left }
    };
    let mut table = Table::new(columns.iter().map(align).collect::<Vec<_>>());
    table.add_row(columns.iter().map(|name| name.to_uppercase().replace('_', " ")));
    for each in all {
        let cell = |name: &String| {
            each.get(name).map_or_else(String::new, |value| scalar_text(name, value))
        };
        table.add_row(columns.iter().map(cell));
    }
    table.with_indent(indent).print(out)
}

fn scalar_text(name: &str, value: &Facts) -> String {
    match value {
        Facts::Null => "-".to_owned(),
        Facts::String(text) => escape_control(text),
        Facts::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Facts::Number(number) => match number.as_u64() {
            Some(seconds) if name == "time" || name.ends_with("_time") => {
                time::format_local(seconds)
            }
            _ => number.to_string(),
        },
        Facts::Array(all) => {
            all.iter().map(|each| scalar_text(name, each)).collect::<Vec<_>>().join(" ")
        }
        Facts::Object(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Facts, print_tree};

    #[test]
    fn like_things_are_a_table() {
        let facts: Facts = serde_json::from_str(
            r#"{"pool": "tank", "rows": [{"n": 1, "what": "a"}, {"n": 20, "what": "b"}],
                "none": []}"#,
        )
        .unwrap();
        let mut out = Vec::new();
        print_tree(&mut out, &facts, 0).unwrap();
        let wanted = "pool:  tank\nrows:\n   N  WHAT\n   1  a\n  20  b\nnone: none\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
