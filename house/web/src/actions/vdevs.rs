//! Actions that add vdevs to a pool, remove them, and import pools.

use std::path::PathBuf;

use api::{AddDevices, ImportPools, RemoveDevices, VdevLayout, VdevRole};
use engine::pool::Rewind;
use planner::{GroupKind, LayoutGroup, PoolLayout};

use super::Action;
use crate::forms::Form;
use crate::pages::pool_path;

/// A top-level vdev or spare: layout, role and paths.
type Vdev = (VdevLayout, VdevRole, Vec<PathBuf>);

pub(super) fn find(name: &str, form: &Form) -> Result<Action, String> {
    match name {
        "add-vdev" => add(form),
        "remove-vdev" => remove(form),
        _ => import(form),
    }
}

/// The call that adds drives to a pool, and its words for a shell. `layout` is one in the planner's words, or one of
/// `spare`, `cache` and `log`.
pub(crate) fn add_call(
    pool: &str,
    layout: &str,
    drives: &[&str],
    dry_run: bool,
) -> Result<(AddDevices, Vec<String>), String> {
    let role = match layout {
        "spare" => Some(VdevRole::Spare),
        "cache" => Some(VdevRole::Cache),
        "log" => Some(VdevRole::Log),
        _ => None,
    };
    let mut words = ["zpool", "add", pool].map(str::to_owned).to_vec();
    let vdevs = if let Some(role) = role {
        words.push(layout.to_owned());
        words.extend(drives.iter().map(|drive| (*drive).to_owned()));
        // several log devices are a mirror: one that fails must not cost the newest writes
        if role == VdevRole::Log && drives.len() > 1 {
            words.insert(words.len() - drives.len(), "mirror".to_owned());
            vec![(VdevLayout::Mirror, role, drives.iter().map(Into::into).collect())]
        } else {
            drives.iter().map(|drive| (VdevLayout::Single, role, vec![drive.into()])).collect()
        }
    } else {
        let (vdevs, more) = vdevs_of_layout(layout, drives)?;
        words.extend(more);
        vdevs
    };
    let call = AddDevices {
        name: pool.to_owned(),
        vdevs,
        force: false,
        allow_in_use: false,
        allow_replication_mismatch: false,
        allow_ashift_mismatch: false,
        ashift: None,
        dry_run,
    };
    Ok((call, words))
}

fn add(form: &Form) -> Result<Action, String> {
    let (pool, layout) = (form.required("pool")?, form.required("layout")?);
    let drives: Vec<&str> = form.all("drive").collect();
    if drives.is_empty() {
        return Err("Choose drives first.".to_owned());
    }
    let (call, words) = add_call(pool, layout, &drives, false)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let consequence = format!(
        "{} become a part of {pool}. Everything that is on them now is lost. A raidz or dRAID vdev cannot be removed \
         again.",
        drives.join(", ")
    );
    let title = format!("Add to {pool}: {layout}");
    let action = Action::new(title, &consequence, &call, &words)?;
    Ok(action.destroys(pool).leads_to(pool_path(pool)))
}

fn remove(form: &Form) -> Result<Action, String> {
    let (pool, device) = (form.required("pool")?, form.required("device")?);
    let devices = vec![device.to_owned()];
    let call = RemoveDevices { name: pool.to_owned(), devices, dry_run: false };
    let consequence = "Data of the vdev are copied to the others first, and the pool stays in use meanwhile. A map of \
                       the copied blocks stays in memory. The pool refuses this if the vdev cannot be removed.";
    let title = format!("Remove {device} from {pool}");
    let action = Action::new(title, consequence, &call, &["zpool", "remove", pool, device])?;
    Ok(action.administer().leads_to(pool_path(pool)))
}

fn import(form: &Form) -> Result<Action, String> {
    let (pool, guid) = (form.required("pool")?, form.required("guid")?);
    let (force, dir) = (form.field("force") == "1", form.field("dir"));
    let dir = Some(dir).filter(|dir| !dir.is_empty());
    let call = ImportPools {
        paths: dir.map(PathBuf::from).into_iter().collect(),
        name: Some(guid.to_owned()),
        new_name: None,
        temporary: false,
        force,
        destroyed: false,
        no_mount: false,
        overrides: api::MountOverrides::default(),
        pool_properties: Vec::new(),
        allow_missing_logs: false,
        read_only: false,
        rewind: Rewind::default(),
        dry_run: false,
        altroot: None,
        keys: Vec::new(),
    };
    let option: &[&str] = if force { &["-f"] } else { &[] };
    let from = dir.map(|dir| ["-d", dir]);
    let from = from.as_ref().map_or(&[][..], |words| &words[..]);
    let command = [&["zpool", "import"], option, from, &[guid]].concat();
    let consequence = if force {
        "Another system may use the pool: it did not export it. Two systems that write to a pool at the same time \
         destroy it. Be sure that no other one has these drives."
    } else {
        "The pool is imported, and its file systems are mounted. The page of an encrypted one asks for its key."
    };
    let action = Action::new(format!("Import pool {pool}"), consequence, &call, &command)?;
    let action = if force { action.destroys(pool) } else { action.administer() };
    Ok(action.leads_to(pool_path(pool)))
}

/// The vdevs of drives in their order, by a layout in the planner's words, and zpool's words for them.
pub(super) fn vdevs_of_layout(
    layout: &str,
    drives: &[&str],
) -> Result<(Vec<Vdev>, Vec<String>), String> {
    let plan = PoolLayout::parse(layout, drives.len()).map_err(|why| why.to_string())?;
    let mut left = drives;
    let (mut vdevs, mut words) = (Vec::new(), Vec::new());
    for group in &plan.0 {
        let (members, rest) =
            left.split_at_checked(group.width).ok_or("The layout needs more drives.")?;
        left = rest;
        let (found, word) = vdevs_of(group, members);
        vdevs.extend(found);
        words.extend(word.into_iter().chain(members.iter().map(|it| (*it).to_owned())));
    }
    Ok((vdevs, words))
}

/// The vdevs of a group of drives, and zpool's word for them.
fn vdevs_of(group: &LayoutGroup, members: &[&str]) -> (Vec<Vdev>, Option<String>) {
    let each =
        |role| members.iter().map(|it| (VdevLayout::Single, role, vec![it.into()])).collect();
    let one = |layout| vec![(layout, VdevRole::Data, members.iter().map(Into::into).collect())];
    match group.kind {
        GroupKind::Stripe => (each(VdevRole::Data), None),
        GroupKind::Spare => (each(VdevRole::Spare), Some("spare".to_owned())),
        GroupKind::Mirror => (one(VdevLayout::Mirror), Some("mirror".to_owned())),
        GroupKind::Raidz(parity) => {
            (one(VdevLayout::Raidz(parity)), Some(format!("raidz{parity}")))
        }
        GroupKind::Draid { parity, data, spares } => {
            (one(VdevLayout::Draid { parity, data, spares }), Some(group.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::forms::Form;

    #[test]
    fn added_drives_become_commands() {
        let command = |form: &str| {
            find("add-vdev", &Form::parse(form.as_bytes())).map(|it| it.request.command)
        };
        for (layout, words) in
            [("mirror 2", "mirror /a /b"), ("spare", "spare /a /b"), ("log", "log mirror /a /b")]
        {
            let form = format!("pool=tank&layout={}&drive=/a&drive=/b", layout.replace(' ', "+"));
            assert_eq!(command(&form).unwrap(), format!("zpool add tank {words}"));
        }
        assert_eq!(command("pool=tank&layout=log&drive=/a").unwrap(), "zpool add tank log /a");
        assert!(
            command("pool=tank&layout=spare").is_err() && command("pool=tank&drive=/a").is_err()
        );
    }

    #[test]
    fn forced_import_asks_for_the_name() {
        let action = |form: &[u8]| find("import", &Form::parse(form)).unwrap();
        let plain = action(b"pool=tank&guid=42");
        assert_eq!((plain.request.command.as_str(), plain.typed), ("zpool import 42", None));
        let forced = action(b"pool=tank&guid=42&force=1&dir=/images");
        assert_eq!(forced.request.command, "zpool import -f -d /images 42");
        assert_eq!(forced.typed.as_deref(), Some("tank"));
    }
}
