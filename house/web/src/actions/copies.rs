//! Actions on copies: replicas, snapshot policies and backups.

use api::{AddConfigSection, RemoveConfigSection, RunPolicies, RunReplicas, StartBackup};

use super::Action;
use crate::forms::Form;

/// The fields of a replica that the form has.
const REPLICA_FIELDS: [&str; 8] =
    ["name", "source", "target", "every", "window", "rate", "max-age", "wake"];
/// The fields of a policy that the form has.
const POLICY_FIELDS: [&str; 5] = ["dataset", "hourly", "daily", "weekly", "monthly"];

pub(super) fn find(name: &str, form: &Form) -> Result<Action, String> {
    match name {
        "replicate" => replicate(form),
        "add-replica" => add_replica(form),
        "remove-replica" => remove_replica(form),
        "add-policy" => add_policy(form),
        "remove-policy" => remove_policy(form),
        "backup" => backup(form),
        _ => run_policies(),
    }
}

fn replicate(form: &Form) -> Result<Action, String> {
    let name = form.required("name")?;
    let call = RunReplicas { name: Some(name.to_owned()) };
    let consequence = "A job sends the snapshots that the copy does not have yet.";
    let title = format!("Bring replica {name} up to date");
    let action = Action::new(title, consequence, &call, &["replicate", "run", name])?;
    Ok(action.leads_to("/copies".to_owned()))
}

fn add_replica(form: &Form) -> Result<Action, String> {
    let (name, source) = (form.required("name")?, form.required("source")?);
    let target = form.required("target")?;
    let consequence = "It runs by its schedule from now on, and sends raw: the other side never has the keys of \
                       encrypted datasets. An address ssh://USER@HOST/DATASET needs root's key of ssh there. Snapshots \
                       at the source are kept until the copy has them.";
    let title = format!("Copy {source} to {target} as replica {name}");
    add_section("replica", &REPLICA_FIELDS, form, title, consequence)
}

fn remove_replica(form: &Form) -> Result<Action, String> {
    let name = form.required("name")?;
    let consequence =
        "It runs no more. The copy stays as it is, and the source keeps no snapshots for it.";
    remove_section("replica", "name", name, format!("Remove replica {name}"), consequence)
}

fn add_policy(form: &Form) -> Result<Action, String> {
    let dataset = form.required("dataset")?;
    if POLICY_FIELDS.iter().skip(1).all(|kind| matches!(form.field(kind), "" | "0")) {
        return Err("Say how many snapshots of at least one kind are kept.".to_owned());
    }
    let consequence = "Snapshots are taken when they are due, also of all datasets below. Those beyond the numbers are \
                       destroyed; snapshots with other names stay.";
    let title = format!("Take snapshots of {dataset} automatically");
    add_section("policy", &POLICY_FIELDS, form, title, consequence)
}

fn remove_policy(form: &Form) -> Result<Action, String> {
    let dataset = form.required("dataset")?;
    let consequence = "No more snapshots are taken, and those that exist stay.";
    let title = format!("End the automatic snapshots of {dataset}");
    remove_section("policy", "dataset", dataset, title, consequence)
}

fn run_policies() -> Result<Action, String> {
    let consequence =
        "It takes the snapshots that are due, and destroys those that the policies no longer keep.";
    let title = "Run the snapshot policies".to_owned();
    let action = Action::new(title, consequence, &RunPolicies {}, &["policy", "run"])?;
    Ok(action.administer().leads_to("/copies".to_owned()))
}

fn backup(form: &Form) -> Result<Action, String> {
    let (location, dataset) = (form.required("location")?, form.required("dataset")?);
    let folder = location.starts_with('/').then(|| format!("file://{location}"));
    let location = folder.as_deref().unwrap_or(location);
    let recursive = form.field("recursive") == "1";
    let call = StartBackup {
        location: location.to_owned(),
        targets: vec![dataset.to_owned()],
        recursive,
        ..StartBackup::default()
    };
    let option: &[&str] = if recursive { &["-r"] } else { &[] };
    let command = [&["backup", "run"], option, &[location, dataset]].concat();
    let consequence =
        "A job stores the snapshots that the repository does not have yet. The pool is only read.";
    let title = format!("Back {dataset} up to {location}");
    let action = Action::new(title, consequence, &call, &command)?;
    Ok(action.administer().leads_to("/".to_owned()))
}

/// Adds a section to the configuration with those of its fields that the form fills.
fn add_section(
    section: &str,
    fields: &[&str],
    form: &Form,
    title: String,
    consequence: &str,
) -> Result<Action, String> {
    let filled = fields.iter().map(|field| (*field, form.field(field).trim()));
    let filled: Vec<_> = filled.filter(|(_, value)| !value.is_empty()).collect();
    let words: Vec<_> = filled.iter().map(|(field, value)| format!("{field}={value}")).collect();
    let mut command = vec!["config", "add", section];
    command.extend(words.iter().map(String::as_str));
    let owned = |(field, value): &(&str, &str)| ((*field).to_owned(), (*value).to_owned());
    let fields = filled.iter().map(owned).collect();
    let call = AddConfigSection { section: section.to_owned(), fields };
    let action = Action::new(title, consequence, &call, &command)?;
    Ok(action.administer().leads_to("/copies".to_owned()))
}

fn remove_section(
    section: &str,
    field: &str,
    value: &str,
    title: String,
    consequence: &str,
) -> Result<Action, String> {
    let owned = str::to_owned;
    let call =
        RemoveConfigSection { section: owned(section), field: owned(field), value: owned(value) };
    let word = format!("{field}={value}");
    let action = Action::new(title, consequence, &call, &["config", "remove", section, &word])?;
    Ok(action.administer().leads_to("/copies".to_owned()))
}

#[cfg(test)]
mod tests {
    use api::Role;

    use super::super::find;
    use crate::forms::Form;

    #[test]
    fn forms_become_sections_and_commands() {
        let form = Form::parse(
            b"name=offsite&source=tank&target=ssh://b%40nas/pool/tank&every=daily&max-age=2d&rate=",
        );
        let action = find("add-replica", &form).unwrap();
        let command = "config add replica name=offsite source=tank target=ssh://b@nas/pool/tank every=daily \
                       max-age=2d";
        assert_eq!((action.request.command.as_str(), action.role), (command, Role::Administer));
        let policy = find("add-policy", &Form::parse(b"dataset=tank&daily=7&ssh=x")).unwrap();
        assert_eq!(policy.request.command, "config add policy dataset=tank daily=7");
        assert!(find("add-policy", &Form::parse(b"dataset=tank&daily=0")).is_err());
        let removed = find("remove-policy", &Form::parse(b"dataset=tank")).unwrap();
        assert_eq!(removed.request.command, "config remove policy dataset=tank");
        let form = Form::parse(b"location=/mnt/usb&dataset=tank&recursive=1");
        let backup = find("backup", &form).unwrap();
        assert_eq!(backup.request.command, "backup run -r file:///mnt/usb tank");
        assert_eq!(find("replicate", &Form::parse(b"name=a")).unwrap().role, Role::Operate);
    }
}
