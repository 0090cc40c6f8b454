//! Actions on copies: replicas, snapshot policies, and backups in repositories.

use api::{
    AddConfigSection, CreateRepository, RemoveConfigSection, RunPolicies, RunReplicas, StartBackup,
};

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
        "add-repository" => add_repository(form),
        "create-repository" => create_repository(form),
        "remove-repository" => remove_repository(form),
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
    add_section("replica", &fields_of(form, &REPLICA_FIELDS), title, consequence)
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
    add_section("policy", &fields_of(form, &POLICY_FIELDS), title, consequence)
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

/// The address of a repository; a folder alone is one, too.
fn location(form: &Form) -> Result<String, String> {
    let given = form.required("location")?.trim();
    Ok(if given.starts_with('/') { format!("file://{given}") } else { given.to_owned() })
}

fn add_repository(form: &Form) -> Result<Action, String> {
    let location = location(form)?;
    let credentials = form.field("credentials").trim();
    if !credentials.is_empty() && !credentials.starts_with('/') {
        return Err(format!("'{credentials}' is not the absolute path of a file"));
    }
    if location.starts_with("s3://") && credentials.is_empty() {
        return Err("A bucket needs a file with its keys.".to_owned());
    }
    let consequence = "The daemon knows it from now on, and reads the keys from that file when it needs them. Nothing is \
                       written there before the repository is created.";
    let title = format!("Add repository {location}");
    let fields = [("location", location.as_str()), ("credentials", credentials)];
    add_section("repository", &fields, title, consequence)
}

fn create_repository(form: &Form) -> Result<Action, String> {
    let location = location(form)?;
    let call = CreateRepository { location: location.clone() };
    let consequence = "It is empty, and can be read by everybody with access to the folder or bucket, except for encrypted \
                       datasets. A repository that is there already stays as it is.";
    let title = format!("Create a repository at {location}");
    let action = Action::new(title, consequence, &call, &["backup", "init", &location])?;
    Ok(action.administer().leads_to("/copies".to_owned()))
}

fn remove_repository(form: &Form) -> Result<Action, String> {
    let location = location(form)?;
    let consequence = "It is shown here no more. The backups in it stay.";
    let title = format!("Remove repository {location} from the configuration");
    remove_section("repository", "location", &location, title, consequence)
}

fn backup(form: &Form) -> Result<Action, String> {
    let (location, dataset) = (location(form)?, form.required("dataset")?);
    let location = location.as_str();
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

/// The fields of a form, by their names.
fn fields_of<'a>(form: &'a Form, names: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    names.iter().map(|name| (*name, form.field(name).trim())).collect()
}

/// Adds a section to the configuration with those of the fields that are filled.
fn add_section(
    section: &str,
    fields: &[(&str, &str)],
    title: String,
    consequence: &str,
) -> Result<Action, String> {
    let filled: Vec<_> = fields.iter().filter(|(_, value)| !value.is_empty()).collect();
    let words: Vec<_> = filled.iter().map(|(field, value)| format!("{field}={value}")).collect();
    let mut command = vec!["config", "add", section];
    command.extend(words.iter().map(String::as_str));
    let owned = |(field, value): &&(&str, &str)| ((*field).to_owned(), (*value).to_owned());
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
        let form = Form::parse(b"location=s3://b/nas&credentials=/etc/b.env");
        let added = find("add-repository", &form).unwrap();
        let command = "config add repository location=s3://b/nas credentials=/etc/b.env";
        assert_eq!(added.request.command, command);
        assert!(find("add-repository", &Form::parse(b"location=s3://b/nas")).is_err());
        let created = find("create-repository", &Form::parse(b"location=/mnt/usb")).unwrap();
        assert_eq!(created.request.command, "backup init file:///mnt/usb");
        let removed = find("remove-repository", &form).unwrap();
        assert_eq!(removed.request.command, "config remove repository location=s3://b/nas");
        assert_eq!(removed.role, Role::Administer);
        assert_eq!(find("replicate", &Form::parse(b"name=a")).unwrap().role, Role::Operate);
    }
}
