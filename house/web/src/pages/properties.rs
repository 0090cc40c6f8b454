//! The properties of a dataset that the dashboard sets.

use api::Role;
use engine::dataset::{Dataset, Property};
use maud::{Markup, html};
use units::human_bytes;

use super::{ACTIONS, action_form, action_link, do_path};
use crate::dashboard::Visit;

/// The properties, with a hint about their values.
pub(crate) const EDITABLE: [(&str, &str); 12] = [
    ("quota", "none, or a size: 500G"),
    ("refquota", "none, or a size; without snapshots and children"),
    ("reservation", "none, or a size"),
    ("compression", "on, off, lz4, zstd"),
    ("recordsize", "512 to 16M; of new files"),
    ("atime", "on, off"),
    ("sync", "standard, always, disabled"),
    ("readonly", "on, off"),
    ("snapdir", "hidden, visible, disabled"),
    ("copies", "1 to 3; of new data"),
    ("mountpoint", "a directory, legacy, none"),
    ("canmount", "on, off, noauto"),
];

/// The properties that no dataset inherits: `none` is set instead.
const NEVER_INHERITED: [&str; 3] = ["quota", "refquota", "reservation"];

/// The table of properties, each with a form for those who may set it.
pub(super) fn table(dataset: &Dataset, visit: &Visit) -> Markup {
    let known = EDITABLE.iter().filter_map(|(name, hint)| {
        let found = dataset.properties.iter().find(|property| property.name == *name)?;
        Some((found, *hint))
    });
    html! {
        h2 { "Properties" }
        div class="scroll" tabindex="0" { table {
            thead { tr { th { "Property" } th { "Value" } th { "Source" } th { (ACTIONS) } } }
            tbody { @for (property, hint) in known { (row(dataset, property, hint, visit)) } }
        } }
    }
}

/// The value exactly, as `zfs set` takes it. A limit of 0 bytes is none.
fn exact_value(property: &Property) -> &str {
    let is_limit = NEVER_INHERITED.contains(&property.name.as_str());
    if is_limit && property.value == "0" { "none" } else { &property.value }
}

/// The value as zfs(8) shows it.
fn shown_value(property: &Property) -> String {
    let exact = exact_value(property);
    let is_size = NEVER_INHERITED.contains(&&*property.name) || property.name == "recordsize";
    let bytes = exact.parse().ok().filter(|_| is_size);
    bytes.map_or_else(|| exact.to_owned(), human_bytes)
}

fn row(dataset: &Dataset, property: &Property, hint: &str, visit: &Visit) -> Markup {
    let (name, source) = (property.name.as_str(), property.source.as_str());
    let exact = exact_value(property);
    let fixed = [("dataset", dataset.name.as_str()), ("property", name)];
    html! {
        tr {
            td { (name) }
            td { (shown_value(property)) }
            td class="hint" { (source) }
            td class="actions" {
                @if visit.role == Role::Administer {
                    (action_form("set-property", &fixed, &html! {
                        span class="inline" {
                            input name="value" required value=(exact) title=(hint) autocomplete="off"
                                autocapitalize="none" aria-label={ "New value of " (name) ": " (hint) };
                            button class="small" { "Set…" }
                        }
                    }))
                    @if source == "local" && !NEVER_INHERITED.contains(&name) {
                        (action_link(visit, Role::Administer, &do_path("inherit-property", &fixed), "Inherit…"))
                    }
                }
            }
        }
    }
}
