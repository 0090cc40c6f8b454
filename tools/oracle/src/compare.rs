//! Compares two manifests of one pool.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Properties of an import, not of the images.
const VOLATILE_PROPERTIES: [&str; 5] =
    ["load_guid", "mounted", "altroot", "readonly", "snapshots_changed"];

/// The differences between the datasets that OpenZFS recorded and ours, a line each. Where
/// OpenZFS stopped replaying a log, because it cannot remove a missing attribute, we show more.
pub fn differences(theirs: &Value, ours: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let stopped: Vec<&str> = theirs["replay_stopped"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut left = datasets_by_name(ours);
    for (name, theirs) in datasets_by_name(theirs) {
        match left.remove(&name) {
            Some(_) if stopped.contains(&name.as_str()) => (),
            Some(ours) => compare_datasets(&name, theirs, ours, &mut out),
            None => out.push(format!("{name}: is not shown")),
        }
    }
    out.extend(left.keys().map(|name| format!("{name}: does not exist")));
    out
}

fn datasets_by_name(manifest: &Value) -> BTreeMap<String, &Value> {
    let datasets = manifest["datasets"].as_array();
    let named = |dataset: &'_ _| -> Option<String> {
        let dataset: &Value = dataset;
        dataset["name"].as_str().map(str::to_owned)
    };
    datasets.into_iter().flatten().filter_map(|dataset| Some((named(dataset)?, dataset))).collect()
}

fn compare_datasets(name: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    for key in all_keys(theirs, ours) {
        match key.as_str() {
            "entries" => compare_entries(name, &theirs[&key], &ours[&key], out),
            "properties" => {
                for property in all_keys(&theirs[&key], &ours[&key]) {
                    if !VOLATILE_PROPERTIES.contains(&property.as_str()) {
                        let place = format!("{name}: {property}");
                        compare_values(
                            &place,
                            &theirs[&key][&property],
                            &ours[&key][&property],
                            out,
                        );
                    }
                }
            }
            // computed at the request, with another program's words
            "refused" => {}
            _ => compare_values(&format!("{name}: {key}"), &theirs[&key], &ours[&key], out),
        }
    }
}

fn compare_entries(name: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    let mut left = entries_by_path(ours);
    for (path, theirs) in entries_by_path(theirs) {
        let Some(ours) = left.remove(&path) else {
            out.push(format!("{name}: {path}: is not shown"));
            continue;
        };
        for key in all_keys(theirs, ours) {
            // a replay sets some times to its own: those are not written down
            if key != "mtime_ns" || !theirs[&key].is_null() {
                compare_values(&format!("{name}: {path}: {key}"), &theirs[&key], &ours[&key], out);
            }
        }
    }
    out.extend(left.keys().map(|path| format!("{name}: {path}: does not exist")));
}

fn entries_by_path(entries: &Value) -> BTreeMap<String, &Value> {
    let path = |entry: &Value| {
        let hex = entry["path_hex"].as_str().map(|hex| format!("hex {hex}"));
        entry["path"].as_str().map(str::to_owned).or(hex).unwrap_or_default()
    };
    entries.as_array().into_iter().flatten().map(|entry| (path(entry), entry)).collect()
}

fn compare_values(place: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    if theirs != ours {
        let short = |value: &Value| value.to_string().chars().take(300).collect::<String>();
        out.push(format!("{place}: {} here, {} there", short(ours), short(theirs)));
    }
}

fn all_keys(theirs: &Value, ours: &Value) -> BTreeSet<String> {
    let of = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    [of(theirs), of(ours)].into_iter().flatten().flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::differences;

    fn pool_manifest(sha: &str, used: &str) -> Value {
        json!({"datasets": [{"name": "tank", "type": "filesystem",
            "properties": {"used": used, "mounted": sha},
            "entries": [{"path": ".", "type": "dir"}, {"path": "a", "sha256": sha}]}]})
    }

    #[test]
    fn every_difference_is_a_line() {
        assert_eq!(
            differences(&pool_manifest("1", "5"), &pool_manifest("1", "5")),
            Vec::<String>::new()
        );
        let lines = differences(&pool_manifest("1", "5"), &pool_manifest("2", "6"));
        assert_eq!(
            lines,
            ["tank: a: sha256: \"2\" here, \"1\" there", "tank: used: \"6\" here, \"5\" there"]
        );
        let none = json!({"datasets": []});
        assert_eq!(differences(&pool_manifest("1", "5"), &none), ["tank: is not shown"]);
        assert_eq!(differences(&none, &pool_manifest("1", "5")), ["tank: does not exist"]);
    }

    #[test]
    fn partly_replayed_datasets_are_not_compared() {
        let mut theirs = pool_manifest("1", "5");
        theirs["replay_stopped"] = json!(["tank"]);
        assert_eq!(differences(&theirs, &pool_manifest("2", "5")), Vec::<String>::new());
        theirs["replay_stopped"] = json!(["tank/other"]);
        assert_eq!(differences(&theirs, &pool_manifest("2", "5")).len(), 1);
        // it must be there all the same
        theirs["replay_stopped"] = json!(["tank"]);
        assert_eq!(differences(&theirs, &json!({"datasets": []})).len(), 1);
    }

    #[test]
    fn missing_times_are_not_compared() {
        let with = |time: Value| json!({"datasets": [{"name": "a", "entries": [time]}]});
        let (unknown, ours) = (json!({"path": "f"}), json!({"path": "f", "mtime_ns": 5}));
        assert_eq!(differences(&with(unknown), &with(ours.clone())), Vec::<String>::new());
        let other = json!({"path": "f", "mtime_ns": 6});
        assert_eq!(differences(&with(other), &with(ours)).len(), 1);
    }
}
