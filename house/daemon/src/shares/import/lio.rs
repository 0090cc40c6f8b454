//! `saveconfig.json` of LIO, as targetcli writes it.
//!
//! ```text
//! storage_objects[]   name, plugin (block or fileio), dev (a path)
//! targets[]           fabric (iscsi), wwn
//!  └ tpgs[]           attributes: generate_node_acls, authentication; demo_mode_write_protect
//!     ├ luns[]        index, storage_object (/backstores/PLUGIN/NAME)
//!     └ node_acls[]   node_wwn, user, password; mapped_luns[] with write_protect
//!                     mutual_user, mutual_password: the target's own; a tpg has the four for the
//!                     initiators without an entry
//! ```

use std::path::PathBuf;

use api::Protocol;
use serde::Deserialize;

use super::chap::{FoundChap, FoundUser};
use super::{Found, FoundShare, Skipped, field, quoted, quoted_list};

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
    #[serde(flatten)]
    users: Users,
}

/// The users of CHAP of a tpg or of an initiator.
#[derive(Deserialize)]
struct Users {
    #[serde(rename = "chap_userid")]
    user: Option<String>,
    #[serde(rename = "chap_password")]
    password: Option<String>,
    #[serde(rename = "chap_mutual_userid")]
    mutual_user: Option<String>,
    #[serde(rename = "chap_mutual_password")]
    mutual_password: Option<String>,
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
    #[serde(flatten)]
    users: Users,
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
                Ok(chap) => found.extend(tpg.luns.iter().map(|lun| {
                    let share = read_lun(target, tpg, lun, &storage_objects)?;
                    Ok(FoundShare { chap: chap.clone(), ..share })
                })),
                Err(why) => found.push(Err((target.wwn.clone(), why))),
            }
        }
    }
    found
}

/// The users of CHAP of a target that can be imported.
fn check_tpg(target: &Target, tpg: &Tpg) -> Result<FoundChap, String> {
    if target.fabric != "iscsi" {
        return Err(format!("its fabric is {}, and only iscsi can be imported", target.fabric));
    }
    let is_open = tpg.attributes.generate_node_acls != 0;
    if tpg.node_acls.is_empty() && !is_open {
        return Err("it admits no initiator".to_owned());
    }
    read_chap(tpg)
}

/// Each initiator has users of its own, and those without an entry have the users of the tpg.
fn read_chap(tpg: &Tpg) -> Result<FoundChap, String> {
    let is_open = tpg.attributes.generate_node_acls != 0;
    let own = tpg.node_acls.iter().map(|acl| &acl.users);
    let all = own.chain(is_open.then_some(&tpg.users)).map(Users::read);
    let (mut initiators, mut targets): (Vec<_>, Vec<_>) = all.unzip();
    initiators.dedup();
    targets.dedup();
    let is_asked = tpg.attributes.authentication != 0;
    match (&initiators[..], &targets[..]) {
        ([None], _) if is_asked => {
            Err("it asks for CHAP, and its passwords are not in the file".to_owned())
        }
        ([initiator], [target]) => FoundChap::new(initiator.as_slice(), target.as_slice()),
        _ => {
            Err("its initiators have different CHAP users, and a [[share]] has one: add it by hand"
                .to_owned())
        }
    }
}

impl Users {
    /// The initiators' user and that of the target.
    fn read(&self) -> (Option<FoundUser>, Option<FoundUser>) {
        let user = |name: &Option<String>, secret: &Option<String>| {
            FoundUser::new(name.as_deref(), secret.as_deref())
        };
        (user(&self.user, &self.password), user(&self.mutual_user, &self.mutual_password))
    }
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
    let (ignored, chap) = (Vec::new(), FoundChap::default());
    Ok(FoundShare { origin, protocol: Protocol::Iscsi, path, options, ignored, chap })
}
