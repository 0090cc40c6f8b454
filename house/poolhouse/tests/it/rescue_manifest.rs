//! `rescue manifest`: its output for every fixture equals OpenZFS's facts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fixtures::Fixture;
use serde_json::{Map, Value};

use crate::command::{key_files, path_arg, run};
use crate::list::decode_resume_token;

/// Facts of the import, not of the images.
const IMPORT_PROPERTIES: [&str; 5] =
    ["mounted", "readonly", "snapshots_changed", "keystatus", "altroot"];

/// The manifest of a fixture from images given one by one, as arguments.
fn read_manifest(fixture: &Fixture, images: &[&Path], scratch: &str) -> Value {
    let keys = key_files(fixture, scratch);
    let mut args = vec!["rescue", "manifest", fixture.pool_name()];
    for image in images {
        args.extend(["-d", path_arg(image)]);
    }
    args.extend(keys.iter().map(String::as_str));
    let run = run(&args);
    assert_eq!(run.status, 0, "{}: {}", fixture.name, run.stderr);
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{}: {error}", fixture.name))
}

fn as_list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The differences, a line each.
fn differences(was: &Value, now: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let names = |manifest: &Value| {
        as_list(&manifest["datasets"]).iter().map(|each| each["name"].clone()).collect::<Vec<_>>()
    };
    if names(was) != names(now) {
        out.push(format!("datasets: {:?} became {:?}", names(was), names(now)));
    }
    let known: BTreeMap<_, _> =
        as_list(&now["datasets"]).iter().map(|each| (each["name"].to_string(), each)).collect();
    for was in as_list(&was["datasets"]) {
        let name = was["name"].to_string();
        if let Some(now) = known.get(&name) {
            compare_dataset(&name, was, now, &mut out);
        }
    }
    out
}

fn compare_dataset(name: &str, was: &Value, now: &Value, out: &mut Vec<String>) {
    for part in ["type", "space", "holds", "volume", "refused"] {
        if was[part] != now[part] {
            out.push(format!("{name}: {part}: {} became {}", was[part], now[part]));
        }
    }
    let kept = |properties: &Value| {
        let mut kept = properties.as_object().cloned().unwrap_or_default();
        kept.retain(|property, _| !IMPORT_PROPERTIES.contains(&property.as_str()));
        kept
    };
    compare_fields(name, &kept(&was["properties"]), &kept(&now["properties"]), out);
    let path = |entry: &Value| (entry["path"].clone(), entry["path_hex"].clone());
    let (before, after) = (as_list(&was["entries"]), as_list(&now["entries"]));
    if !before.iter().map(path).eq(after.iter().map(path)) {
        out.push(format!("{name}: other entries, or another order"));
        return;
    }
    for (was, now) in before.iter().zip(after) {
        let (Some(was), Some(mut now)) = (was.as_object(), now.as_object().cloned()) else {
            out.push(format!("{name}: an entry is not an object"));
            continue;
        };
        if !was.contains_key("mtime_ns") {
            now.remove("mtime_ns"); // a replay sets its own time
        }
        let path = was.get("path").or(was.get("path_hex")).map(Value::to_string);
        compare_fields(&format!("{name}: {}", path.unwrap_or_default()), was, &now, out);
    }
}

fn compare_fields(
    place: &str,
    was: &Map<String, Value>,
    now: &Map<String, Value>,
    out: &mut Vec<String>,
) {
    let keys: BTreeSet<_> = was.keys().chain(now.keys()).collect();
    let token = |value: Option<&Value>| value.and_then(Value::as_str).map(decode_resume_token);
    for key in keys {
        let words = key == "error" && was.contains_key(key) && now.contains_key(key);
        if key == "receive_resume_token" && token(was.get(key)) == token(now.get(key)) {
            continue;
        }
        if was.get(key) != now.get(key) && !words {
            out.push(format!("{place}: {key}: {:?} became {:?}", was.get(key), now.get(key)));
        }
    }
}

pub(crate) fn check_manifest(fixture: &Fixture, left_out: &[usize], scratch: &str) {
    let images = fixture.images();
    let there: Vec<&Path> = images
        .iter()
        .enumerate()
        .filter(|(index, _)| !left_out.contains(index))
        .map(|(_, path)| path.as_path())
        .collect();
    let found = differences(&fixture.manifest, &read_manifest(fixture, &there, scratch));
    let shown: Vec<_> = found.iter().take(20).collect();
    assert!(found.is_empty(), "{} without {left_out:?}: {shown:#?}", fixture.name);
}

/// All non-empty sets of at most `most` of this many images.
fn subsets(images: usize, most: usize) -> Vec<Vec<usize>> {
    let all = (1_u32..1 << images).filter(|set| set.count_ones() as usize <= most);
    all.map(|set| (0..images).filter(|image| set >> image & 1 == 1).collect()).collect()
}

#[test]
fn devices_within_the_redundancy_may_be_missing() {
    // how many images may be missing, of those pools that are one vdev with nothing wrong in it
    let redundancies = [
        ("mirror-2", 1),
        ("mirror-3", 2),
        ("draid1", 1),
        ("expanded", 1),
        ("raidz3-5", 3),
        ("raidz1-3", 1),
        ("checkpoint", 1),
        ("version-28", 1),
        ("expanding", 2),
        ("compat", 1),
        ("scrub-paused", 1),
        ("intent-log", 1),
        ("in-use", 1),
        ("dedup-legacy", 1),
        ("encryption", 1),
        ("gang", 1),
        ("limits-and-freeing", 1),
        ("version-28-upgraded", 1),
        ("volumes", 1),
        ("whole-disk", 1),
        ("attributes", 1),
    ];
    let mut count = 0;
    for (name, most) in redundancies.into_iter().filter(|(name, _)| fixtures::exists(name)) {
        let fixture = fixtures::load(name);
        for set in subsets(fixture.images().len(), most) {
            check_manifest(&fixture, &set, "manifest-missing");
            count += 1;
        }
    }
    assert!(count >= 15, "only {count} sets");
}

#[test]
fn loss_beyond_the_redundancy_is_reported() {
    let fixture = fixtures::load("expanded");
    let images = fixture.images();
    let mut args = vec!["rescue", "manifest", fixture.pool_name()];
    for image in &images[2..] {
        args.extend(["-d", path_arg(image)]);
    }
    let run = run(&args);
    assert!(matches!(run.status, 1 | 5 | 6), "{}: {}", run.status, run.stderr);
    assert!(run.stderr.contains("missing"), "{}", run.stderr);
}

#[test]
fn target_includes_its_descendants() {
    let fixture = fixtures::load("snapshots");
    let names = |target: &str, more: &[&str]| -> Vec<String> {
        let mut args = vec!["rescue", "manifest", target, "-d", path_arg(&fixture.dir)];
        args.extend(more);
        let run = run(&args);
        assert_eq!(run.status, 0, "{}", run.stderr);
        let all: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let name = |each: &Value| each["name"].as_str().unwrap_or_default().to_owned();
        as_list(&all["datasets"]).iter().map(name).collect()
    };
    assert_eq!(names("tank/a/b@one", &[]), ["tank/a/b@one"]);
    let below = names("tank/a", &[]);
    assert!(below.contains(&"tank/a/b@two".to_owned()), "{below:?}");
    assert!(below.iter().all(|name| name.starts_with("tank/a")), "{below:?}");
    let alone = names("tank/a", &["--no-children"]);
    assert!(alone.iter().all(|name| !name.starts_with("tank/a/")), "{alone:?}");
}
