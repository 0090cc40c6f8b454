//! Every file of every dataset of the fixtures, as OpenZFS shows it.

use std::sync::Arc;

use ::fixtures::Fixture;
use dmu::Objset;
use serde_json::Value;
use zil::Records;
use zpl::{Fs, Options};

use crate::{compare, open};

/// What differs in a fixture, a line each. Encrypted datasets are left to the tests of the floors
/// that know their keys.
fn differences(fixture: &Fixture) -> Vec<String> {
    let pool = open::pool(fixture);
    let datasets = open::datasets(&pool);
    let mut out = Vec::new();
    let listed = fixture.manifest["datasets"].as_array().expect("datasets");
    for listed in listed {
        let Some(entries) = listed["entries"].as_array() else { continue };
        let name = listed["name"].as_str().expect("a name");
        let properties = &listed["properties"];
        if properties["encryption"] != "off" && !properties["encryption"].is_null() {
            continue;
        }
        let Some((id, phys)) = datasets.get(name) else {
            out.push(format!("{name}: is not there"));
            continue;
        };
        let objset = Objset::open(pool.source(), *id, &phys.root, None).expect("an object set");
        let log = objset.header().log.clone();
        let mut log = Records::new(Arc::clone(objset.source()), *id, &log, None, pool.txg());
        let options = Options {
            posix_acls: property(properties, "acltype") == "posix",
            user_xattrs: property(properties, "xattr") != "off",
        };
        match Fs::open(objset, options, Some(&mut log)) {
            Ok((fs, replayed)) => {
                if let Some((seq, why)) = replayed.failed {
                    out.push(format!("{name}: record {seq}: {why}"));
                }
                let found = compare::differences(&fs, entries, name.contains('@'));
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

fn check(names: &[&str]) {
    let mut out = Vec::new();
    for name in names.iter().filter(|name| ::fixtures::has(name)) {
        let fixture = ::fixtures::load(name);
        out.extend(differences(&fixture).into_iter().map(|line| format!("{name}: {line}")));
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
    check(&names);
}

#[test]
fn a_log_is_replayed_as_openzfs_does() {
    check(&["intent-log", "intent-log-slog", "whole-disk", "in-use"]);
}
