//! The section `[alerts]` of the configuration.
//!
//! ```toml
//! [alerts]
//! mail = "me@example.org"               # by the sendmail command (msmtp-mta, postfix, exim)
//! ntfy = "https://ntfy.sh/my-topic"
//! ntfy_token = "tk_..."                 # if the topic needs one
//! webhook = "https://example.org/hook"  # a JSON object by POST
//! space = 80                            # percent of a pool; again at 90 and 95
//! all_well_days = 7                     # a message that all is well; 0: none
//! ping = "https://hc-ping.com/UUID"     # a POST every 5 minutes: that service tells you when none comes
//! ```

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::Channel;

/// The section `[alerts]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertsConfig {
    /// The address for mails.
    #[serde(deserialize_with = "address")]
    pub mail: Option<String>,
    /// The sender of mails; none: the sendmail command's default.
    #[serde(deserialize_with = "address")]
    pub mail_from: Option<String>,
    /// The program that sends mails.
    pub sendmail: PathBuf,
    /// The URL of a topic on an ntfy server.
    #[serde(deserialize_with = "url")]
    pub ntfy: Option<String>,
    /// The access token of the topic.
    pub ntfy_token: Option<String>,
    /// The URL that takes alerts as JSON.
    #[serde(deserialize_with = "url")]
    pub webhook: Option<String>,
    /// Certificates in PEM that `https` URLs are checked with; none: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The percentage of used space from which a pool raises an alert.
    #[serde(deserialize_with = "percent")]
    pub space: u64,
    /// The days between two messages that all is well; 0: none.
    #[serde(deserialize_with = "days")]
    pub all_well_days: u64,
    /// The URL of a service that notifies the owner when this machine falls silent.
    #[serde(deserialize_with = "url")]
    pub ping: Option<String>,
}

impl Default for AlertsConfig {
    fn default() -> Self {
        Self {
            mail: None,
            mail_from: None,
            sendmail: "/usr/sbin/sendmail".into(),
            ntfy: None,
            ntfy_token: None,
            webhook: None,
            ca_file: None,
            space: 80,
            all_well_days: 0,
            ping: None,
        }
    }
}

impl AlertsConfig {
    /// The time between two messages that all is well; none: no message.
    pub fn all_well_interval(&self) -> Option<Duration> {
        (self.all_well_days > 0).then(|| Duration::from_hours(24 * self.all_well_days))
    }

    /// The channels.
    pub fn channels(&self) -> Vec<Channel> {
        let mut channels = Vec::new();
        if let Some(to) = &self.mail {
            let (from, program) = (self.mail_from.clone(), self.sendmail.clone());
            channels.push(Channel::Mail { to: to.clone(), from, program });
        }
        if let Some(url) = &self.ntfy {
            let (token, ca_file) = (self.ntfy_token.clone(), self.ca_file.clone());
            channels.push(Channel::Ntfy { url: url.clone(), token, ca_file });
        }
        if let Some(url) = &self.webhook {
            channels.push(Channel::Webhook { url: url.clone(), ca_file: self.ca_file.clone() });
        }
        channels
    }
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    if rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')) {
        return Ok(Some(text));
    }
    Err(serde::de::Error::custom("the value must be a URL that begins with http:// or https://"))
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_plain = |c: char| c.is_ascii_graphic() && !"<>()[]\\,;:\"".contains(c);
    let is_address = text.chars().all(is_plain)
        && !text.starts_with('-')
        && text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    if is_address {
        return Ok(Some(text));
    }
    Err(serde::de::Error::custom("the value must be a mail address, such as \"me@example.org\""))
}

fn days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let days = u64::deserialize(deserializer)?;
    if days <= 366 {
        return Ok(days);
    }
    Err(serde::de::Error::custom("the value must be 0 to 366 days"))
}

fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let percent = u64::deserialize(deserializer)?;
    if (1..=100).contains(&percent) {
        return Ok(percent);
    }
    Err(serde::de::Error::custom("the value must be a percentage from 1 to 100"))
}
