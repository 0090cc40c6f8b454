//! The talk with the CA: account, order, challenges, certificate.

use std::thread::sleep;
use std::time::{Duration, Instant};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde_json::{Value, json};

use crate::challenge::ChallengeServer;
use crate::client::{Client, problem_text};
use crate::validity::validity;
use crate::{AcmeConfig, AcmeError, IssuedCertificate};

/// How long the CA may take to read a proof, and to issue a certificate.
const PATIENCE: Duration = Duration::from_secs(90);
/// The first pause between two looks; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Asks for a certificate with the account of an earlier order, or a new one. Returns the account and the certificate.
/// It takes as long as the CA does, a few minutes at most.
pub fn obtain(
    config: &AcmeConfig,
    account: Option<&str>,
) -> Result<(String, IssuedCertificate), AcmeError> {
    if !config.agree {
        return Err(AcmeError::NoAgreement);
    }
    let address = config.listen;
    let server = ChallengeServer::start(address);
    let server = server.map_err(|why| AcmeError::Listen { address, why })?;
    let mut client = Client::new(&config.directory, config.ca_file.as_deref(), account)?;
    client.create_account(config.mail.as_deref())?;
    let names: Vec<Value> =
        config.names.iter().map(|name| json!({ "type": "dns", "value": name })).collect();
    let url = client.directory.order.clone();
    let made = client.post("an order", &url, Some(&json!({ "identifiers": names })))?;
    let (url, order) = (made.location()?, made.json()?);
    let authorizations = addresses(&order, "authorizations")?;
    for authorization in &authorizations {
        prove(&mut client, &server, authorization)?;
    }
    let order = wait(&mut client, &url, "read the proof", &["ready", "valid"])?;
    if order["status"] == "invalid" {
        return Err(refusal(&mut client, &authorizations, &order));
    }
    let (key, request) = certificate_request(&config.names)?;
    let finalize = address_of(&order, "finalize")?;
    client.post("the certificate", &finalize, Some(&json!({ "csr": request })))?;
    let order = wait(&mut client, &url, "issue the certificate", &["valid"])?;
    if order["status"] == "invalid" {
        return Err(refusal(&mut client, &[], &order));
    }
    let chain = client.read("the certificate", &address_of(&order, "certificate")?)?.text;
    let (from, until) = validity(&chain)
        .ok_or_else(|| AcmeError::Certificate("its times cannot be read".to_owned()))?;
    // a chain that does not belong to the key is refused before it takes the place of another one
    tls::server_config(chain.as_bytes(), key.as_bytes())
        .map_err(|why| AcmeError::Certificate(why.to_string()))?;
    let names = config.names.clone();
    Ok((client.stored_account()?, IssuedCertificate { names, chain, key, from, until }))
}

/// A new key in PEM, and the request for a certificate of it (PKCS #10 in base64url).
fn certificate_request(names: &[String]) -> Result<(String, String), AcmeError> {
    let failed = |why: rcgen::Error| AcmeError::Certificate(why.to_string());
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate().map_err(failed)?;
    let request = params.serialize_request(&key).map_err(failed)?;
    Ok((key.serialize_pem(), Base64UrlUnpadded::encode_string(request.der())))
}

/// Gives the proof of a name, unless the CA has one already.
fn prove(client: &mut Client, server: &ChallengeServer, url: &str) -> Result<(), AcmeError> {
    let authorization = client.read("the list of proofs", url)?.json()?;
    if authorization["status"] == "valid" {
        return Ok(());
    }
    let challenges = authorization["challenges"].as_array();
    let challenge = challenges.and_then(|all| all.iter().find(|it| it["type"] == "http-01"));
    let challenge =
        challenge.ok_or_else(|| AcmeError::NoChallenge { name: name_of(&authorization) })?;
    let token = challenge["token"].as_str().unwrap_or_default();
    server.answer(token, &client.proof_of(token));
    client.post("a proof", &address_of(challenge, "url")?, Some(&json!({})))?;
    Ok(())
}

/// Looks at the order until it has one of the states, or is invalid.
fn wait(
    client: &mut Client,
    url: &str,
    what: &'static str,
    states: &[&str],
) -> Result<Value, AcmeError> {
    let (end, mut pause) = (Instant::now() + PATIENCE, FIRST_PAUSE);
    loop {
        let order = client.read("the order", url)?.json()?;
        let state = order["status"].as_str().unwrap_or_default();
        if state == "invalid" || states.contains(&state) {
            return Ok(order);
        }
        if Instant::now() >= end {
            return Err(AcmeError::TooSlow(what));
        }
        sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// The reason why an order failed: that of the first name without proof, or of the order.
fn refusal(client: &mut Client, authorizations: &[String], order: &Value) -> AcmeError {
    for url in authorizations {
        let found = client.read("the list of proofs", url).and_then(|answer| answer.json());
        let Ok(authorization) = found else { continue };
        let challenges = authorization["challenges"].as_array().into_iter().flatten();
        let error = challenges.map(|it| &it["error"]).find(|error| !error.is_null());
        if let Some(error) = error {
            return AcmeError::Unproved { name: name_of(&authorization), why: problem_text(error) };
        }
    }
    AcmeError::Refused { what: "the order", why: problem_text(&order["error"]) }
}

fn name_of(authorization: &Value) -> String {
    authorization["identifier"]["value"].as_str().unwrap_or("a name").to_owned()
}

fn address_of(value: &Value, name: &str) -> Result<String, AcmeError> {
    let found = value[name].as_str().map(str::to_owned);
    found.ok_or(AcmeError::Malformed("an address is missing"))
}

fn addresses(value: &Value, name: &str) -> Result<Vec<String>, AcmeError> {
    let all = value[name].as_array().ok_or(AcmeError::Malformed("it has no list of proofs"))?;
    let texts: Option<Vec<_>> = all.iter().map(|it| it.as_str().map(str::to_owned)).collect();
    texts.ok_or(AcmeError::Malformed("an address is missing"))
}
