//! Prometheus' text format.
//!
//! ```text
//! # TYPE zfs_pool_health gauge
//! zfs_pool_health{pool="tank"} 0
//! ```

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// Samples, by the name of their metric: all samples of one stand together.
#[derive(Default)]
pub(super) struct Metrics(BTreeMap<&'static str, String>);

impl Metrics {
    /// Adds a sample with a whole value.
    pub(super) fn add(&mut self, name: &'static str, labels: &[(&str, &str)], value: impl Display) {
        let lines = self.0.entry(name).or_default();
        lines.push_str(name);
        if !labels.is_empty() {
            let all: Vec<_> = labels
                .iter()
                .map(|(label, text)| format!("{label}=\"{}\"", escape(text)))
                .collect();
            lines.push_str(&format!("{{{}}}", all.join(",")));
        }
        // a String takes all that is written
        let _ = writeln!(lines, " {value}");
    }

    /// Adds a sample in hundredths: 7 is "0.07".
    pub(super) fn add_hundredths(
        &mut self,
        name: &'static str,
        labels: &[(&str, &str)],
        hundredths: u64,
    ) {
        self.add(name, labels, format_args!("{}.{:02}", hundredths / 100, hundredths % 100));
    }

    pub(super) fn into_text(self) -> String {
        let kind = |name: &str| if name.ends_with("_total") { "counter" } else { "gauge" };
        let block = |(name, lines): (&'static str, String)| {
            format!("# TYPE {name} {}\n{lines}", kind(name))
        };
        self.0.into_iter().map(block).collect()
    }
}

/// The value of a label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
