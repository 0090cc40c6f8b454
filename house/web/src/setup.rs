//! The one-time link by which the password is set.

use crate::sessions::Secret;

/// The link that holds; a new one ends the one before.
#[derive(Default)]
pub(crate) struct SetupLink(Option<(Secret, u64)>);

impl SetupLink {
    /// Makes `token` the link until `end`, in seconds of the monotonic clock.
    pub(crate) fn set(&mut self, token: Secret, end: u64) {
        self.0 = Some((token, end));
    }

    /// Whether a token is that of the link.
    pub(crate) fn holds(&self, token: &str, now: u64) -> bool {
        self.0.as_ref().is_some_and(|(secret, end)| secret.matches(token) && now < *end)
    }

    /// Ends the link if the token is right. Returns whether it was.
    pub(crate) fn take(&mut self, token: &str, now: u64) -> bool {
        let holds = self.holds(token, now);
        if holds {
            self.0 = None;
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::SetupLink;
    use crate::sessions::Secret;

    #[test]
    fn a_link_holds_once_and_for_a_time() {
        let secret = || Secret::from_bytes(&[1; 32]);
        let mut link = SetupLink::default();
        assert!(!link.holds("", 0));
        link.set(secret(), 10);
        assert!(link.holds(&secret().0, 9) && !link.holds(&secret().0, 10));
        assert!(!link.take("x", 9) && link.take(&secret().0, 9) && !link.take(&secret().0, 9));
    }
}
