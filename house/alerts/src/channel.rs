//! The channels by which messages reach users.

use std::path::PathBuf;

use serde_json::json;

use crate::http::{self, Post};
use crate::{Message, Severity, mail};

/// A channel by which messages reach users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A mail by the sendmail command.
    Mail {
        /// The receiver.
        to: String,
        /// The sender; none: the program's default.
        from: Option<String>,
        /// The program.
        program: PathBuf,
    },
    /// A topic on an ntfy server.
    Ntfy {
        /// The URL of the topic.
        url: String,
        /// The access token.
        token: Option<String>,
        /// Certificates in PEM; none: those of the system.
        ca_file: Option<PathBuf>,
    },
    /// A JSON object by POST.
    Webhook {
        /// The URL.
        url: String,
        /// Certificates in PEM; none: those of the system.
        ca_file: Option<PathBuf>,
    },
}

/// Why a message was not delivered. The texts contain no URL: it may hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The server cannot be reached.
    #[error("{host} cannot be reached: {why}; check the URL and the network")]
    Unreachable {
        /// The host of the URL.
        host: String,
        /// The reason.
        why: String,
    },
    /// The server refused the message.
    #[error("{host} replied with status {status}; check the URL and the token")]
    Refused {
        /// The host of the URL.
        host: String,
        /// The status of the answer.
        status: u16,
    },
    /// The certificates cannot be read.
    #[error(
        "the certificates in '{path}' cannot be read: {why}; set alerts.ca_file in config.toml"
    )]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The mail program is missing or failed.
    #[error("'{program}' did not send the mail: {why}")]
    Mail {
        /// The program.
        program: PathBuf,
        /// The reason, with the next step.
        why: String,
    },
}

impl Channel {
    /// The name in messages and in the store: without secrets, as several channels of one kind do not exist.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Mail { .. } => "mail",
            Self::Ntfy { .. } => "ntfy",
            Self::Webhook { .. } => "webhook",
        }
    }

    /// Delivers a message. It blocks for a minute at most.
    pub fn send(&self, message: &Message, host: &str) -> Result<(), DeliveryError> {
        match self {
            Self::Mail { to, from, program } => {
                mail::send(program, to, from.as_deref(), message, host)
            }
            Self::Ntfy { url, token, ca_file } => {
                let title = ascii(&format!("{host}: {}", message.title));
                let priority = match message.severity {
                    Severity::Critical => "5",
                    Severity::Warning => "4",
                    Severity::Notice => "3",
                };
                let mut headers = vec![("Title", title), ("Priority", priority.to_owned())];
                headers.extend(token.as_ref().map(|it| ("Authorization", format!("Bearer {it}"))));
                http::post(&Post {
                    url,
                    headers: &headers,
                    body: message.text.as_bytes(),
                    ca_file: ca_file.as_deref(),
                })
            }
            Self::Webhook { url, ca_file } => {
                let body = json!({
                    "host": host,
                    "key": message.key,
                    "severity": message.severity,
                    "title": message.title,
                    "text": message.text,
                    "time": message.time,
                });
                let json = "application/json".to_owned();
                http::post(&Post {
                    url,
                    headers: &[("Content-Type", json)],
                    body: body.to_string().as_bytes(),
                    ca_file: ca_file.as_deref(),
                })
            }
        }
    }
}

/// A text for a header: names come from disks and may hold anything.
pub(crate) fn ascii(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}
