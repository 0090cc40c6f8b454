//! A POST request. Certificates are checked with those of the system; redirects are not followed.

use std::path::Path;
use std::time::Duration;

use crate::DeliveryError;

/// The time for a whole request.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// A request.
pub(crate) struct Post<'a> {
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(&'a str, String)],
    pub(crate) body: &'a [u8],
    /// Certificates in PEM; none: those of the system.
    pub(crate) ca_file: Option<&'a Path>,
}

/// Sends a heartbeat to a monitoring service. Errors name no URL: it is a secret.
pub fn ping(url: &str, ca_file: Option<&Path>) -> Result<(), DeliveryError> {
    post(&Post { url, headers: &[], body: b"", ca_file })
}

/// Sends a request; an answer with another status than 2xx is an error.
pub(crate) fn post(post: &Post<'_>) -> Result<(), DeliveryError> {
    let host = host_of(post.url);
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(TIME_LIMIT))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent("poolhouse");
    if post.url.starts_with("https://") {
        let tls = tls::client_config(post.ca_file).map_err(certificates_error)?;
        config = config.tls_config(tls);
    }
    let mut request = ureq::Agent::new_with_config(config.build()).post(post.url);
    for (name, value) in post.headers {
        request = request.header(*name, value);
    }
    match request.send(post.body) {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(DeliveryError::Refused { host, status: answer.status().as_u16() }),
        Err(why) => Err(DeliveryError::Unreachable { host, why: why.to_string() }),
    }
}

fn certificates_error(error: tls::CertificateError) -> DeliveryError {
    let why = error.why.map_or_else(|| "there is none".to_owned(), |why| why.to_string());
    DeliveryError::Certificates { path: error.path, why }
}

/// The host of a URL, without user, password and path.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn host_has_no_secret() {
        assert_eq!(host_of("https://user:secret@ntfy.sh:80/topic?auth=x"), "ntfy.sh:80");
        assert_eq!(host_of("http://[::1]:9/"), "[::1]:9");
    }
}
