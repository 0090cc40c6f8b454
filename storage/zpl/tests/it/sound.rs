//! Whether a file system holds together: names, links, sizes, parents, and no file without a name.

use std::collections::BTreeMap;

use units::ObjectId;
use zpl::{Fs, Kind};

#[derive(Default)]
struct Seen {
    names: u64,
    kind: Option<Kind>,
}

/// Walks a file system that is stored, and holds what it finds against all objects that there are.
pub(crate) fn check(fs: &Fs) {
    let root = fs.root().expect("root").id();
    let mut seen: BTreeMap<ObjectId, Seen> = BTreeMap::new();
    let mut hidden = 0;
    let mut todo = vec![root];
    seen.insert(root, Seen { names: 1, kind: Some(Kind::Directory) });
    while let Some(id) = todo.pop() {
        let node = fs.node(id).expect("a file");
        let found = *node.attributes();
        assert_eq!(Some(found.kind), seen[&id].kind, "{id}");
        if found.xattr_dir.exists() {
            let dir = fs.node(found.xattr_dir).expect("attributes");
            hidden += 1 + fs.list(&dir).expect("attributes").len();
        }
        if found.kind != Kind::Directory {
            continue;
        }
        let names = fs.list(&node).expect("names");
        let subdirs = names.iter().filter(|entry| entry.kind == Kind::Directory);
        assert_eq!(found.links, subdirs.count() as u64 + 2, "{id}: links");
        assert_eq!(found.size, names.len() as u64 + 2, "{id}: size");
        for entry in names {
            if entry.kind == Kind::Directory {
                let parent = fs.attributes(entry.object).expect("attributes").parent;
                assert_eq!(parent, id, "{}: parent", entry.object);
            }
            let row = seen.entry(entry.object).or_default();
            if row.names == 0 {
                todo.push(entry.object);
            }
            (row.names, row.kind) = (row.names + 1, Some(entry.kind));
        }
    }
    let files = seen.iter().filter(|row| row.1.kind != Some(Kind::Directory));
    for (id, row) in files {
        assert_eq!(fs.attributes(*id).expect("attributes").links, row.names, "{id}: links");
    }
    let mut unlinked = Vec::new();
    fs.unlinked(&mut |id| {
        unlinked.push(id);
        true
    })
    .expect("unlinked");
    for id in &unlinked {
        hidden += hidden_of(fs, *id);
    }
    let objects = fs.objset().objects().filter_map(Result::ok).count();
    // the master node, the set of unlinked files, and three tables of attributes
    assert_eq!(objects, 5 + seen.len() + hidden + unlinked.len(), "objects");
}

/// What an unlinked file still has besides itself.
fn hidden_of(fs: &Fs, id: ObjectId) -> usize {
    let node = fs.node(id).expect("an unlinked file");
    let found = node.attributes();
    assert_eq!(found.links, 0, "{id}: links");
    if found.xattr_dir.exists() {
        let dir = fs.node(found.xattr_dir).expect("attributes");
        return 1 + fs.list(&dir).expect("attributes").len();
    }
    if found.kind == Kind::Directory { fs.list(&node).expect("names").len() } else { 0 }
}
