//! Changes of sections of which the configuration file may have several: `[[replica]]`, `[[policy]]`, `[[power]]`.

use api::{AddConfigSection, RemoveConfigSection};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::parse_value;

/// Adds a section behind the others of its name.
pub(crate) fn add_section(
    document: &mut DocumentMut,
    call: &AddConfigSection,
) -> Result<(), String> {
    let mut table = Table::new();
    for (field, text) in &call.fields {
        if table.insert(field, Item::Value(parse_value(text))).is_some() {
            return Err(format!("the field {field} is given twice"));
        }
    }
    let new = || Item::ArrayOfTables(ArrayOfTables::new());
    let item = document.entry(&call.section).or_insert_with(new);
    let Some(tables) = item.as_array_of_tables_mut() else {
        let section = &call.section;
        return Err(format!("there is one [{section}]; `poolhouse config set` sets its fields"));
    };
    tables.push(table);
    Ok(())
}

/// Removes the sections of a name that have a field of this value.
pub(crate) fn remove_sections(
    document: &mut DocumentMut,
    call: &RemoveConfigSection,
) -> Result<(), String> {
    let RemoveConfigSection { section, field, value } = call;
    let wanted = parse_value(value).to_string();
    let has = |table: &Table| {
        let found = table.get(field).and_then(Item::as_value);
        // plain text of a string matches as well as its TOML
        found.is_some_and(|found| {
            found.as_str() == Some(value.as_str()) || found.to_string().trim() == wanted.trim()
        })
    };
    let tables = document.get_mut(section).and_then(Item::as_array_of_tables_mut);
    let before = tables.as_ref().map_or(0, |tables| tables.len());
    let left = tables.map_or(0, |tables| {
        tables.retain(|table| !has(table));
        tables.len()
    });
    if left == before {
        return Err(format!("no [[{section}]] has {field} = {value}"));
    }
    if left == 0 {
        document.remove(section);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::{AddConfigSection, RemoveConfigSection};
    use toml_edit::DocumentMut;

    use super::{add_section, remove_sections};

    #[test]
    fn sections_come_and_go_with_comments_kept() {
        let text =
            "# mine\n[[replica]] # the old box\nname = \"old\" # slow\n\n[web]\nlisten = 80\n";
        let mut document: DocumentMut = text.parse().unwrap();
        let pairs = [("name", "new"), ("recursive", "false"), ("max-age", "2d")];
        let fields: Vec<_> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let mut call = AddConfigSection { section: "replica".to_owned(), fields };
        add_section(&mut document, &call).unwrap();
        let added = "\n[[replica]]\nname = \"new\"\nrecursive = false\nmax-age = \"2d\"\n";
        assert!(document.to_string().contains(added), "{document}");
        let remove = |document: &mut DocumentMut, value: &str| {
            let (section, field) = ("replica".to_owned(), "name".to_owned());
            remove_sections(
                document,
                &RemoveConfigSection { section, field, value: value.to_owned() },
            )
        };
        remove(&mut document, "new").unwrap();
        assert_eq!(document.to_string(), text);
        assert!(remove(&mut document, "new").unwrap_err().contains("no [[replica]] has name"));
        remove(&mut document, "old").unwrap();
        assert!(!document.to_string().contains("replica"));
        call.fields.push(("name".to_owned(), "again".to_owned()));
        assert!(add_section(&mut document, &call).unwrap_err().contains("given twice"));
        call.section = "web".to_owned();
        call.fields.pop();
        assert!(add_section(&mut document, &call).unwrap_err().contains("config set"));
    }
}
