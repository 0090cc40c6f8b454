//! Datasets as JSON, with the keys of `zfs list -j` and `zfs get -j`.

use engine::dataset::{Dataset, Property};
use serde_json::{Map, Value, json};

use crate::daemon::DaemonArgs;
use crate::json::{NumberStyle, property};
use crate::property_values::format_value;

/// A property that JSON always has.
const CREATETXG: &str = "createtxg";

/// Adds to the properties that are queried what JSON shows of each dataset.
pub(super) fn request_createtxg(properties: &mut Vec<String>, asking: &DaemonArgs) {
    if asking.json && !properties.iter().any(|name| name == CREATETXG) {
        properties.push(CREATETXG.to_owned());
    }
}

/// The txg in which a dataset was created.
pub(super) fn createtxg(dataset: &Dataset) -> u64 {
    dataset.property_value(CREATETXG).and_then(|txg| txg.parse().ok()).unwrap_or(0)
}

/// A dataset with these properties.
pub(super) fn dataset_facts<'a>(
    dataset: &Dataset,
    createtxg: u64,
    properties: impl IntoIterator<Item = &'a Property>,
    style: NumberStyle,
) -> (String, Value) {
    let name = &dataset.name;
    let mut facts = Map::new();
    facts.insert("name".to_owned(), json!(name));
    facts.insert("type".to_owned(), json!(dataset.kind.to_uppercase()));
    let pool = name.split(['/', '@', '#']).next();
    facts.insert("pool".to_owned(), json!(pool));
    facts.insert(CREATETXG.to_owned(), style.count(createtxg));
    if let Some((filesystem, snapshot)) = name.split_once('@') {
        facts.insert("dataset".to_owned(), json!(filesystem));
        facts.insert("snapshot_name".to_owned(), json!(snapshot));
    }
    let values = properties.into_iter().map(|each| {
        let text = if style.is_exact() {
            each.value.clone()
        } else {
            format_value(&each.name, &each.value)
        };
        let text = if text.is_empty() { "-".to_owned() } else { text };
        (each.name.clone(), property(&style.value(text), &each.source))
    });
    facts.insert("properties".to_owned(), Value::Object(values.collect()));
    (name.clone(), Value::Object(facts))
}
