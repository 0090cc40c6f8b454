//! Shares of entries and properties, without pools.

use std::collections::BTreeSet;

use super::{DatasetFacts, resolve};
use crate::config::Config;
use crate::shares::entry::read_entries;

fn filesystem(name: &str, sharenfs: &str, sharesmb: &str) -> DatasetFacts {
    let text = |value: &str| (value.to_owned(), "local".to_owned());
    DatasetFacts {
        name: name.to_owned(),
        canmount: "on".to_owned(),
        mountpoint: Some(format!("/{name}").into()),
        mounted_at: Some(format!("/{name}").into()),
        shared: [text(sharenfs), text(sharesmb)],
        ..DatasetFacts::default()
    }
}

fn volume(name: &str) -> DatasetFacts {
    DatasetFacts { name: name.to_owned(), is_volume: true, ..DatasetFacts::default() }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const NBD: &str = "[[share]]\nprotocol = \"nbd\"\ndataset = \"tank/disk\"\n";

#[test]
fn entries_become_shares_with_defaults() {
    let entries = read_entries(&Config::parse(&format!("# nas\n{NBD}")).unwrap());
    assert_eq!(entries[0].line, Some(2));
    let all = [volume("tank/disk")];
    let resolved = resolve(&entries, &all, &set(&[]), &set(&[]));
    assert!(resolved.problems.is_empty(), "{resolved:?}");
    let share = &resolved.set.nbd[0];
    assert_eq!((share.name.as_str(), share.options.read_only), ("tank/disk", false));
    assert!(share.options.networks.as_slice().iter().all(|it| it.addr().is_loopback()));
    // a change needs the volume at the moment
    let released = resolve(&entries, &all, &set(&[]), &set(&["tank/disk"]));
    assert!(released.set.nbd.is_empty() && released.problems.is_empty());
}

#[test]
fn entries_without_a_dataset_are_problems() {
    let entries = read_entries(&Config::parse(NBD).unwrap());
    for (datasets, why) in [
        (vec![], "does not exist"),
        (vec![filesystem("tank/disk", "off", "off")], "is a file system, and NBD shares volumes"),
        (vec![DatasetFacts { is_locked: true, ..volume("tank/disk") }], "zfs load-key tank/disk"),
    ] {
        let resolved = resolve(&entries, &datasets, &set(&[]), &set(&[]));
        assert!(resolved.set.nbd.is_empty());
        assert!(resolved.problems[0].sentence.contains(why), "{resolved:?}");
        assert_eq!(resolved.problems[0].source.to_string(), "config.toml line 1");
    }
}

#[test]
fn unmounted_entries_are_not_exported() {
    let text = "[[share]]\nprotocol = \"nfs\"\ndataset = \"tank/a\"\npath = \"/a\"\n";
    let entries = read_entries(&Config::parse(text).unwrap());
    let mounted = filesystem("tank/a", "off", "off");
    let never_mounted = DatasetFacts { mounted_at: None, mountpoint: None, ..mounted.clone() };
    for served in [&mounted, &never_mounted] {
        let resolved = resolve(&entries, std::slice::from_ref(served), &set(&[]), &set(&[]));
        assert_eq!((resolved.set.nfs.len(), resolved.problems.len()), (1, 0), "{resolved:?}");
    }
    let unmounted = DatasetFacts { mounted_at: None, is_unmounted: true, ..mounted };
    let resolved = resolve(&entries, &[unmounted], &set(&[]), &set(&[]));
    assert!(resolved.set.nfs.is_empty());
    assert_eq!(resolved.problems[0].sentence, "'tank/a' is not mounted: `zfs mount tank/a`");
    assert_eq!(resolved.problems[0].name.as_deref(), Some("/a"));
}

#[test]
fn properties_share_file_systems() {
    let unmounted = |name: &str| DatasetFacts {
        mounted_at: None,
        canmount: "noauto".to_owned(),
        ..filesystem(name, "on", "on")
    };
    let datasets = [
        filesystem("tank", "off", "off"),
        filesystem("tank/a", "ro", "on"),
        filesystem("tank/b", "sec=krb5,rw", "guestok=true"),
        unmounted("tank/c"),
        filesystem("tank/d", "on", "on"),
        // `zfs unmount` ends the export
        DatasetFacts { is_unmounted: true, ..filesystem("tank/e", "on", "off") },
    ];
    let resolved = resolve(&[], &datasets, &set(&["tank/d"]), &set(&[]));
    let nfs: Vec<_> = resolved.set.nfs.iter().map(|share| share.name.as_str()).collect();
    let smb: Vec<_> = resolved.set.smb.iter().map(|share| share.name.as_str()).collect();
    assert_eq!((nfs, smb), (vec!["/tank/a"], vec!["tank_a"]));
    let problems: Vec<_> = resolved.problems.iter().map(|it| it.sentence.as_str()).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("sharenfs=sec=krb5,rw: sec=krb5"), "{problems:?}");
    assert!(problems[1].starts_with("sharesmb=guestok=true: on and off"), "{problems:?}");
}
