//! `saveconfig.json` of LIO, as targetcli writes it.
//!
//! ```text
//! storage_objects[]   name, plugin (block or fileio), dev (a path)
//! targets[]           fabric (iscsi), wwn
//!  └ tpgs[]           attributes: generate_node_acls, authentication; demo_mode_write_protect
//!     ├ luns[]        index, storage_object (/backstores/PLUGIN/NAME)
//!     └ node_acls[]   node_wwn, chap_userid, chap_password; mapped_luns[] with write_protect
//! ```

use std::path::PathBuf;

use api::Protocol;
use serde::Deserialize;

use super::{CHAP_NOT_COPIED, Found, FoundShare, Skipped, field, quoted, quoted_list};

#[derive(Deserialize)]
struct SavedConfig {
    #[serde(default)]
    storage_objects: Vec<StorageObject>,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct StorageObject {
    name: String,
    plugin: String,
    dev: Option<PathBuf>,
    #[serde(default)]
    readonly: bool,
}

#[derive(Deserialize)]
struct Target {
    fabric: String,
    wwn: String,
    #[serde(default)]
    tpgs: Vec<Tpg>,
}

#[derive(Deserialize)]
struct Tpg {
    #[serde(default)]
    attributes: Attributes,
    #[serde(default)]
    luns: Vec<Lun>,
    #[serde(default)]
    node_acls: Vec<NodeAcl>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attributes {
    generate_node_acls: u8,
    authentication: u8,
    demo_mode_write_protect: Option<u8>,
}

#[derive(Deserialize)]
struct Lun {
    index: u16,
    storage_object: String,
}

#[derive(Deserialize)]
struct NodeAcl {
    node_wwn: String,
    chap_userid: Option<String>,
    #[serde(default)]
    mapped_luns: Vec<MappedLun>,
}

#[derive(Deserialize)]
struct MappedLun {
    #[serde(default)]
    write_protect: bool,
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Found {
    let SavedConfig { storage_objects, targets } = match serde_json::from_str(text) {
        Ok(config) => config,
        Err(why) => {
            return vec![Err((
                "the file".to_owned(),
                format!("it is not a saveconfig.json: {why}"),
            ))];
        }
    };
    let mut found = Vec::new();
    for target in &targets {
        for tpg in &target.tpgs {
            match check_tpg(target, tpg) {
                Ok(()) => found.extend(
                    tpg.luns.iter().map(|lun| read_lun(target, tpg, lun, &storage_objects)),
                ),
                Err(why) => found.push(Err((target.wwn.clone(), why))),
            }
        }
    }
    found
}

fn check_tpg(target: &Target, tpg: &Tpg) -> Result<(), String> {
    let has_chap = tpg.attributes.authentication != 0
        || tpg
            .node_acls
            .iter()
            .any(|acl| acl.chap_userid.as_ref().is_some_and(|it| !it.is_empty()));
    if target.fabric != "iscsi" {
        return Err(format!("its fabric is {}, and only iscsi can be imported", target.fabric));
    }
    if has_chap {
        return Err(CHAP_NOT_COPIED.to_owned());
    }
    let is_open = tpg.attributes.generate_node_acls != 0;
    if tpg.node_acls.is_empty() && !is_open {
        return Err("it admits no initiator".to_owned());
    }
    Ok(())
}

fn read_lun(
    target: &Target,
    tpg: &Tpg,
    lun: &Lun,
    objects: &[StorageObject],
) -> Result<FoundShare, Skipped> {
    let origin = format!("{} unit {}", target.wwn, lun.index);
    let is_own = |it: &&StorageObject| {
        lun.storage_object == format!("/backstores/{}/{}", it.plugin, it.name)
    };
    let object = objects.iter().find(is_own);
    let path = object.and_then(|it| it.dev.clone());
    let path = path.ok_or_else(|| (origin.clone(), "its device is not in the file".to_owned()))?;
    let is_open = tpg.attributes.generate_node_acls != 0;
    // an initiator without an entry may only read, unless demo_mode_write_protect=0
    let is_demo_protected = is_open && tpg.attributes.demo_mode_write_protect != Some(0);
    let mut mapped = tpg.node_acls.iter().flat_map(|acl| &acl.mapped_luns);
    let is_protected = mapped.any(|mapped| mapped.write_protect);
    let mut options = vec![
        field("target", quoted(&target.wwn)),
        field("lun", lun.index.to_string()),
        // LIO does not look at addresses of initiators
        field("networks", quoted("*")),
    ];
    if !is_open {
        let initiators = tpg.node_acls.iter().map(|acl| acl.node_wwn.as_str());
        options.push(field("initiators", quoted_list(initiators)));
    }
    if is_demo_protected || is_protected || object.is_some_and(|it| it.readonly) {
        options.push(field("read_only", "true"));
    }
    Ok(FoundShare { origin, protocol: Protocol::Iscsi, path, options, ignored: Vec::new() })
}
