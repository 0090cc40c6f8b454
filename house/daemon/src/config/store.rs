//! The configuration in effect: read at the start, and again when the file changes.
//!
//! A file with mistakes does not take effect: the daemon keeps the old configuration, and reports
//! the reason.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::ConfigReport;
use parking_lot::Mutex;
use toml_edit::{DocumentMut, Item, Table, Value};

use super::{Config, ConfigProblem};
use crate::{Error, Result, state_file};

/// The configuration of a daemon.
pub(crate) struct ConfigStore {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    config: Arc<Config>,
    /// The file on disk when it was last read.
    version: FileVersion,
    /// Its mistakes, if it did not take effect.
    problems: Vec<ConfigProblem>,
}

/// Inode, size and time of change; none if the file does not exist.
type FileVersion = Option<(u64, u64, i64, i64)>;

/// The fields with secrets. Other secrets are in files of their own.
const SECRET_FIELDS: [(&str, &str); 1] = [("alerts", "ntfy_token")];

/// The text of a configuration, without the values of the fields with secrets.
fn without_secrets(config: &Config) -> String {
    let mut text = config.text().to_owned();
    for (section, field) in SECRET_FIELDS {
        let found = config.item(section).and_then(|section| section.get(field)?.as_str());
        if let Some(secret) = found.filter(|secret| !secret.is_empty()) {
            text = text.replace(secret, "(not shown)");
        }
    }
    text
}

impl ConfigStore {
    /// Reads the file. With mistakes in it the defaults take effect.
    pub(crate) fn load(path: PathBuf) -> Self {
        let version = version_of(&path);
        let (config, problems) = match read(&path) {
            Ok(config) => (config, Vec::new()),
            Err(problems) => (Config::default(), problems),
        };
        Self { path, state: Mutex::new(State { config: Arc::new(config), version, problems }) }
    }

    /// The configuration in effect.
    pub(crate) fn current(&self) -> Arc<Config> {
        Arc::clone(&self.state.lock().config)
    }

    /// The configuration in effect, and the mistakes of a file that did not take effect.
    pub(crate) fn report(&self) -> ConfigReport {
        let state = self.state.lock();
        ConfigReport {
            path: self.path.clone(),
            text: without_secrets(&state.config),
            problems: state.problems.iter().map(ToString::to_string).collect(),
        }
    }

    /// Reads the file again if it changed. Returns whether it did.
    pub(crate) fn reload_if_changed(&self) -> bool {
        let version = version_of(&self.path);
        let mut state = self.state.lock();
        if version == state.version {
            return false;
        }
        state.version = version;
        state.problems = match read(&self.path) {
            Ok(config) => {
                state.config = Arc::new(config);
                Vec::new()
            }
            Err(problems) => problems,
        };
        true
    }

    /// Sets a field of a section in the file, or removes it. Comments and other sections stay.
    pub(crate) fn set(&self, section: &str, field: &str, value: Option<&str>) -> Result<()> {
        self.edit(|document| set_field(document, section, field, value))
    }

    /// Changes the file. Nothing is written if `change` fails or the result has mistakes.
    pub(crate) fn edit(
        &self,
        change: impl FnOnce(&mut DocumentMut) -> std::result::Result<(), String>,
    ) -> Result<()> {
        let text = read_text(&self.path).map_err(|why| Error::file_error(&self.path, &why))?;
        let changed = edit_text(&text, change).map_err(|why| self.error(&[why]))?;
        Config::parse(&changed).map_err(|problems| self.error(&problems))?;
        state_file::replace(&self.path, changed.as_bytes())
    }

    fn error(&self, problems: &[ConfigProblem]) -> Error {
        let path = self.path.display();
        let all: Vec<_> = problems.iter().map(|problem| format!("{path}: {problem}")).collect();
        Error::usage_error(all.join("\n"))
    }
}

/// Checks a configuration file without a daemon. Returns its mistakes.
pub fn check(path: &Path) -> std::result::Result<(), Vec<ConfigProblem>> {
    fs::metadata(path).map_err(|why| vec![unreadable(&why)])?;
    read(path).map(drop)
}

fn read(path: &Path) -> std::result::Result<Config, Vec<ConfigProblem>> {
    let text = read_text(path).map_err(|why| vec![unreadable(&why)])?;
    Config::parse(&text)
}

/// The text of the file; empty if the file does not exist.
fn read_text(path: &Path) -> std::io::Result<String> {
    match fs::read_to_string(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

fn unreadable(why: &std::io::Error) -> ConfigProblem {
    let sentence = format!("the file cannot be read: {}", engine::error::io_error_text(why));
    ConfigProblem { line: None, sentence }
}

fn version_of(path: &Path) -> FileVersion {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
}

/// The text after a change.
fn edit_text(
    text: &str,
    change: impl FnOnce(&mut DocumentMut) -> std::result::Result<(), String>,
) -> std::result::Result<String, ConfigProblem> {
    let broken = |why: toml_edit::TomlError| ConfigProblem {
        line: why.span().map(|span| super::line_of(text, span.start)),
        sentence: why.message().to_owned(),
    };
    let mut document: DocumentMut = text.parse().map_err(broken)?;
    change(&mut document).map_err(|sentence| ConfigProblem { line: None, sentence })?;
    Ok(document.to_string())
}

/// Sets a field of a section, or removes it.
fn set_field(
    document: &mut DocumentMut,
    section: &str,
    field: &str,
    value: Option<&str>,
) -> std::result::Result<(), String> {
    let item = document.entry(section).or_insert_with(|| Item::Table(Table::new()));
    let Some(table) = item.as_table_like_mut() else {
        return Err(format!("[{section}] is not a section with single fields"));
    };
    match value {
        None => {
            table.remove(field);
            if table.is_empty() {
                document.remove(section);
            }
        }
        Some(value) => {
            let mut new = parse_value(value);
            // the comment behind the old value stays
            if let Some(old) = table.get(field).and_then(Item::as_value) {
                *new.decor_mut() = old.decor().clone();
            }
            table.insert(field, Item::Value(new));
        }
    }
    Ok(())
}

/// A value that is not TOML is a string.
pub(crate) fn parse_value(text: &str) -> Value {
    text.parse::<Value>().unwrap_or_else(|_| Value::from(text))
}

#[cfg(test)]
mod tests {
    use super::{ConfigStore, edit_text, set_field};

    #[test]
    fn edits_keep_comments() {
        let text = "# mine\n[web] # the API\nlisten = 80 # low\n";
        let edit = |text: &str, value| {
            edit_text(text, |document| set_field(document, "web", "listen", value))
        };
        let set = |text: &str, value| edit(text, value).unwrap();
        let changed = set(text, Some("127.0.0.1:81"));
        assert_eq!(changed, "# mine\n[web] # the API\nlisten = \"127.0.0.1:81\" # low\n");
        assert_eq!(set("", Some("[80, 81]")), "[web]\nlisten = [80, 81]\n");
        assert_eq!(set("[web]\nlisten = 80\n", None), "");
        assert!(edit("[web", None).is_err());
        assert!(edit("web = 1", Some("1")).is_err());
    }

    #[test]
    fn a_file_with_mistakes_does_not_take_effect() {
        let dir = std::env::temp_dir().join(format!("poolhouse-config-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("config.toml");
        let store = ConfigStore::load(path.clone());
        assert!(!store.reload_if_changed() && store.report().text.is_empty());
        store.set("web", "listen", Some("8080")).unwrap();
        assert!(store.reload_if_changed());
        let good = store.report();
        assert_eq!((good.text.as_str(), good.problems.len()), ("[web]\nlisten = 8080\n", 0));
        let why = store.set("web", "listen", Some("nowhere")).unwrap_err().to_string();
        assert!(why.contains("config.toml: line 2: \"nowhere\" is not an address"), "{why}");
        std::fs::write(&path, "[web]\nlisten = \"nowhere\"\n").unwrap();
        assert!(store.reload_if_changed());
        let bad = store.report();
        assert_eq!(bad.text, good.text);
        assert!(bad.problems[0].starts_with("line 2: "), "{:?}", bad.problems);
        std::fs::remove_file(&path).unwrap();
        assert!(store.reload_if_changed());
        assert_eq!(store.report().text, "");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
