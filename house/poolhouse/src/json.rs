//! JSON in the form of zpool(8) and zfs(8) since 2.3: one object on one line, with `output_version`.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use units::human_space;

/// How numbers are written.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct JsonArgs {
    /// With --json: numbers as numbers, not as text
    #[arg(long = "json-int", requires = "json")]
    pub(crate) integers: bool,
}

/// How a command prints numbers as JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberStyle {
    /// As numbers.
    pub(crate) integers: bool,
    /// Exact, as text.
    pub(crate) exact: bool,
}

impl NumberStyle {
    /// A number that is always exact.
    pub(crate) fn count(self, number: u64) -> Value {
        if self.integers { json!(number) } else { json!(number.to_string()) }
    }

    /// A number of bytes.
    pub(crate) fn space(self, bytes: u64) -> Value {
        match self {
            Self { integers: true, .. } => json!(bytes),
            Self { exact: true, .. } => json!(bytes.to_string()),
            _ => json!(human_space(bytes)),
        }
    }

    /// The value of a property, as the command formatted it.
    pub(crate) fn value(self, text: String) -> Value {
        match text.parse::<u64>() {
            Ok(number) if self.integers => json!(number),
            _ => Value::String(text),
        }
    }

    /// Whether sizes are exact.
    pub(crate) fn is_exact(self) -> bool {
        self.integers || self.exact
    }
}

/// A property with its value and source.
pub(crate) fn property(value: &Value, source: &str) -> Value {
    let (kind, data) = match source {
        "" | "-" => ("NONE".to_owned(), "-"),
        other => match other.split_once(" from ") {
            Some((kind, dataset)) => (kind.to_uppercase(), dataset),
            None => (other.to_uppercase(), "-"),
        },
    };
    json!({ "value": value, "source": { "type": kind, "data": data } })
}

/// Prints what `command` found: `facts` below `key`.
pub(crate) fn print(command: &str, key: &str, facts: Map<String, Value>) -> io::Result<()> {
    let mut whole = Map::new();
    whole.insert("output_version".to_owned(), output_version(command));
    whole.insert(key.to_owned(), Value::Object(facts));
    writeln!(io::stdout().lock(), "{}", Value::Object(whole))
}

fn output_version(command: &str) -> Value {
    json!({ "command": command, "vers_major": 0, "vers_minor": 1 })
}

#[cfg(test)]
mod tests {
    use super::{NumberStyle, property};

    #[test]
    fn sources_and_numbers_have_the_form_of_zfs() {
        let inherited = property(&"lz4".into(), "inherited from tank/a").to_string();
        assert_eq!(inherited, r#"{"value":"lz4","source":{"type":"INHERITED","data":"tank/a"}}"#);
        let none = property(&"1K".into(), "-").to_string();
        assert_eq!(none, r#"{"value":"1K","source":{"type":"NONE","data":"-"}}"#);
        let style = |integers, exact| NumberStyle { integers, exact }.space(2048).to_string();
        assert_eq!(
            [style(false, false), style(false, true), style(true, false)],
            [r#""2K""#, r#""2048""#, "2048"]
        );
    }
}
