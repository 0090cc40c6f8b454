//! `rescue list` compared with `zfs get all -p` of the same pools.

use serde_json::{Map, Value};

use crate::command::{key_files, path_arg, run_json, run_ok};

/// Properties of the importing system, not of the pool.
const IMPORT_PROPERTIES: [&str; 2] = ["mounted", "keystatus"];

/// A value in a manifest: a list is value and source if the source is not the common one.
fn value_and_source(recorded: &Value) -> (&str, Option<&str>) {
    match recorded {
        Value::Array(both) => {
            (both[0].as_str().unwrap_or_default(), both.get(1).and_then(Value::as_str))
        }
        other => (other.as_str().unwrap_or_default(), None),
    }
}

/// The list in a receive_resume_token: its gzip bytes may differ.
pub(crate) fn decode_resume_token(token: &str) -> Vec<u8> {
    let parts: Vec<&str> = token.split('-').collect();
    let ["1", _, size, hex] = parts[..] else { panic!("{token}") };
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let packed: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    let mut list = vec![0; usize::from_str_radix(size, 16).unwrap()];
    let length = libdeflater::Decompressor::new().zlib_decompress(&packed, &mut list).unwrap();
    assert_eq!(length, list.len());
    list
}

fn differences(
    name: &str,
    recorded: &Map<String, Value>,
    found: &Map<String, Value>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (property, recorded) in recorded {
        let (wanted, source) = value_and_source(recorded);
        // an import for reading only sets properties for as long as it lasts
        if source == Some("temporary") || IMPORT_PROPERTIES.contains(&property.as_str()) {
            continue;
        }
        let found = found.get(property).and_then(Value::as_str);
        let alike = match property.as_str() {
            "receive_resume_token" => {
                found.map(decode_resume_token) == Some(decode_resume_token(wanted))
            }
            _ => found == Some(wanted),
        };
        if !alike {
            wrong.push(format!("{name} {property}: {found:?}, and it is {wanted:?}"));
        }
    }
    wrong
}

/// Name and properties of each dataset in the list.
fn dataset_properties(list: &Value) -> Vec<(&str, Map<String, Value>)> {
    let datasets = list["datasets"].as_array().expect("a list of datasets");
    let plain = |dataset: &'_ Value| -> Map<String, Value> {
        let all = dataset["properties"].as_array().expect("a list of properties");
        all.iter()
            .map(|each| {
                (each["name"].as_str().unwrap_or_default().to_owned(), each["value"].clone())
            })
            .collect()
    };
    datasets.iter().map(|each| (each["name"].as_str().unwrap_or_default(), plain(each))).collect()
}

#[test]
fn every_figure_is_that_of_zfs_get() {
    let mut wrong = Vec::new();
    for fixture in fixtures::all() {
        let keys = key_files(&fixture, "list-keys");
        let dir = path_arg(&fixture.dir);
        let mut args =
            vec!["rescue", "list", "-d", dir, fixture.pool_name(), "--properties", "--json"];
        args.extend(keys.iter().map(String::as_str));
        let list = run_json(&args);
        let listed = dataset_properties(&list);
        let datasets = fixture.manifest["datasets"].as_array().expect("it has datasets");
        for dataset in datasets {
            let name = dataset["name"].as_str().expect("it has a name");
            let recorded = dataset["properties"].as_object().expect("it has properties");
            match listed.iter().find(|found| found.0 == name) {
                Some((_, found)) => {
                    let all = differences(name, recorded, found);
                    wrong.extend(all.iter().map(|each| format!("{}: {each}", fixture.name)));
                }
                None => wrong.push(format!("{}: {name} is not listed", fixture.name)),
            }
        }
        for (name, _) in &listed {
            let known = datasets.iter().any(|dataset| dataset["name"] == *name);
            if !known {
                wrong.push(format!("{}: {name} is listed, and there is none", fixture.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn requested_columns_are_shown() {
    let fixture = fixtures::load("mirror-2");
    let list = |more: &[&str]| {
        let mut args = vec!["rescue", "list", "-d", path_arg(&fixture.dir), "tank"];
        args.extend(more);
        run_ok(&args)
    };
    let used = fixture.manifest["datasets"][0]["properties"]["used"].as_str().unwrap_or_default();
    let first = list(&["-Hp", "-o", "name,used", "--depth", "0"]);
    assert_eq!(first, format!("tank\t{used}\n"));
    let table = list(&["-t", "filesystem"]);
    assert!(table.starts_with("NAME "), "{table}");
    assert!(
        table.lines().next().is_some_and(|head| head.contains("AVAIL  REFER  RATIO")),
        "{table}"
    );
    assert!(!table.contains('@'), "only file systems were requested: {table}");
    let all = list(&["-o", "all", "--depth", "0"]);
    assert!(all.starts_with("NAME  PROPERTY ") && all.contains("  compression "), "{all}");
}

#[test]
fn locked_datasets_are_listed_as_locked() {
    let fixture = fixtures::load("encryption");
    let out = run_ok(&["rescue", "list", "-d", path_arg(&fixture.dir), "tank"]);
    let line = |name: &str| out.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line("tank/pass ").contains("filesystem (locked)"), "{out}");
    assert!(!line("tank/plain ").contains("locked"), "{out}");
}
