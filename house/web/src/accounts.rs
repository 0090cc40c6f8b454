//! The users of the dashboard: names, roles, passwords and secrets of one-time codes.
//!
//! They are one JSON text, which the daemon keeps in a file that only it can read:
//!
//! ```text
//! [{"name": "anna", "role": "operate", "password": "$argon2id$...", "totp": "GEZDG...", "totp_step": 58}]
//! ```

use api::Role;
use serde::{Deserialize, Serialize};

/// The users at most.
const MAX_USERS: usize = 100;
/// The longest name of a user, in bytes.
const MAX_NAME: usize = 64;

/// A user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The hash of the password.
    pub(crate) password: String,
    /// The secret of one-time codes, in base 32; none: they are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) totp: Option<String>,
    /// The step of the code that was used last. A code works once.
    #[serde(default)]
    pub(crate) totp_step: u64,
}

/// All users, by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Accounts(Vec<Account>);

impl Accounts {
    /// Reads the users; none: the dashboard is off.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::default()) };
        let damaged = |why| format!("the file of the dashboard's users is damaged: {why}");
        serde_json::from_str(text).map(Self).map_err(damaged)
    }

    /// The users as text; none: there are none.
    pub(crate) fn to_text(&self) -> Result<Option<String>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        serde_json::to_string(&self.0).map(Some).map_err(|why| why.to_string())
    }

    /// A user.
    pub(crate) fn find(&self, name: &str) -> Option<&Account> {
        self.0.iter().find(|account| account.name == name)
    }

    /// All users.
    pub(crate) fn all(&self) -> &[Account] {
        &self.0
    }

    /// Adds a user, or replaces the one of that name.
    pub(crate) fn insert(&mut self, account: Account) -> Result<(), String> {
        self.remove(&account.name);
        if self.0.len() >= MAX_USERS {
            return Err(format!("The dashboard has {MAX_USERS} users already. Remove one first."));
        }
        self.0.push(account);
        self.0.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(())
    }

    /// Removes a user. Returns whether there was one.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let count = self.0.len();
        self.0.retain(|account| account.name != name);
        self.0.len() < count
    }

    /// Whether a user other than `name` administers.
    pub(crate) fn has_other_administrator(&self, name: &str) -> bool {
        let mut others = self.0.iter().filter(|account| account.name != name);
        others.any(|account| account.role == Role::Administer)
    }
}

/// Refuses names that cannot be typed or told apart.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | '@');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
        return Err(format!(
            "'{name}' is no name for a user: use 1 to {MAX_NAME} letters, digits, and any of . - _ @"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::Role;

    use super::{Account, Accounts, check_name};

    fn account(name: &str, role: Role) -> Account {
        Account { name: name.to_owned(), role, password: "x".to_owned(), totp: None, totp_step: 0 }
    }

    #[test]
    fn users_survive_as_text() {
        let mut accounts = Accounts::default();
        assert_eq!(accounts.to_text(), Ok(None));
        accounts.insert(account("ben", Role::Look)).unwrap();
        accounts.insert(account("anna", Role::Administer)).unwrap();
        accounts.insert(account("ben", Role::Operate)).unwrap();
        let text = accounts.to_text().unwrap();
        let read = Accounts::parse(text.as_deref()).unwrap();
        let all: Vec<_> = read.all().iter().map(|it| (&*it.name, it.role)).collect();
        assert_eq!(all, [("anna", Role::Administer), ("ben", Role::Operate)]);
        assert!(read.has_other_administrator("ben") && !read.has_other_administrator("anna"));
        assert!(Accounts::parse(Some("[{")).is_err());
    }

    #[test]
    fn odd_names_are_refused() {
        assert!(check_name("anna.b@nas-1").is_ok());
        for name in ["", "a b", "<b>", "a/b", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
