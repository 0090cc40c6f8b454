//! Actions on shares and users.

use api::{AddShare, Protocol, RemoveDashboardUser, RemoveShare, RemoveUser, Role, SetUpDashboard};

use super::Action;
use crate::forms::Form;

pub(super) fn find(name: &str, form: &Form) -> Result<Action, String> {
    match name {
        "share" => share(form),
        "unshare" => unshare(form),
        "remove-share-user" => remove_share_user(form),
        "invite" => invite(form),
        _ => remove_user(form),
    }
}

fn protocol(form: &Form) -> Result<Protocol, String> {
    let word = form.required("protocol")?;
    Protocol::from_word(word).ok_or_else(|| format!("'{word}' is no protocol of shares"))
}

fn share(form: &Form) -> Result<Action, String> {
    let (dataset, protocol) = (form.required("dataset")?, protocol(form)?);
    let given = |name: &str| {
        let value = form.field(name);
        (!value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    let mut options: Vec<_> = ["networks", "users"].into_iter().filter_map(given).collect();
    if form.field("read_only") == "1" {
        options.push(("read_only".to_owned(), "true".to_owned()));
    }
    let written: Vec<_> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut command = vec!["share", "add", protocol.as_str(), dataset];
    command.extend(written.iter().flat_map(|option| ["-o", option]));
    let call = AddShare { protocol, dataset: dataset.to_owned(), options };
    let consequence = "Clients reach it at once, if the protocol listens. Without networks only this machine does.";
    let title = format!("Share {dataset} by {protocol}");
    let action = Action::new(title, consequence, &call, &command)?;
    Ok(action.administer().leads_to("/shares".to_owned()))
}

fn unshare(form: &Form) -> Result<Action, String> {
    let (name, protocol) = (form.required("name")?, protocol(form)?);
    let call = RemoveShare { protocol, name: name.to_owned() };
    let consequence = "Its clients are disconnected. The data stays.";
    let command = ["share", "remove", protocol.as_str(), name];
    let title = format!("Remove the {protocol} share {name}");
    let action = Action::new(title, consequence, &call, &command)?;
    Ok(action.administer().leads_to("/shares".to_owned()))
}

fn remove_share_user(form: &Form) -> Result<Action, String> {
    let name = form.required("name")?;
    let call = RemoveUser { name: name.to_owned() };
    let consequence =
        "Clients can no longer log in by this name. The user of the system and all files stay.";
    let title = format!("Remove user {name} of shares");
    let action = Action::new(title, consequence, &call, &["user", "remove", name])?;
    Ok(action.administer().leads_to("/users".to_owned()))
}

fn invite(form: &Form) -> Result<Action, String> {
    let (name, word) = (form.required("name")?, form.required("role")?);
    let role = Role::from_word(word).ok_or_else(|| format!("'{word}' is no role"))?;
    let call = SetUpDashboard { user: Some(name.to_owned()), role: Some(role) };
    let consequence = "A link is made by which this user sets a password. It works once, for 15 minutes. For a user \
                       who exists, it resets the password and the one-time codes.";
    let title = format!("Invite {name} to {word}");
    let action = Action::new(title, consequence, &call, &["web", "setup", name, "--role", word])?;
    Ok(action.administer().leads_to("/users".to_owned()))
}

fn remove_user(form: &Form) -> Result<Action, String> {
    let name = form.required("name")?;
    let call = RemoveDashboardUser { name: name.to_owned() };
    let consequence = "The user's sessions end, and the user can no longer log in here.";
    let title = format!("Remove user {name}");
    let action = Action::new(title, consequence, &call, &["web", "remove", name])?;
    Ok(action.administer().leads_to("/users".to_owned()))
}
