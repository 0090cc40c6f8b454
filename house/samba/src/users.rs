//! Users of SMB: each has a password of its own, and the rights of a user of the system.
//!
//! Samba keeps the passwords by system user in passdb.tdb. A user with another name than its system user has a line
//! in users.map:
//!
//! ```text
//! !SYSTEM-USER = USER          the mark ! ends the search at this line
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;

use crate::folder::file_error;
use crate::{Error, Folder, Programs, Result};

/// The name of a user: letters, digits, `.`, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserName(String);

/// A user of SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name with which clients log in.
    pub name: String,
    /// The system user whose rights it has.
    pub system_user: String,
}

/// The users of an smbd.
#[derive(Clone, Debug)]
pub struct Users {
    programs: Programs,
    folder: Folder,
}

const MAX_NAME: usize = 32;

impl UserName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_good = (1..=MAX_NAME).contains(&name.len())
            && name.chars().all(is_plain)
            && !name.starts_with('-');
        if is_good {
            Ok(Self(name.to_owned()))
        } else {
            Err(Error::UserName { name: name.to_owned() })
        }
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Users {
    /// The users of an smbd, whose smb.conf exists.
    pub fn new(programs: Programs, folder: Folder) -> Self {
        Self { programs, folder }
    }

    /// Adds a user.
    pub fn add(&self, name: &UserName, system_user: &UserName, password: &str) -> Result<()> {
        check_password(password)?;
        check_system_user(&system_user.0)?;
        let all = self.list()?;
        if all.iter().any(|user| user.name == name.0) {
            return Err(Error::UserExists { name: name.0.clone() });
        }
        if let Some(user) = all.iter().find(|user| user.system_user == system_user.0) {
            let (system_user, name) = (system_user.0.clone(), user.name.clone());
            return Err(Error::SystemUserTaken { system_user, name });
        }
        self.set(&["-a", "-u", &system_user.0], password)?;
        if name == system_user {
            return Ok(());
        }
        let mut map = self.map()?;
        map.insert(system_user.0.clone(), name.0.clone());
        self.write_map(&map)
    }

    /// Sets the password of a user.
    pub fn set_password(&self, name: &UserName, password: &str) -> Result<()> {
        check_password(password)?;
        let user = self.find(name)?;
        // pdbedit -a of a user that exists sets the password
        self.set(&["-a", "-u", &user.system_user], password)
    }

    /// Removes a user. The system user and the files stay.
    pub fn remove(&self, name: &UserName) -> Result<()> {
        let user = self.find(name)?;
        self.programs.pdbedit(&self.folder, &["-x", "-u", &user.system_user], "")?;
        let mut map = self.map()?;
        if map.remove(&user.system_user).is_some() {
            self.write_map(&map)?;
        }
        Ok(())
    }

    /// All users, by name.
    pub fn list(&self) -> Result<Vec<User>> {
        let text = self.programs.pdbedit(&self.folder, &["-L"], "")?;
        let map = self.map()?;
        // NAME:UID:FULL NAME
        let names = text.lines().filter_map(|line| Some(line.split_once(':')?.0));
        let mut all: Vec<User> = names
            .map(|system_user| User {
                name: map.get(system_user).map_or(system_user, String::as_str).to_owned(),
                system_user: system_user.to_owned(),
            })
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// The system user of a user; without such a user the name itself.
    pub fn system_user(&self, name: &str) -> Result<String> {
        let map = self.map()?;
        let found = map.into_iter().find(|(_, mapped)| mapped == name);
        Ok(found.map_or_else(|| name.to_owned(), |(system_user, _)| system_user))
    }

    /// The numbers of the system user of a user, and of that user's group.
    pub fn system_ids(&self, name: &UserName) -> Result<(u32, u32)> {
        let User { system_user, .. } = self.find(name)?;
        let found = nix::unistd::User::from_name(&system_user).ok().flatten();
        let found = found.ok_or(Error::NoSystemUser { name: system_user })?;
        Ok((found.uid.as_raw(), found.gid.as_raw()))
    }

    fn find(&self, name: &UserName) -> Result<User> {
        let found = self.list()?.into_iter().find(|user| user.name == name.0);
        found.ok_or_else(|| Error::NoSuchUser { name: name.0.clone() })
    }

    fn set(&self, words: &[&str], password: &str) -> Result<()> {
        let words: Vec<_> = ["-t"].iter().chain(words).copied().collect();
        let twice = format!("{password}\n{password}\n");
        self.programs.pdbedit(&self.folder, &words, &twice).map(drop)
    }

    /// The names of users by their system users, where they differ.
    fn map(&self) -> Result<BTreeMap<String, String>> {
        let path = self.folder.users_map();
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(parse_map(&text)),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(why) => Err(file_error(&path, &why)),
        }
    }

    fn write_map(&self, map: &BTreeMap<String, String>) -> Result<()> {
        let lines = map.iter().map(|(system_user, name)| format!("!{system_user} = {name}\n"));
        Folder::write(&self.folder.users_map(), &lines.collect::<String>())
    }
}

fn parse_map(text: &str) -> BTreeMap<String, String> {
    let entry = |line: &str| {
        let (system_user, name) = line.strip_prefix('!')?.split_once(" = ")?;
        Some((system_user.to_owned(), name.to_owned()))
    };
    text.lines().filter_map(entry).collect()
}

fn check_password(password: &str) -> Result<()> {
    let is_good = !password.is_empty() && !password.contains(['\n', '\r', '\0']);
    if is_good { Ok(()) } else { Err(Error::Password) }
}

/// Refuses a system user that is not there, or that this process cannot become.
fn check_system_user(name: &str) -> Result<()> {
    let found = nix::unistd::User::from_name(name).ok().flatten();
    let Some(user) = found else { return Err(Error::NoSystemUser { name: name.to_owned() }) };
    match crate::server::single_user() {
        Some(own) if user.name != own => Err(Error::OtherUser { own, name: name.to_owned() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{UserName, check_password, parse_map};

    #[test]
    fn names_cannot_break_files_or_commands() {
        for name in ["anna", "Anna.B_2", "a-b"] {
            assert!(UserName::new(name).is_ok(), "{name}");
        }
        for name in ["", "-x", "a b", "a=b", "a\nb", "../x", "%u", &"x".repeat(33)] {
            assert!(UserName::new(name).is_err(), "{name}");
        }
        assert!(check_password("geheim ä").is_ok());
        assert!(check_password("").is_err() && check_password("a\nb").is_err());
    }

    #[test]
    fn the_map_has_system_users_first() {
        let map = parse_map("!root = anna\n# x\n!ben = benjamin\n");
        assert_eq!(map["root"], "anna");
        assert_eq!(map["ben"], "benjamin");
    }
}
