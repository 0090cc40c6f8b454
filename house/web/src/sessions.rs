//! Sessions: the logged-in browsers. They are in memory, so that a restart of the daemon ends them.
//!
//! The cookie holds 32 random bytes as digits. The table holds their hash: its memory shows no
//! cookie. A cookie that the daemon did not make is never accepted.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The sessions at most; the one that was not used for the longest time goes first.
const MAX_SESSIONS: usize = 64;
/// The seconds without a request after which a session ends.
const IDLE_LIMIT: u64 = 12 * 60 * 60;
/// The age in seconds at which a session ends.
const AGE_LIMIT: u64 = 7 * 24 * 60 * 60;

/// 32 random bytes as hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl Secret {
    pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Compares in constant time.
    pub(crate) fn matches(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

/// The open sessions, by the hash of their cookie.
#[derive(Default)]
pub(crate) struct Sessions(HashMap<[u8; 32], Session>);

struct Session {
    user: String,
    /// The token that each form of the session carries.
    csrf: Secret,
    began: u64,
    used: u64,
}

impl Sessions {
    /// Opens a session of a user.
    pub(crate) fn open(&mut self, user: &str, cookie: &Secret, csrf: Secret, now: u64) {
        self.expire(now);
        if self.0.len() >= MAX_SESSIONS {
            let idlest = self.0.iter().min_by_key(|(_, session)| session.used);
            if let Some(key) = idlest.map(|(key, _)| *key) {
                self.0.remove(&key);
            }
        }
        let session = Session { user: user.to_owned(), csrf, began: now, used: now };
        self.0.insert(hash(&cookie.0), session);
    }

    /// The user of a session and the token for its forms; none if the session does not exist or ended. A page's
    /// own background requests do not extend the session.
    pub(crate) fn find(
        &mut self,
        cookie: &str,
        now: u64,
        is_use: bool,
    ) -> Option<(String, Secret)> {
        self.expire(now);
        let session = self.0.get_mut(&hash(cookie))?;
        if is_use {
            session.used = now;
        }
        Some((session.user.clone(), session.csrf.clone()))
    }

    /// Ends a session.
    pub(crate) fn close(&mut self, cookie: &str) {
        self.0.remove(&hash(cookie));
    }

    /// Ends the sessions of a user, but not the one of the cookie `kept`.
    pub(crate) fn close_user(&mut self, user: &str, kept: Option<&str>) {
        let kept = kept.map(hash);
        self.0.retain(|key, session| session.user != user || Some(*key) == kept);
    }

    /// The number of open sessions of a user.
    pub(crate) fn count_of(&self, user: &str) -> usize {
        self.0.values().filter(|session| session.user == user).count()
    }

    /// Ends all sessions.
    pub(crate) fn close_all(&mut self) {
        self.0.clear();
    }

    /// The number of open sessions.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    fn expire(&mut self, now: u64) {
        self.0.retain(|_, session| {
            now < session.used + IDLE_LIMIT && now < session.began + AGE_LIMIT
        });
    }
}

fn hash(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::{AGE_LIMIT, IDLE_LIMIT, MAX_SESSIONS, Secret, Sessions};

    fn secret(number: u8) -> Secret {
        Secret::from_bytes(&[number; 32])
    }

    #[test]
    fn sessions_end_by_idleness_and_age() {
        let mut sessions = Sessions::default();
        sessions.open("anna", &secret(1), secret(2), 0);
        let (user, csrf) = sessions.find(&secret(1).0, 1, true).unwrap();
        assert!(user == "anna" && csrf.matches(&secret(2).0));
        assert!(sessions.find(&secret(3).0, 1, true).is_none());
        assert!(sessions.find(&secret(1).0, IDLE_LIMIT, true).is_some());
        assert!(sessions.find(&secret(1).0, 2 * IDLE_LIMIT, true).is_none());
        sessions.open("anna", &secret(1), secret(2), 0);
        let mut now = 0;
        while sessions.find(&secret(1).0, now, true).is_some() {
            now += IDLE_LIMIT - 1;
        }
        assert!(now >= AGE_LIMIT);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut sessions = Sessions::default();
        for number in 0..200 {
            sessions.open("anna", &secret(number), secret(0), u64::from(number));
        }
        assert_eq!(sessions.count(), MAX_SESSIONS);
        assert!(sessions.find(&secret(199).0, 200, true).is_some());
        assert!(sessions.find(&secret(0).0, 200, true).is_none());
        sessions.close(&secret(199).0);
        assert!(sessions.find(&secret(199).0, 200, true).is_none());
    }

    #[test]
    fn sessions_of_one_user_end_together() {
        let mut sessions = Sessions::default();
        for (number, user) in [(1, "anna"), (2, "anna"), (3, "ben")] {
            sessions.open(user, &secret(number), secret(0), 0);
        }
        sessions.close_user("anna", Some(&secret(2).0));
        assert_eq!((sessions.count_of("anna"), sessions.count_of("ben")), (1, 1));
        sessions.close_user("anna", None);
        assert!(sessions.find(&secret(2).0, 0, true).is_none() && sessions.count() == 1);
    }
}
