//! Changes of the entries in the configuration file. Comments and other sections stay.

use api::{AddShare, Protocol};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::entry::{DATASET, SECTION};
use crate::config::parse_value;

/// Adds an entry at the end.
pub(crate) fn add_entry(document: &mut DocumentMut, call: &AddShare) -> Result<(), String> {
    let mut table = Table::new();
    table.insert("protocol", value(call.protocol.as_str()));
    table.insert(DATASET, value(&call.dataset));
    for (field, text) in &call.options {
        if table.insert(field, Item::Value(parse_value(text))).is_some() {
            return Err(format!("the field {field} is given twice"));
        }
    }
    tables(document)?.push(table);
    Ok(())
}

/// Removes the entries of a protocol with that dataset or name. Returns how many there were.
pub(crate) fn remove_entries(
    document: &mut DocumentMut,
    protocol: Protocol,
    name: &str,
) -> Result<usize, String> {
    let all = tables(document)?;
    let before = all.len();
    let has = |table: &Table, field: &str, text: &str| {
        table.get(field).and_then(Item::as_str) == Some(text)
    };
    let fields = [DATASET, "name", "path", "target"];
    all.retain(|table| {
        !has(table, "protocol", protocol.as_str())
            || !fields.iter().any(|field| has(table, field, name))
    });
    let removed = before - all.len();
    if all.is_empty() {
        document.remove(SECTION);
    }
    Ok(removed)
}

/// Gives entries the new names of datasets, for which `renamed` returns one. Returns how many changed.
pub(crate) fn rename_datasets(
    document: &mut DocumentMut,
    renamed: impl Fn(&str) -> Option<String>,
) -> Result<usize, String> {
    let mut changed = 0;
    for table in tables(document)?.iter_mut() {
        let Some(old) = table.get_mut(DATASET).and_then(Item::as_value_mut) else { continue };
        let Some(new) = old.as_str().and_then(&renamed) else { continue };
        // the comment behind it stays
        let decor = old.decor().clone();
        *old = new.into();
        *old.decor_mut() = decor;
        changed += 1;
    }
    Ok(changed)
}

fn tables(document: &mut DocumentMut) -> Result<&mut ArrayOfTables, String> {
    let new = || Item::ArrayOfTables(ArrayOfTables::new());
    let item = document.entry(SECTION).or_insert_with(new);
    item.as_array_of_tables_mut()
        .ok_or_else(|| "[share]: write [[share]] above each share".to_owned())
}

#[cfg(test)]
mod tests {
    use api::{AddShare, Protocol};
    use toml_edit::DocumentMut;

    use super::{add_entry, remove_entries, rename_datasets};

    #[test]
    fn changes_of_entries_keep_comments() {
        let text = "# nas\n[[share]] # the disk\nprotocol = \"nbd\"\ndataset = \"tank/a\" # old\n";
        let mut document: DocumentMut = text.parse().unwrap();
        let call = AddShare {
            protocol: Protocol::Nbd,
            dataset: "tank/b".to_owned(),
            options: vec![
                ("networks".to_owned(), "10.0.0.0/24".to_owned()),
                ("read_only".to_owned(), "true".to_owned()),
            ],
        };
        add_entry(&mut document, &call).unwrap();
        let added = "\n[[share]]\nprotocol = \"nbd\"\ndataset = \"tank/b\"\n\
                     networks = \"10.0.0.0/24\"\nread_only = true\n";
        assert_eq!(document.to_string(), format!("{text}{added}"));
        let renamed = |name: &str| (name == "tank/a").then(|| "tank/c".to_owned());
        assert_eq!(rename_datasets(&mut document, renamed), Ok(1));
        let changed = text.replace("tank/a", "tank/c");
        assert_eq!(document.to_string(), format!("{changed}{added}"));
        assert_eq!(remove_entries(&mut document, Protocol::Nbd, "tank/b"), Ok(1));
        assert_eq!(document.to_string(), changed);
        assert_eq!(remove_entries(&mut document, Protocol::Nfs, "tank/c"), Ok(0));
        assert_eq!(remove_entries(&mut document, Protocol::Nbd, "tank/c"), Ok(1));
        assert!(!document.to_string().contains("share"));
    }
}
