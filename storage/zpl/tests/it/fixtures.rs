//! Every file of every dataset of the fixtures, as OpenZFS shows it.

use std::sync::Arc;

use ::fixtures::Fixture;
use serde_json::Value;
use zil::LogReader;
use zpl::{Fs, FsOptions};

use crate::{compare, open};

/// How a log is replayed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplayMode {
    /// Over the file system, in memory.
    Overlay,
    /// Into it, as changes.
    Write,
}

/// The file system with its log replayed, or what went wrong.
fn open_and_replay(
    objset: dmu::Objset,
    options: FsOptions,
    mut log: LogReader,
    how: ReplayMode,
) -> Result<Fs, String> {
    if how == ReplayMode::Overlay {
        let opened = Fs::open(objset, options, Some(&mut log));
        let (fs, replayed) = opened.map_err(|why| why.to_string())?;
        return match replayed.failed_record {
            Some((seq, why)) => Err(format!("record {seq}: {why}")),
            None => Ok(fs),
        };
    }
    let writer = crate::foreign_datasets::open_writer(&objset, options);
    for entry in log {
        let entry = entry.map_err(|why| why.to_string())?;
        let done = writer.replay_record(crate::test_fs::time_at(1), &entry);
        done.map_err(|why| format!("record {}: {why}", entry.record.seq))?;
    }
    Ok(writer.fs().clone())
}

/// The differences in a fixture, a line each.
fn differences(fixture: &Fixture, how: ReplayMode) -> Vec<String> {
    let (pool, tree) = open::pool(fixture);
    let mut out = Vec::new();
    let listed = fixture.manifest["datasets"].as_array().expect("datasets");
    for listed in listed {
        let Some(entries) = listed["entries"].as_array() else { continue };
        let name = listed["name"].as_str().expect("a name");
        let properties = &listed["properties"];
        let objset = match tree.find(name).and_then(|dataset| dataset.open_objset()) {
            Ok(objset) => objset,
            Err(why) => {
                out.push(format!("{name}: {why}"));
                continue;
            }
        };
        let log = objset.header().log.clone();
        let (source, key) = (Arc::clone(objset.source()), objset.key().cloned());
        let log = LogReader::new(source, objset.id(), &log, key, pool.txg());
        let options = FsOptions {
            posix_acls: property(properties, "acltype") == "posix",
            user_xattrs: property(properties, "xattr") != "off",
            is_redacted: false,
            ..FsOptions::default()
        };
        match open_and_replay(objset, options, log, how) {
            Ok(fs) => {
                let found = compare::manifest_differences(&fs, entries, name.contains('@'));
                out.extend(found.into_iter().map(|line| format!("{name}: {line}")));
            }
            Err(why) => out.push(format!("{name}: {why}")),
        }
    }
    out
}

/// A property's value, wherever it comes from.
fn property<'a>(properties: &'a Value, name: &str) -> &'a str {
    match &properties[name] {
        Value::Array(pair) => pair.first().and_then(Value::as_str).unwrap_or_default(),
        value => value.as_str().unwrap_or_default(),
    }
}

fn check_fixtures(names: &[&str], how: ReplayMode) {
    let mut out = Vec::new();
    for name in names.iter().filter(|name| ::fixtures::exists(name)) {
        let fixture = ::fixtures::load(name);
        out.extend(differences(&fixture, how).into_iter().map(|line| format!("{name}: {line}")));
    }
    let shown: Vec<&String> = out.iter().take(60).collect();
    assert!(out.is_empty(), "{} differences: {shown:#?}", out.len());
}

#[test]
fn files_are_as_openzfs_shows_them() {
    let special = ["intent-log", "intent-log-slog", "whole-disk", "in-use"];
    let names = ::fixtures::names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !special.contains(name)).collect();
    check_fixtures(&names, ReplayMode::Overlay);
}

#[test]
fn a_log_is_replayed_as_openzfs_does() {
    check_fixtures(&["intent-log", "intent-log-slog", "whole-disk", "in-use"], ReplayMode::Overlay);
}

#[test]
fn a_log_is_replayed_into_a_file_system() {
    check_fixtures(&["intent-log", "intent-log-slog", "whole-disk", "in-use"], ReplayMode::Write);
}

/// Redacted ranges of a dataset give errors; the rest equals its origin.
#[test]
fn redacted_files_give_errors_and_never_zeros() {
    if !::fixtures::exists("redacted") {
        return;
    }
    let (_, tree) = open::pool(&::fixtures::load("redacted"));
    let open = |name: &str, redacted| {
        let objset = tree.find(name).expect("a dataset").open_objset().expect("an object set");
        let options = FsOptions { is_redacted: redacted, ..FsOptions::default() };
        Fs::open(objset, options, None).expect("a file system").0
    };
    let (whole, redacted) = (open("tank/whole@a", false), open("tank/redacted", true));
    let found = compare::compare_redacted(&whole, &redacted);
    assert_eq!(found.different, Vec::<String>::new());
    // 21 files were removed before the redaction and 5 were changed; the rest is to be there
    assert_eq!((found.refused, found.same), (26, 320));
}
