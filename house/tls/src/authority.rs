//! An own certificate authority: a root that users install once, and short-lived certificates for servers.
//!
//! The root signs certificates for this machine only, and its key never leaves it.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The years for which a root holds.
const ROOT_YEARS: i32 = 10;

/// Why a certificate could not be made.
#[derive(Debug, Error)]
#[error("no certificate can be made: {0}")]
pub struct AuthorityError(String);

impl From<rcgen::Error> for AuthorityError {
    fn from(why: rcgen::Error) -> Self {
        Self(why.to_string())
    }
}

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// The year.
    pub year: i32,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 28: days that each month has.
    pub day: u8,
}

impl Date {
    fn is_valid(self) -> bool {
        (1970..=9000).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=28).contains(&self.day)
    }
}

/// A certificate authority. Its JSON is the content of a file that only the daemon can read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The name in the root certificate.
    name: String,
    /// The root certificate in PEM.
    certificate: String,
    /// The private key in PEM.
    key: String,
}

impl Authority {
    /// A new authority for a host. It holds for ten years from `today`.
    pub fn new(host: &str, today: Date) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let name = format!("poolhouse on {host}, since {}-{:02}", today.year, today.month);
        let mut params = root_params(&name)?;
        set_validity(&mut params, today, Date { year: today.year + ROOT_YEARS, ..today })?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { name, certificate, key: key.serialize_pem() })
    }

    /// The root certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate and its key in PEM for a server with these names and addresses.
    pub fn issue(
        &self,
        names: &[String],
        from: Date,
        to: Date,
    ) -> Result<(String, String), AuthorityError> {
        let issuer = Issuer::new(root_params(&self.name)?, KeyPair::from_pem(&self.key)?);
        let mut params = CertificateParams::new(names)?;
        let first = names.first().map_or("poolhouse", String::as_str);
        params.distinguished_name.push(DnType::CommonName, first);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, from, to)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// The parameters of a root, without its validity.
fn root_params(name: &str) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Sets the days from and to which a certificate holds.
fn set_validity(
    params: &mut CertificateParams,
    from: Date,
    to: Date,
) -> Result<(), AuthorityError> {
    if !from.is_valid() || !to.is_valid() {
        return Err(AuthorityError("the clock of this machine is wrong".to_owned()));
    }
    params.not_before = rcgen::date_time_ymd(from.year, from.month, from.day);
    params.not_after = rcgen::date_time_ymd(to.year, to.month, to.day);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Authority, Date};
    use crate::server_config;

    #[test]
    fn authority_issues_certificates_for_servers() {
        let today = Date { year: 2026, month: 11, day: 27 };
        let authority = Authority::new("nas", today).unwrap();
        let names = ["nas.local", "192.0.2.7"].map(str::to_owned);
        let (chain, key) = authority.issue(&names, today, Date { year: 2027, ..today }).unwrap();
        assert!(server_config(chain.as_bytes(), key.as_bytes()).is_ok());
        // another key does not fit the certificate
        let (_, other) = authority.issue(&names, today, today).unwrap();
        assert!(server_config(chain.as_bytes(), other.as_bytes()).is_err());
        assert!(server_config(b"", key.as_bytes()).is_err());
        assert!(Authority::new("nas", Date { month: 0, ..today }).is_err());
    }
}
