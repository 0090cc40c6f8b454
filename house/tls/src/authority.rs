//! An own certificate authority: a root that users install once, and short-lived certificates for servers.
//!
//! The root is limited to the names of this machine and to addresses of private networks (RFC 5280, name constraints):
//! who steals its key cannot pretend to be another site. The key never leaves this machine.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The years for which a root holds.
const ROOT_YEARS: i32 = 10;

/// The networks of addresses that are no names on the internet: an address of the machine may change within them.
const PRIVATE_NETWORKS: [(&str, u8); 8] = [
    ("10.0.0.0", 8),
    ("172.16.0.0", 12),
    ("192.168.0.0", 16),
    ("169.254.0.0", 16),
    ("127.0.0.0", 8),
    ("fc00::", 7),
    ("fe80::", 10),
    ("::1", 128),
];

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
    /// The names and addresses that the root is limited to, beside private networks; none: a root of an older version,
    /// which has no limit.
    #[serde(default)]
    limits: Option<Vec<String>>,
}

impl Authority {
    /// A new authority for a host with these names and addresses. It holds for ten years from `today`.
    pub fn new(host: &str, names: &[String], today: Date) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let name = format!("poolhouse on {host}, since {}-{:02}", today.year, today.month);
        // the names are checked here
        CertificateParams::new(names)?;
        let limits = names.iter().filter(|name| !is_private(name));
        // the limit of *.example.org is that of example.org
        let limits: Vec<_> =
            limits.map(|name| name.strip_prefix("*.").unwrap_or(name).to_owned()).collect();
        let mut params = root_params(&name)?;
        params.name_constraints = Some(constraints(&limits));
        set_validity(&mut params, today, Date { year: today.year + ROOT_YEARS, ..today })?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { name, certificate, key: key.serialize_pem(), limits: Some(limits) })
    }

    /// Whether clients accept a certificate of this authority for a name or an address.
    pub fn permits(&self, name: &str) -> bool {
        let Some(limits) = &self.limits else { return true };
        let is_within = |limit: &String| {
            let rest = name.strip_suffix(limit.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        is_private(name) || limits.iter().any(is_within)
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

/// The address that a text is, and not a name.
fn address_of(name: &str) -> Option<IpAddr> {
    name.parse().ok()
}

fn is_private(name: &str) -> bool {
    let is_within =
        |address: IpAddr, (network, prefix): (&str, u8)| match (address, address_of(network)) {
            (IpAddr::V4(address), Some(IpAddr::V4(network))) => {
                let shift = 32 - u32::from(prefix);
                address.to_bits() >> shift == network.to_bits() >> shift
            }
            (IpAddr::V6(address), Some(IpAddr::V6(network))) => {
                let shift = 128 - u32::from(prefix);
                address.to_bits() >> shift == network.to_bits() >> shift
            }
            _ => false,
        };
    address_of(name)
        .is_some_and(|it| PRIVATE_NETWORKS.into_iter().any(|network| is_within(it, network)))
}

/// The name constraints of a root: some names and addresses, and all private networks.
fn constraints(limits: &[String]) -> NameConstraints {
    let single = |name: &String| match address_of(name) {
        Some(address) => subnet(address, if address.is_ipv4() { 32 } else { 128 }),
        None => GeneralSubtree::DnsName(name.clone()),
    };
    let private = PRIVATE_NETWORKS.into_iter();
    let private =
        private.filter_map(|(network, prefix)| Some(subnet(address_of(network)?, prefix)));
    let permitted_subtrees = limits.iter().map(single).chain(private).collect();
    NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() }
}

fn subnet(address: IpAddr, prefix: u8) -> GeneralSubtree {
    GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, prefix))
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
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::{Authority, Date};
    use crate::server_config;

    #[test]
    fn authority_issues_certificates_for_servers() {
        let today = Date { year: 2026, month: 11, day: 27 };
        let names = ["nas.local", "192.0.2.7"].map(str::to_owned);
        let authority = Authority::new("nas", &names, today).unwrap();
        let (chain, key) = authority.issue(&names, today, Date { year: 2027, ..today }).unwrap();
        assert!(server_config(chain.as_bytes(), key.as_bytes()).is_ok());
        // another key does not fit the certificate
        let (_, other) = authority.issue(&names, today, today).unwrap();
        assert!(server_config(chain.as_bytes(), other.as_bytes()).is_err());
        assert!(server_config(b"", key.as_bytes()).is_err());
        assert!(Authority::new("nas", &names, Date { month: 0, ..today }).is_err());
    }

    /// Whether a client that trusts the authority accepts its certificate for a name.
    fn is_accepted(authority: &Authority, name: &str) -> bool {
        let (from, to) =
            (Date { year: 2026, month: 1, day: 1 }, Date { year: 2027, month: 1, day: 1 });
        let (chain, _) = authority.issue(&[name.to_owned()], from, to).unwrap();
        let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(read(authority.certificate())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        // in the middle of 2026
        let now = UnixTime::since_unix_epoch(Duration::from_hours(56 * 8766 + 4383));
        verifier.build().unwrap().verify_server_cert(&read(&chain), &[], &name, &[], now).is_ok()
    }

    #[test]
    fn root_is_limited_to_this_machine() {
        let today = Date { year: 2026, month: 1, day: 1 };
        let names = ["nas", "nas.local", "203.0.113.9", "192.168.1.7", "2001:db8::7"];
        let names = names.map(str::to_owned);
        let authority = Authority::new("nas", &names, today).unwrap();
        for (name, is_own) in [
            ("nas", true),
            ("nas.local", true),
            ("203.0.113.9", true),
            ("2001:db8::7", true),
            // another address of the same house
            ("192.168.77.1", true),
            ("fd00::12", true),
            ("127.0.0.1", true),
            ("bank.example", false),
            ("notnas.local", false),
            ("203.0.113.10", false),
            ("2001:db8::8", false),
        ] {
            assert_eq!(authority.permits(name), is_own, "{name}");
            assert_eq!(is_accepted(&authority, name), is_own, "{name}");
        }
        // a root of an older version
        let old = r#"{ "name": "poolhouse on nas, since 2026-01", "certificate": "", "key": "" }"#;
        assert!(serde_json::from_str::<Authority>(old).unwrap().permits("bank.example"));
    }
}
