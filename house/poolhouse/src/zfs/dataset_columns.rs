//! The columns of `zfs list`: their sides and least widths, which zfs(8) takes from the kind of a property.

use engine::dataset::{PropertyDef, ValueFormat, find_property};

use crate::table::Align;

/// The side and the least width of a column.
pub(super) fn column_shape(property: &str, header: &str) -> (Align, usize) {
    let is_of_owner = property
        .split_once('@')
        .is_some_and(|(kind, _)| kind.ends_with("used") || kind.ends_with("quota"));
    let format = find_property(property).map(PropertyDef::format);
    let is_number = format.is_some_and(ValueFormat::is_right_aligned);
    if is_number || property.starts_with("written") || is_of_owner {
        return (Align::Right, header.len().max(5));
    }
    // the words of `type` are no values of the format
    let words = if property == "type" {
        "filesystem".len()
    } else {
        format.map_or(0, ValueFormat::word_width)
    };
    (Align::Left, header.len().max(words))
}
