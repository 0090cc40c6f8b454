//! The actions of the dashboard. An action is a call of the API, the command that does the same, and a sentence about
//! its consequence.
//!
//! ```text
//! GET  /do/{action}?field=value   asks: shows the command and the consequence, and changes nothing
//! POST /do/{action}               runs it, with the token of the session
//! ```
//!
//! An action that destroys data asks for the name of the thing to be typed.

mod copies;
mod datasets;
mod drives;
mod pools;
mod sharing;
mod vdevs;

use api::{Call, Role};

use crate::ApiRequest;
use crate::forms::Form;

pub(crate) use vdevs::add_call;

/// An action with its fields.
pub(crate) struct Action {
    /// The question: "Start a scrub of tank".
    pub(crate) title: String,
    /// The result, and its consequence for the data.
    pub(crate) consequence: String,
    /// The name to type before data is destroyed; none: a click is enough.
    pub(crate) typed: Option<String>,
    /// The least role that may run it.
    pub(crate) role: Role,
    /// The call, and the command that does the same.
    pub(crate) request: ApiRequest,
    /// The page that shows the result.
    pub(crate) next: String,
}

impl Action {
    /// An action that the role operate may run, and that destroys nothing.
    fn new<C: Call>(
        title: String,
        consequence: &str,
        call: &C,
        command: &[&str],
    ) -> Result<Self, String> {
        Ok(Self {
            title,
            consequence: consequence.to_owned(),
            typed: None,
            role: Role::Operate,
            request: ApiRequest::new(call, &command_line(command))?,
            next: "/".to_owned(),
        })
    }

    /// Only the role administer may run it.
    fn administer(self) -> Self {
        Self { role: Role::Administer, ..self }
    }

    /// It destroys data: `name` is to be typed, and the role administer is needed.
    fn destroys(self, name: &str) -> Self {
        Self { typed: Some(name.to_owned()), ..self }.administer()
    }

    /// The page that comes next.
    fn leads_to(self, next: String) -> Self {
        Self { next, ..self }
    }
}

/// The action of a name with the fields of a form. Errors are sentences.
pub(crate) fn find(name: &str, form: &Form) -> Result<Action, String> {
    match name {
        "scrub" | "clear" | "offline" | "online" | "replace" | "detach" | "export"
        | "create-pool" => pools::find(name, form),
        "add-vdev" | "remove-vdev" | "import" => vdevs::find(name, form),
        "snapshot" | "destroy-snapshot" | "rollback" | "clone" | "create-filesystem"
        | "restore" | "set-property" | "inherit-property" => datasets::find(name, form),
        "note" | "locate" | "self-test" | "burn-in" | "acknowledge" | "cancel-job" => {
            drives::find(name, form)
        }
        "replicate" | "add-replica" | "remove-replica" | "run-policies" | "add-policy"
        | "remove-policy" | "backup" | "add-repository" | "create-repository"
        | "remove-repository" => copies::find(name, form),
        "share" | "unshare" | "remove-share-user" | "remove-user" | "invite" => {
            sharing::find(name, form)
        }
        _ => Err("There is no such action.".to_owned()),
    }
}

/// Words as a line that a shell understands.
fn command_line(words: &[&str]) -> String {
    let quoted = words.iter().map(|word| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@=,%+#".contains(&byte);
        if !word.is_empty() && word.bytes().all(is_plain) {
            (*word).to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use api::Role;

    use super::{command_line, find};
    use crate::forms::Form;

    #[test]
    fn shells_understand_the_commands() {
        assert_eq!(command_line(&["zpool", "scrub", "tank"]), "zpool scrub tank");
        assert_eq!(command_line(&["a b", "", "it's", "$(x)"]), r"'a b' '' 'it'\''s' '$(x)'");
    }

    #[test]
    fn destruction_asks_for_the_name() {
        let action = |name: &str, form: &[u8]| find(name, &Form::parse(form)).unwrap();
        let destroyed = action("destroy-snapshot", b"snapshot=tank/a%40b");
        assert_eq!(destroyed.typed.as_deref(), Some("tank/a@b"));
        let rolled_back = action("rollback", b"snapshot=tank%40b&newer=1");
        assert_eq!(rolled_back.typed.as_deref(), Some("tank@b"));
        assert_eq!(rolled_back.request.command, "zfs rollback -r tank@b");
        for action in [destroyed, rolled_back, action("export", b"pool=tank")] {
            assert_eq!(action.role, Role::Administer);
        }
        assert_eq!(action("scrub", b"pool=tank").role, Role::Operate);
    }

    #[test]
    fn missing_fields_are_named() {
        for (name, field) in
            [("scrub", "pool"), ("replace", "pool"), ("rollback", "snapshot"), ("share", "dataset")]
        {
            let why = find(name, &Form::parse(b"")).err().unwrap();
            assert!(why.contains(field), "{why}");
        }
        assert!(find("format-disk", &Form::parse(b"")).is_err());
    }
}
