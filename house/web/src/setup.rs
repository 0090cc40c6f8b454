//! The one-time links by which users set their passwords.

use api::Role;

use crate::sessions::Secret;

/// The links that hold at the same time; the oldest ends first.
const MAX_LINKS: usize = 16;

/// The links that hold, the oldest first.
#[derive(Default)]
pub(crate) struct SetupLinks(Vec<SetupLink>);

struct SetupLink {
    token: Secret,
    target: SetupTarget,
    /// In seconds of the monotonic clock.
    end: u64,
}

/// The user that a link is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetupTarget {
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl SetupLinks {
    /// Adds a link that holds until `end`. It ends the link of the same user before.
    pub(crate) fn add(&mut self, token: Secret, target: SetupTarget, end: u64) {
        self.end_for(&target.name);
        if self.0.len() >= MAX_LINKS {
            self.0.remove(0);
        }
        self.0.push(SetupLink { token, target, end });
    }

    /// The user that the link of a token is for; none: no such link holds.
    pub(crate) fn find(&self, token: &str, now: u64) -> Option<&SetupTarget> {
        let found = self.0.iter().find(|link| link.token.matches(token) && now < link.end);
        found.map(|link| &link.target)
    }

    /// Redeems the link of a token, which ends with that. Returns its user, if it held.
    pub(crate) fn redeem(&mut self, token: &str, now: u64) -> Option<SetupTarget> {
        let target = self.find(token, now).cloned()?;
        self.end_for(&target.name);
        Some(target)
    }

    /// Ends the link of a user.
    pub(crate) fn end_for(&mut self, name: &str) {
        self.0.retain(|link| link.target.name != name);
    }

    /// Ends all links.
    pub(crate) fn end_all(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use api::Role;

    use super::{MAX_LINKS, SetupLinks, SetupTarget};
    use crate::sessions::Secret;

    fn target(name: &str) -> SetupTarget {
        SetupTarget { name: name.to_owned(), role: Role::Look }
    }

    #[test]
    fn links_hold_once_and_for_a_time() {
        let secret = |number| Secret::from_bytes(&[number; 32]);
        let mut links = SetupLinks::default();
        assert!(links.find("", 0).is_none());
        links.add(secret(1), target("anna"), 10);
        assert_eq!(links.find(&secret(1).0, 9), Some(&target("anna")));
        assert!(links.find(&secret(1).0, 10).is_none() && links.redeem("x", 9).is_none());
        assert!(links.redeem(&secret(1).0, 9).is_some() && links.redeem(&secret(1).0, 9).is_none());
        // another link ends the one before of the same user
        links.add(secret(1), target("anna"), 10);
        links.add(secret(2), target("ben"), 10);
        links.add(secret(3), target("anna"), 10);
        assert!(links.find(&secret(1).0, 9).is_none() && links.find(&secret(2).0, 9).is_some());
        for number in 0..100 {
            links.add(secret(number), target(&number.to_string()), 10);
        }
        assert_eq!(links.0.len(), MAX_LINKS);
    }
}
