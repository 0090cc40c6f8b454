//! The account, the certificate, and when the CA is asked again.
//!
//! A certificate is renewed in the last third of its time. A failure is tried again after 15 minutes, and after twice as
//! long each time, a day at most: a CA limits how often a name may fail.

use serde::{Deserialize, Serialize};

use crate::AcmeConfig;

/// The wait after the first failure, in seconds.
const FIRST_WAIT: u64 = 15 * 60;
/// Failures beyond this number make the wait no longer.
const MANY_FAILURES: u32 = 16;
/// The longest wait after a failure, in seconds.
const LONGEST_WAIT: u64 = 24 * 60 * 60;

/// A certificate with its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// The names that it is for.
    pub names: Vec<String>,
    /// The certificate and those between it and its root.
    pub chain: String,
    /// The private key.
    pub key: String,
    /// From when it holds, in seconds since 1970.
    pub from: u64,
    /// Until when it holds, in seconds since 1970.
    pub until: u64,
}

/// The account and the certificate, kept between two orders. Its JSON is the content of a file that only the daemon can read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeState {
    /// The directory of the CA that has the account and issued the certificate.
    #[serde(default)]
    pub directory: String,
    /// The account with its key, as JSON; none: there is none yet.
    #[serde(default)]
    pub account: Option<String>,
    /// The certificate.
    #[serde(default)]
    pub certificate: Option<IssuedCertificate>,
    /// The names that the last order was for.
    #[serde(default)]
    pub asked: Vec<String>,
    /// Failures since the last success.
    #[serde(default)]
    pub failures: u32,
    /// The reason of the last failure.
    #[serde(default)]
    pub error: Option<String>,
    /// When a failure is tried again, in seconds since 1970.
    #[serde(default)]
    pub next_try: u64,
}

impl AcmeState {
    /// Whether the CA is asked now.
    pub fn is_due(&self, config: &AcmeConfig, now: u64) -> bool {
        let is_same = self.directory == config.directory && self.asked == config.names;
        if is_same && self.error.is_some() && now < self.next_try {
            return false;
        }
        match self.certificate_for(config) {
            None => true,
            Some(certificate) => now >= certificate.renewal(),
        }
    }

    /// The certificate, if it is for the names and from the CA of the configuration.
    pub fn certificate_for(&self, config: &AcmeConfig) -> Option<&IssuedCertificate> {
        let found = self.certificate.as_ref().filter(|_| self.directory == config.directory);
        found.filter(|certificate| certificate.names == config.names)
    }

    /// The account at the CA of the configuration.
    pub fn account_for(&self, config: &AcmeConfig) -> Option<&str> {
        self.account.as_deref().filter(|_| self.directory == config.directory)
    }

    /// Takes over a new certificate, and the account that asked for it.
    pub fn succeed(&mut self, config: &AcmeConfig, account: String, issued: IssuedCertificate) {
        *self = Self {
            directory: config.directory.clone(),
            account: Some(account),
            asked: config.names.clone(),
            certificate: Some(issued),
            ..Self::default()
        };
    }

    /// Notes a failure. The certificate stays in use until its end. Returns the seconds until the next try.
    pub fn fail(&mut self, config: &AcmeConfig, why: String, now: u64) -> u64 {
        let is_same = self.directory == config.directory && self.asked == config.names;
        self.failures = if is_same { self.failures.min(MANY_FAILURES) + 1 } else { 1 };
        if self.directory != config.directory {
            // the account and the certificate are those of another CA
            (self.account, self.certificate) = (None, None);
        }
        let doublings = (self.failures - 1).min(MANY_FAILURES);
        let wait = (FIRST_WAIT << doublings).min(LONGEST_WAIT);
        self.directory.clone_from(&config.directory);
        self.asked.clone_from(&config.names);
        self.error = Some(why);
        self.next_try = now + wait;
        wait
    }
}

impl IssuedCertificate {
    /// When the last third of its time begins.
    fn renewal(&self) -> u64 {
        let (from, until) = (self.from.min(self.until), self.until);
        until - (until - from) / 3
    }
}

#[cfg(test)]
mod tests {
    use super::{AcmeState, IssuedCertificate};
    use crate::AcmeConfig;

    const DAY: u64 = 86400;

    fn config(name: &str) -> AcmeConfig {
        AcmeConfig { names: vec![name.to_owned()], ..AcmeConfig::default() }
    }

    fn issued(config: &AcmeConfig, from: u64, until: u64) -> IssuedCertificate {
        let (chain, key) = (String::new(), String::new());
        IssuedCertificate { names: config.names.clone(), chain, key, from, until }
    }

    #[test]
    fn certificates_are_renewed_in_their_last_third() {
        let (config, mut state) = (config("nas.example.org"), AcmeState::default());
        assert!(state.is_due(&config, 0));
        state.succeed(&config, "{}".to_owned(), issued(&config, 0, 90 * DAY));
        assert!(!state.is_due(&config, 60 * DAY - 1) && state.is_due(&config, 60 * DAY));
        // six days, as Let's Encrypt offers too
        state.succeed(&config, "{}".to_owned(), issued(&config, 0, 6 * DAY));
        assert!(!state.is_due(&config, 4 * DAY - 1) && state.is_due(&config, 4 * DAY));
    }

    #[test]
    fn failures_are_tried_again_later_and_later() {
        let (config, mut state) = (config("nas.example.org"), AcmeState::default());
        state.succeed(&config, "{}".to_owned(), issued(&config, 0, 90 * DAY));
        let (mut now, mut waits) = (60 * DAY, Vec::new());
        for _ in 0..9 {
            assert!(state.is_due(&config, now));
            let wait = state.fail(&config, "no route".to_owned(), now);
            assert!(!state.is_due(&config, now + wait - 1));
            now += wait;
            waits.push(wait / 60);
        }
        assert_eq!(waits, [15, 30, 60, 120, 240, 480, 960, 1440, 1440]);
        // the old one is in use meanwhile
        assert!(state.certificate_for(&config).is_some());
        state.succeed(&config, "{}".to_owned(), issued(&config, now, now + 90 * DAY));
        assert_eq!((state.failures, &state.error), (0, &None));
    }

    #[test]
    fn other_names_or_cas_are_asked_at_once() {
        let (first, second) = (config("nas.example.org"), config("home.example.org"));
        let mut state = AcmeState::default();
        state.succeed(&first, "{}".to_owned(), issued(&first, 0, 90 * DAY));
        assert!(state.is_due(&second, 1) && state.certificate_for(&second).is_none());
        state.fail(&second, "no".to_owned(), 1);
        assert!(!state.is_due(&second, 2) && state.account_for(&second).is_some());
        let own = AcmeConfig { directory: "https://ca.lan".to_owned(), ..second };
        assert!(state.is_due(&own, 2) && state.account_for(&own).is_none());
        state.fail(&own, "no".to_owned(), 2);
        assert_eq!((state.failures, state.account.is_none()), (1, true));
    }
}
