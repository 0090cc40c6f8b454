//! Reads and prints properties and their values, and types of datasets.

use engine::dataset::{PropertyDef, ValueFormat, find_property};
use units::{human_bytes, human_space};

use crate::outcome::Failure;
use crate::table::escape_terminal;
use crate::time;

/// The kinds there are.
const DATASET_TYPES: [&str; 4] = ["filesystem", "volume", "snapshot", "bookmark"];
/// Refuses properties that are given twice.
pub(crate) fn check_unique(properties: &[(String, String)]) -> Result<(), Failure> {
    let twice = |(at, (name, _)): &(usize, &(String, String))| {
        properties.iter().take(*at).any(|(other, _)| other == name)
    };
    match properties.iter().enumerate().find(twice) {
        Some((_, (name, _))) => Err(Failure::usage(format!("{name} is given twice"))),
        None => Ok(()),
    }
}

/// `NAME=VALUE`, as -o and -O take it.
pub(crate) fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("NAME=VALUE is expected".to_owned()),
    }
}

/// How the values of a property are written; none: it is not in the registry.
fn property_format(property: &str) -> Option<ValueFormat> {
    find_property(property).map(PropertyDef::format)
}

/// Whether a property is bytes.
pub(crate) fn is_byte_property(property: &str) -> bool {
    use ValueFormat::{Bytes, Space, SpaceLimit};
    matches!(property_format(property), Some(Space | SpaceLimit | Bytes)) || property == "dnodesize"
}

/// The kinds of datasets that are named, in full; none: all.
pub(crate) fn parse_types(types: &[String]) -> Result<Vec<String>, Failure> {
    let mut kinds = Vec::new();
    for name in types {
        let short = |kind: &&&str| kind.starts_with(name.trim_end_matches('s')) || name == "snap";
        match name.as_str() {
            "all" => return Ok(Vec::new()),
            "fs" => kinds.push("filesystem".to_owned()),
            "vol" => kinds.push("volume".to_owned()),
            "snap" => kinds.push("snapshot".to_owned()),
            _ => match DATASET_TYPES.iter().find(short) {
                Some(kind) if !name.is_empty() => kinds.push((**kind).to_owned()),
                _ => {
                    let known = DATASET_TYPES.join(", ");
                    let what = format!("invalid type '{name}'\nchoose from: {known}, all");
                    return Err(Failure::usage(what));
                }
            },
        }
    }
    Ok(kinds)
}

/// A value in printed form.
pub(crate) fn format_value(property: &str, value: &str) -> String {
    if property.ends_with("ratio") && value.parse::<f64>().is_ok() {
        return format!("{value}x");
    }
    let Ok(number) = value.parse::<u64>() else { return escape_terminal(value) };
    match property_format(property) {
        _ if property == "creation" => time::format_zfs(number),
        Some(ValueFormat::Date) => time::format_date(number),
        Some(ValueFormat::SpaceLimit) if number == 0 => "none".to_owned(),
        Some(ValueFormat::Space | ValueFormat::SpaceLimit) => human_space(number),
        Some(ValueFormat::Bytes) => human_bytes(number),
        _ if number == 0 && is_owner_quota(property) => "none".to_owned(),
        _ if is_owner_property(property) && !property.contains("obj") => human_space(number),
        _ if property.starts_with("written@") => human_bytes(number),
        _ => value.to_owned(),
    }
}

/// Whether it is an owner's quota.
fn is_owner_quota(property: &str) -> bool {
    property.contains("quota@")
}

/// Whether it is an owner's usage or quota.
fn is_owner_property(property: &str) -> bool {
    is_owner_quota(property) || property.contains("used@")
}

#[cfg(test)]
mod tests {
    use super::{format_value, parse_types};

    #[test]
    fn values_are_in_short_form() {
        assert_eq!(format_value("used", "1536"), "1.50K");
        assert_eq!(
            (format_value("used", "0"), format_value("recordsize", "512")),
            ("0B".into(), "512".into())
        );
        assert_eq!(format_value("compressratio", "1.20"), "1.20x");
        assert_eq!(format_value("quota", "0"), "none");
        assert_eq!(format_value("guid", "12345678901"), "12345678901");
        assert_eq!(format_value("org:note", "a\x1bb"), "a\\u{1b}b");
    }

    #[test]
    fn kinds_have_short_names() {
        let of = |names: &[&str]| {
            parse_types(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).ok()
        };
        let all = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(of(&["fs", "vol"]), all(&["filesystem", "volume"]));
        assert_eq!(of(&["snapshots"]), all(&["snapshot"]));
        assert_eq!(of(&["all"]), all(&[]));
        assert_eq!(of(&["folder"]), None);
    }
}
