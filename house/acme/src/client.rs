//! The requests to the CA: each is JSON that the account's key signs (JWS), with a nonce that the CA gave before.
//!
//! ```text
//! {"protected": base64url of {"alg": "ES256", "nonce": ..., "url": ..., "jwk" or "kid": ...},
//!  "payload": base64url of the request, or nothing to read, "signature": base64url}
//! ```

use std::path::Path;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::{HeaderMap, Response};

use crate::AcmeError;

/// The time for a whole request.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// The bytes of an answer, at most: a chain of certificates is the largest.
const MAX_ANSWER: u64 = 1 << 20;
/// How often a request is repeated with a new nonce.
const NONCE_TRIES: usize = 5;
/// The problem of a nonce that the CA no longer knows.
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// An account at the CA as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    /// The private key: PKCS #8 in base64.
    key: String,
    /// The account's address at the CA.
    id: String,
}

/// The addresses of the CA.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Directory {
    #[serde(rename = "newNonce")]
    nonce: String,
    #[serde(rename = "newAccount")]
    account: String,
    #[serde(rename = "newOrder")]
    pub(crate) order: String,
}

/// A client with an account.
pub(crate) struct Client {
    agent: Agent,
    pub(crate) directory: Directory,
    key: EcdsaKeyPair,
    /// The private key as it is stored.
    pkcs8: Vec<u8>,
    /// The account's address; none: it is being made.
    id: Option<String>,
    nonce: Option<String>,
}

/// An answer of the CA.
pub(crate) struct Answer {
    status: u16,
    headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    fn read(answer: Response<ureq::Body>) -> Result<Self, AcmeError> {
        let (head, mut body) = answer.into_parts();
        let text = body.with_config().limit(MAX_ANSWER).read_to_string().map_err(unreachable)?;
        Ok(Self { status: head.status.as_u16(), headers: head.headers, text })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The address of what was created.
    pub(crate) fn location(&self) -> Result<String, AcmeError> {
        let location = self.header("location").map(str::to_owned);
        location.ok_or(AcmeError::Malformed("it has no address"))
    }

    /// The JSON of the answer.
    pub(crate) fn json(&self) -> Result<Value, AcmeError> {
        serde_json::from_str(&self.text).map_err(|_| AcmeError::Malformed("it is no JSON"))
    }
}

/// A problem in words.
pub(crate) fn problem_text(problem: &Value) -> String {
    let text = |name: &str| problem.get(name).and_then(Value::as_str);
    let detail = text("detail").or(text("type")).unwrap_or("it gives no reason");
    detail.chars().filter(|letter| !letter.is_control()).take(500).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn unreachable(why: ureq::Error) -> AcmeError {
    AcmeError::Unreachable(why.to_string())
}

fn agent(directory: &str, ca_file: Option<&Path>) -> Result<Agent, AcmeError> {
    let mut config = Agent::config_builder()
        .timeout_global(Some(TIME_LIMIT))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent("poolhouse");
    if directory.starts_with("https://") {
        let tls = tls::client_config(ca_file).map_err(|error| {
            let why = error.why.map_or_else(|| "it holds none".to_owned(), |why| why.to_string());
            AcmeError::Certificates { path: error.path, why }
        })?;
        config = config.tls_config(tls);
    }
    Ok(Agent::new_with_config(config.build()))
}

impl Client {
    /// A client of a CA, with a stored account or a new key.
    pub(crate) fn new(
        directory: &str,
        ca_file: Option<&Path>,
        stored: Option<&str>,
    ) -> Result<Self, AcmeError> {
        let damaged = |why: &dyn ToString| AcmeError::Account(why.to_string());
        let (pkcs8, id) = if let Some(stored) = stored {
            let stored: StoredAccount =
                serde_json::from_str(stored).map_err(|why| damaged(&why))?;
            let key = Base64UrlUnpadded::decode_vec(&stored.key).map_err(|why| damaged(&why))?;
            (key, Some(stored.id))
        } else {
            let random = SystemRandom::new();
            let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
            (made.map_err(|why| damaged(&why))?.as_ref().to_vec(), None)
        };
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8);
        let key = key.map_err(|why| damaged(&why))?;
        let agent = agent(directory, ca_file)?;
        let answer = Answer::read(agent.get(directory).call().map_err(unreachable)?)?;
        let directory = serde_json::from_str(&answer.text)
            .map_err(|_| AcmeError::Malformed("it is no directory of ACME"))?;
        Ok(Self { agent, directory, key, pkcs8, id, nonce: None })
    }

    /// Makes the account, if there is none. The owner agreed to the terms of service.
    pub(crate) fn create_account(&mut self, mail: Option<&str>) -> Result<(), AcmeError> {
        if self.id.is_some() {
            return Ok(());
        }
        let contact: Vec<String> = mail.iter().map(|mail| format!("mailto:{mail}")).collect();
        let request = json!({ "termsOfServiceAgreed": true, "contact": contact });
        let url = self.directory.account.clone();
        self.id = Some(self.post("an account", &url, Some(&request))?.location()?);
        Ok(())
    }

    /// The account as it is stored.
    pub(crate) fn stored_account(&self) -> Result<String, AcmeError> {
        let id = self.id.clone().ok_or(AcmeError::Malformed("it made no account"))?;
        let stored = StoredAccount { key: Base64UrlUnpadded::encode_string(&self.pkcs8), id };
        serde_json::to_string(&stored).map_err(|why| AcmeError::Account(why.to_string()))
    }

    /// The proof that belongs to the token of a challenge (RFC 8555, 8.1).
    pub(crate) fn proof_of(&self, token: &str) -> String {
        // the names in the order of the alphabet, without spaces (RFC 7638)
        let (x, y) = self.public_point();
        let key = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let thumbprint = digest(&SHA256, key.as_bytes());
        format!("{token}.{}", Base64UrlUnpadded::encode_string(thumbprint.as_ref()))
    }

    /// Reads something of the account.
    pub(crate) fn read(&mut self, what: &'static str, url: &str) -> Result<Answer, AcmeError> {
        self.post(what, url, None)
    }

    /// Sends a request, or reads with none. An answer that is no success is an error.
    pub(crate) fn post(
        &mut self,
        what: &'static str,
        url: &str,
        request: Option<&Value>,
    ) -> Result<Answer, AcmeError> {
        let mut why = String::new();
        for _ in 0..NONCE_TRIES {
            let body = self.sign(url, request)?;
            let sent = self.agent.post(url).content_type("application/jose+json");
            let answer = Answer::read(sent.send(body.as_bytes()).map_err(unreachable)?)?;
            self.nonce = answer.header("replay-nonce").map(str::to_owned);
            if (200..300).contains(&answer.status) {
                return Ok(answer);
            }
            let problem = answer.json().unwrap_or(Value::Null);
            why = problem_text(&problem);
            if problem["type"] != BAD_NONCE {
                break;
            }
        }
        Err(AcmeError::Refused { what, why })
    }

    /// A request with its signature.
    fn sign(&mut self, url: &str, request: Option<&Value>) -> Result<String, AcmeError> {
        let nonce = match self.nonce.take() {
            Some(nonce) => nonce,
            None => self.new_nonce()?,
        };
        let mut head = json!({ "alg": "ES256", "nonce": nonce, "url": url });
        if let Some(id) = &self.id {
            head["kid"] = json!(id);
        } else {
            let (x, y) = self.public_point();
            head["jwk"] = json!({ "crv": "P-256", "kty": "EC", "x": x, "y": y });
        }
        let head = Base64UrlUnpadded::encode_string(head.to_string().as_bytes());
        let payload = request.map(ToString::to_string).unwrap_or_default();
        let payload = Base64UrlUnpadded::encode_string(payload.as_bytes());
        let signed = format!("{head}.{payload}");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.map_err(|why| AcmeError::Account(why.to_string()))?;
        let signature = Base64UrlUnpadded::encode_string(signature.as_ref());
        Ok(json!({ "protected": head, "payload": payload, "signature": signature }).to_string())
    }

    fn new_nonce(&self) -> Result<String, AcmeError> {
        let answer = self.agent.head(&self.directory.nonce).call().map_err(unreachable)?;
        let nonce = Answer::read(answer)?.header("replay-nonce").map(str::to_owned);
        nonce.ok_or(AcmeError::Malformed("it has no nonce"))
    }

    /// The coordinates of the public key.
    fn public_point(&self) -> (String, String) {
        // 4, then x and y of 32 bytes each
        let point = self.key.public_key().as_ref();
        let encode = |range| point.get(range).map(Base64UrlUnpadded::encode_string);
        (encode(1..33).unwrap_or_default(), encode(33..65).unwrap_or_default())
    }
}
