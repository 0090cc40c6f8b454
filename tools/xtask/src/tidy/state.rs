//! State has one owner: a type of the pool that has a lock or an atomic has no field that other modules may change.
//!
//! The module of the type keeps its invariants, and others call its methods. A field may be visible in the folder of
//! the type (`pub(super)`).

use syn::visit::{self, Visit};

use super::SourceFile;
use crate::Violation;

/// The folder in which the rule holds.
const FOLDER: &str = "storage/spa/src/";

pub(crate) fn check(file: &SourceFile) -> Vec<Violation> {
    if file.is_test || !file.path.starts_with(FOLDER) {
        return Vec::new();
    }
    let Ok(parsed) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut structs = Structs::default();
    structs.visit_file(&parsed);
    structs.open.into_iter().map(|what| Violation::new(&file.path, what)).collect()
}

#[derive(Default)]
struct Structs {
    /// The violations.
    open: Vec<String>,
}

/// Whether a field can be changed through a shared reference.
#[derive(Default)]
struct HasState(bool);

impl<'ast> Visit<'ast> for HasState {
    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        let name = segment.ident.to_string();
        let is_lock = matches!(name.as_str(), "Mutex" | "RwLock" | "OnceLock" | "Condvar");
        self.0 |= is_lock || name.starts_with("Atomic");
        visit::visit_path_segment(self, segment);
    }
}

/// Whether a field is visible beyond the folder of its type.
fn is_open(visibility: &syn::Visibility) -> bool {
    match visibility {
        syn::Visibility::Public(_) => true,
        syn::Visibility::Restricted(restricted) => restricted.path.is_ident("crate"),
        syn::Visibility::Inherited => false,
    }
}

impl<'ast> Visit<'ast> for Structs {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let mut state = HasState::default();
        state.visit_fields(&item.fields);
        for field in item.fields.iter().filter(|field| state.0 && is_open(&field.vis)) {
            let name = field.ident.as_ref().map_or_else(|| "0".to_owned(), ToString::to_string);
            self.open.push(format!(
                "{} owns state, and its field {name} is open: make it private, with a method for others",
                item.ident
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&SourceFile::with_all_rules(path, text)).len()
    }

    #[test]
    fn open_fields_beside_locks_are_found() {
        let text = "pub struct Pool { pub(crate) name: String, pub(super) near: u8, own: u8,
            state: parking_lot::Mutex<u8> }
            pub struct Tasks(pub Arc<AtomicU64>);
            pub struct Plain { pub name: String }";
        assert_eq!(count("storage/spa/src/a.rs", text), 2);
        assert_eq!(count("storage/dmu/src/a.rs", text), 0);
    }
}
