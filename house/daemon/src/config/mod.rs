//! The configuration file, `config.toml`: its sections, and messages about mistakes.
//!
//! ```toml
//! [web]                          # the API on TCP
//! listen = "127.0.0.1:8080"      # or a list, or a port alone (loopback); without it nothing listens
//!
//! [health]                       # see drives/config.rs
//! [bays]                         # see the crate `health`
//! [alerts]                       # see the crate `alerts`
//! [ups]                          # see the crate `ups`
//! [hours]                        # see hours.rs
//! [fans]                         # see the crate `fans`
//! [mounts]                       # see services/mounts.rs
//! ```
//!
//! A section belongs to a service, which knows its fields: a new service adds its section. A
//! section of a service that this version does not have is refused, never ignored. Shares of all
//! protocols are in `[[share]]`, see `shares::entry`.

mod listen;
mod portmapper;
mod sections;
mod store;

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeOwned, IntoDeserializer};
use toml_edit::{Document, InlineTable, Item, Key, Value};

pub(crate) use listen::Listen;
pub(crate) use portmapper::PortmapperSetting;
pub(crate) use sections::{add_section, remove_sections};
pub use store::check as check_config;
pub(crate) use store::{ConfigStore, parse_value};

use crate::services;

/// A section that a service owns.
#[derive(Clone, Copy)]
pub(crate) struct Section {
    /// Its name in brackets.
    pub(crate) name: &'static str,
    /// Checks its content.
    pub(crate) check: fn(&Item) -> Vec<SectionProblem>,
}

/// A mistake in a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectionProblem {
    /// The bytes of the file where it is.
    pub(crate) span: Option<Range<usize>>,
    /// A sentence: the mistake, and how to correct it.
    pub(crate) sentence: String,
}

/// Checks that a section has the fields of `T`.
pub(crate) fn check_section<T: DeserializeOwned>(item: &Item) -> Vec<SectionProblem> {
    let problem = |why: toml_edit::de::Error| SectionProblem {
        span: why.span(),
        sentence: why.message().to_owned(),
    };
    read_section::<T>(item.clone()).err().map(problem).into_iter().collect()
}

fn read_section<T: DeserializeOwned>(item: Item) -> Result<T, toml_edit::de::Error> {
    // the parser makes no item that is not a value
    let value = item.into_value().unwrap_or_else(|_| Value::InlineTable(InlineTable::new()));
    T::deserialize(value.into_deserializer())
}

/// A configuration file without mistakes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    document: Option<Document<String>>,
}

/// A mistake in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// A sentence: the mistake, and how to correct it.
    pub sentence: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.sentence)
    }
}

impl Config {
    /// Reads a configuration and checks it with the services of this version.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<ConfigProblem>> {
        let problem = |span: Option<Range<usize>>, sentence: &str| ConfigProblem {
            line: span.map(|span| line_of(text, span.start)),
            sentence: sentence.trim().replace('\n', " "),
        };
        let document = Document::parse(text.to_owned())
            .map_err(|why| vec![problem(why.span(), why.message())])?;
        let mut problems = Vec::new();
        for (name, item) in document.as_table() {
            let span = document.as_table().key(name).and_then(Key::span).or(item.span());
            match services::sections().find(|section| section.name == name) {
                Some(section) => {
                    for SectionProblem { span: at, sentence } in (section.check)(item) {
                        problems.push(problem(at.or(span.clone()), &sentence));
                    }
                }
                None => problems.push(problem(span, &unknown_section(name))),
            }
        }
        if problems.is_empty() { Ok(Self { document: Some(document) }) } else { Err(problems) }
    }

    /// The content of a section; its default if the file does not have it.
    pub(crate) fn section<T: DeserializeOwned + Default>(&self, name: &str) -> T {
        // `parse` checked the section with the same type
        self.item(name).and_then(|item| read_section(item.clone()).ok()).unwrap_or_default()
    }

    /// A section as it is in the file.
    pub(crate) fn item(&self, name: &str) -> Option<&Item> {
        self.document.as_ref()?.as_table().get(name)
    }

    /// The line of bytes of the file, counted from 1.
    pub(crate) fn line_of(&self, span: Option<&Range<usize>>) -> Option<usize> {
        span.map(|span| line_of(self.text(), span.start))
    }

    /// The text of the file; empty if the file does not exist.
    pub(crate) fn text(&self) -> &str {
        self.document.as_ref().map_or("", Document::raw)
    }
}

fn unknown_section(name: &str) -> String {
    let known: Vec<_> = services::sections().map(|section| format!("[{}]", section.name)).collect();
    format!("[{name}]: there is no such section; known are {}", known.join(", "))
}

/// The line of a byte, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::Config;
    use crate::services::WebConfig;

    fn problems(text: &str) -> Vec<String> {
        let problems = Config::parse(text).err().unwrap_or_default();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_correct_file_is_read() {
        let text = "# for the family\n[web]\nlisten = [\"127.0.0.1:80\", \"[::1]:81\", 82]\n";
        let config = Config::parse(text).unwrap();
        let web: WebConfig = config.section("web");
        let listen: Vec<_> = web.listen.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["127.0.0.1:80", "[::1]:81", "127.0.0.1:82"]);
        assert_eq!(config.text(), text);
        let web: WebConfig = Config::parse("").unwrap().section("web");
        assert!(web.listen.addresses().is_empty());
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        for (text, why) in [
            ("[web]\n\nlisten = \"here\"\n", "line 3: \"here\" is not an address and a port"),
            ("[web]\nlistn = 80\n", "line 2: unknown field `listn`"),
            ("[web]\nlisten = 70000\n", "line 2: 70000 is not a port"),
            ("[web]\nlisten = true\n", "line 2: "),
            ("[web\n", "line 1: "),
            ("\n[ftp]\nlisten = 21\n", "line 2: [ftp]: there is no such section; known are "),
            ("[[share]]\nname = \"a\"\n", "line 1: [[share]] needs the field protocol"),
            ("[share]\n", "line 1: [share]: write [[share]] above each share"),
            ("[wab]\n", "line 1: [wab]: there is no such section; known are "),
            ("listen = 80\n", "line 1: [listen]: there is no such section"),
        ] {
            let found = problems(text);
            assert!(found.len() == 1 && found[0].starts_with(why), "{text}: {found:?}");
        }
        assert_eq!(problems("[web]\nx = 1\n[ftp]\n").len(), 2);
    }
}
