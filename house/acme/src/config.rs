//! The section `[acme]` of the configuration.
//!
//! ```toml
//! [acme]
//! names = ["nas.example.org"]    # names that lead here from the internet; without them no certificate is asked for
//! agree = true                   # you agree to the terms of service of the CA
//! mail = "me@example.org"        # where the CA may write to; may be left out
//! listen = "[::]:80"             # where the CA reads the proof, at port 80 from outside
//! directory = "https://acme-v02.api.letsencrypt.org/directory"
//! ca_file = "/etc/ssl/own-ca.pem"    # the root of a CA of your own, such as step-ca
//! ```

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// The directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The section `[acme]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AcmeConfig {
    /// The names of the certificate.
    #[serde(deserialize_with = "names")]
    pub names: Vec<String>,
    /// Whether the owner agrees to the terms of service of the CA.
    pub agree: bool,
    /// The owner's address for mails of the CA.
    pub mail: Option<String>,
    /// Where the CA reads the proof.
    pub listen: SocketAddr,
    /// The address of the CA's directory.
    pub directory: String,
    /// The certificates in PEM by which the CA's server is trusted; none: those of the system.
    pub ca_file: Option<PathBuf>,
}

impl Default for AcmeConfig {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            agree: false,
            mail: None,
            listen: (Ipv6Addr::UNSPECIFIED, 80).into(),
            directory: LETS_ENCRYPT.to_owned(),
            ca_file: None,
        }
    }
}

impl AcmeConfig {
    /// Whether a certificate is asked for.
    pub fn is_on(&self) -> bool {
        !self.names.is_empty()
    }
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let is_name = |name: &&String| {
        let mut labels = name.split('.');
        !name.is_empty()
            && labels.clone().count() > 1
            && labels.clone().all(|label| !label.is_empty() && label.len() < 64)
            && labels
                .next_back()
                .is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()))
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    };
    match names.iter().find(|name| !is_name(name)) {
        None => Ok(names),
        Some(name) => Err(serde::de::Error::custom(format!(
            "\"{name}\" is no name on the internet, such as \"nas.example.org\"; a CA proves no addresses and no \
             wildcards by port 80"
        ))),
    }
}
