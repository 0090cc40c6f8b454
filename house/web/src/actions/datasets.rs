//! Actions on datasets, snapshots and files.

use api::{
    CloneSnapshot, CreateFilesystem, CreateSnapshots, DestroyDatasets, InheritProperty,
    RestoreFile, RestoreFolder, RollbackDataset, SetProperties,
};

use super::Action;
use crate::forms::Form;
use crate::pages::{EDITABLE_PROPERTIES as EDITABLE, dataset_path, files_path};

pub(super) fn find(name: &str, form: &Form) -> Result<Action, String> {
    match name {
        "snapshot" => snapshot(form),
        "destroy-snapshot" => destroy_snapshot(form),
        "rollback" => rollback(form),
        "clone" => clone(form),
        "restore" => restore(form),
        "set-property" => set_property(form),
        "inherit-property" => inherit_property(form),
        _ => create_filesystem(form),
    }
}

/// The dataset of a snapshot.
fn head(snapshot: &str) -> &str {
    snapshot.split('@').next().unwrap_or(snapshot)
}

fn snapshot(form: &Form) -> Result<Action, String> {
    let (dataset, name) = (form.required("dataset")?, form.required("name")?);
    let recursive = form.field("recursive") == "1";
    let full = format!("{dataset}@{name}");
    let call = CreateSnapshots { names: vec![full.clone()], recursive, properties: Vec::new() };
    let option: &[&str] = if recursive { &["-r"] } else { &[] };
    let command = [&["zfs", "snapshot"], option, &[&full]].concat();
    let consequence = "It keeps the files as they are now. It takes space only as they change.";
    let action = Action::new(format!("Take snapshot {full}"), consequence, &call, &command)?;
    Ok(action.leads_to(dataset_path(dataset)))
}

fn destroy_snapshot(form: &Form) -> Result<Action, String> {
    let name = form.required("snapshot")?;
    if !name.contains('@') {
        return Err(format!("'{name}' is not a snapshot: FS@NAME"));
    }
    let call = DestroyDatasets { name: name.to_owned(), ..DestroyDatasets::default() };
    let consequence = "Data that only this snapshot holds is lost. The files as they are now, and other snapshots, \
                       stay.";
    let title = format!("Destroy snapshot {name}");
    let action = Action::new(title, consequence, &call, &["zfs", "destroy", name])?;
    Ok(action.destroys(name).leads_to(dataset_path(head(name))))
}

fn rollback(form: &Form) -> Result<Action, String> {
    let name = form.required("snapshot")?;
    let destroy_newer = form.field("newer") == "1";
    let (snapshot, destroy_clones, force) = (name.to_owned(), false, false);
    let call = RollbackDataset { snapshot, destroy_newer, destroy_clones, force };
    let option: &[&str] = if destroy_newer { &["-r"] } else { &[] };
    let command = [&["zfs", "rollback"], option, &[name]].concat();
    let consequence = if destroy_newer {
        "All changes since the snapshot are lost, and all newer snapshots are destroyed."
    } else {
        "All changes since the snapshot are lost."
    };
    let title = format!("Roll {} back to {name}", head(name));
    let action = Action::new(title, consequence, &call, &command)?;
    Ok(action.destroys(name).leads_to(dataset_path(head(name))))
}

fn clone(form: &Form) -> Result<Action, String> {
    let (origin, name) = (form.required("snapshot")?, form.required("name")?);
    let (snapshot, full) = (origin.to_owned(), name.to_owned());
    let call = CloneSnapshot { snapshot, name: full, properties: Vec::new(), parents: false };
    let consequence = "It is a file system with the files of the snapshot, which can be changed. The snapshot cannot \
                       be destroyed before it.";
    let title = format!("Clone {origin} to {name}");
    let action = Action::new(title, consequence, &call, &["zfs", "clone", origin, name])?;
    Ok(action.administer().leads_to(dataset_path(name)))
}

fn create_filesystem(form: &Form) -> Result<Action, String> {
    let name = form.required("name")?;
    let call = CreateFilesystem {
        name: name.to_owned(),
        properties: Vec::new(),
        parents: false,
        no_mount: false,
        secret: None,
        dry_run: false,
    };
    let consequence = "It is an empty file system, mounted below its parent.";
    let title = format!("Create file system {name}");
    let action = Action::new(title, consequence, &call, &["zfs", "create", name])?;
    Ok(action.administer().leads_to(dataset_path(name)))
}

/// The property of a form: one that the pages offer.
fn offered_property(form: &Form) -> Result<&str, String> {
    let property = form.required("property")?;
    if EDITABLE.iter().any(|(name, _)| *name == property) {
        return Ok(property);
    }
    Err(format!("The dashboard does not set {property}; see: poolhouse zfs set --help"))
}

fn set_property(form: &Form) -> Result<Action, String> {
    let (dataset, property) = (form.required("dataset")?, offered_property(form)?);
    let value = form.required("value")?;
    let call = SetProperties {
        names: vec![dataset.to_owned()],
        properties: vec![(property.to_owned(), value.to_owned())],
        keep_mounts: false,
    };
    let consequence = match property {
        "sync" if value == "disabled" => {
            "A power failure then costs the writes of the last seconds, also those that programs were told are safe."
        }
        "readonly" if value == "on" => "Programs can no longer write to it.",
        "mountpoint" | "canmount" => {
            "It is unmounted and mounted again if needed. Programs that use its files get errors."
        }
        _ => "Children that do not set it themselves inherit the value.",
    };
    let setting = format!("{property}={value}");
    let title = format!("Set {setting} of {dataset}");
    let action = Action::new(title, consequence, &call, &["zfs", "set", &setting, dataset])?;
    Ok(action.administer().leads_to(dataset_path(dataset)))
}

fn inherit_property(form: &Form) -> Result<Action, String> {
    let (dataset, property) = (form.required("dataset")?, offered_property(form)?);
    let call = InheritProperty {
        names: vec![dataset.to_owned()],
        property: property.to_owned(),
        recursive: false,
        received: false,
    };
    let consequence = "Its value comes from the parent again, or is the default.";
    let title = format!("Inherit {property} of {dataset}");
    let action = Action::new(title, consequence, &call, &["zfs", "inherit", property, dataset])?;
    Ok(action.administer().leads_to(dataset_path(dataset)))
}

fn restore(form: &Form) -> Result<Action, String> {
    let (snapshot, path) = (form.required("snapshot")?, form.required("path")?);
    let is_folder = form.field("folder") == "1";
    let given = |name: &str| Some(form.field(name)).filter(|value| !value.is_empty());
    let (repository, into) = (given("repository"), given("into"));
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let restored = api::restored_name(name, snapshot);
    let mut command = vec!["files", "restore"];
    command.extend(is_folder.then_some("-r"));
    command.extend(repository.iter().flat_map(|location| ["--repository", location]));
    command.extend(into.iter().flat_map(|dataset| ["--into", dataset]));
    command.extend([snapshot, path]);
    let title = format!("Restore {path}");
    let target = into.unwrap_or_else(|| head(snapshot));
    let place = if repository.is_some() { format!(" of {target}") } else { String::new() };
    let next = files_path(target, "", dir);
    let owned = |value: Option<&str>| value.map(str::to_owned);
    let (repository, into) = (owned(repository), owned(into));
    let (snapshot_owned, path) = (snapshot.to_owned(), path.to_owned());
    let action = if is_folder {
        let consequence = format!(
            "A job copies the folder as it was in {snapshot}, with all that is in it, beside the present one{place}, as \
             \"{restored}\". Nothing is overwritten. Until the job ends, the name ends in .partial."
        );
        let call = RestoreFolder { snapshot: snapshot_owned, path, repository, into };
        Action::new(title, &consequence, &call, &command)?
    } else {
        let consequence = format!(
            "The file as it was in {snapshot} is copied beside the present one{place}, as \"{restored}\". No file is \
             overwritten."
        );
        let call = RestoreFile { snapshot: snapshot_owned, path, repository, into };
        Action::new(title, &consequence, &call, &command)?
    };
    Ok(action.administer().leads_to(next))
}
