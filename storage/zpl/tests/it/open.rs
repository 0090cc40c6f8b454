//! A fixture's datasets, opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::fixtures::Fixture;
use device::{Device, File, Window, partitions};
use dmu::Objset;
use ondisk::dsl::{Dataset, Dir};
use spa::Pool;
use units::{ObjectId, ObjsetId};
use zap::Zap;

/// The pool in a fixture's images.
pub(crate) fn pool(fixture: &Fixture) -> Pool {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for path in fixture.images() {
        let file: Arc<dyn Device> = Arc::new(File::open(&path).expect("an image"));
        for part in partitions(&*file) {
            let name = format!("{}-{}", file.name(), part.number);
            devices.push(Arc::new(Window::new(name, Arc::clone(&file), part.start, part.size)));
        }
        devices.push(file);
    }
    let (found, _) = spa::scan(&devices);
    let newest = found.iter().find(|pool| pool.name() == fixture.pool()).expect("the pool");
    newest.open(&spa::Options::default()).expect("the pool opens")
}

/// The datasets and snapshots of a pool by name, with their numbers. So many lines rather than the
/// crate for it, which stands beside this one and must not be needed to test it.
pub(crate) fn datasets(pool: &Pool) -> BTreeMap<String, (ObjsetId, Dataset)> {
    let mos = pool.mos();
    let root = pool.directory().number("root_dataset").expect("directory").expect("root");
    let mut out = BTreeMap::new();
    let mut todo = vec![(pool.name().to_owned(), ObjectId::new(root))];
    while let Some((name, id)) = todo.pop() {
        let object = mos.object(id).expect("a directory");
        let dir = Dir::parse(object.bonus(), object.bonus_order()).expect("a directory");
        if dir.children.exists() {
            for (child, id) in table(mos, dir.children) {
                if !child.starts_with('$') {
                    todo.push((format!("{name}/{child}"), id));
                }
            }
        }
        if !dir.head.exists() {
            continue;
        }
        let head = dataset(mos, dir.head);
        if head.snapshot_names.exists() {
            for (snapshot, id) in table(mos, head.snapshot_names) {
                let found = (ObjsetId::new(id.get()), dataset(mos, id));
                out.insert(format!("{name}@{snapshot}"), found);
            }
        }
        out.insert(name, (ObjsetId::new(dir.head.get()), head));
    }
    out
}

fn table(mos: &Objset, id: ObjectId) -> Vec<(String, ObjectId)> {
    let zap = Zap::open(mos.object(id).expect("a table")).expect("a table");
    let entries = zap.entries().map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| {
            let id = entry.value.u64().expect("a number");
            (String::from_utf8(entry.name).expect("text"), ObjectId::new(id))
        })
        .collect()
}

fn dataset(mos: &Objset, id: ObjectId) -> Dataset {
    let object = mos.object(id).expect("a dataset");
    Dataset::parse(object.bonus(), object.bonus_order()).expect("a dataset")
}
