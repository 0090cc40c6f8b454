//! A CA that speaks ACME on loopback: one account, one order. It checks signatures and nonces, and reads the proofs.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64ct::{Base64UrlUnpadded, Encoding};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SignatureAlgorithm,
};
use serde_json::{Value, json};

/// The CA. Its thread ends with the program.
pub(crate) struct TestCa {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Accounts that were created.
    pub(crate) accounts: usize,
    /// Orders that were made.
    pub(crate) orders: usize,
    /// Nonces that were given and not used yet.
    nonces: HashSet<String>,
    given: usize,
    /// The public key of the account.
    key: Vec<u8>,
    thumb: String,
    name: String,
    /// pending, ready, valid, invalid
    status: &'static str,
    chain: String,
    /// The mistake in the proof.
    problem: String,
}

struct Request {
    method: String,
    path: String,
    body: Value,
}

struct Answer {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
}

fn answer(status: &'static str, body: &Value) -> Answer {
    Answer { status, headers: Vec::new(), body: body.to_string() }
}

fn decoded(text: &Value) -> Vec<u8> {
    Base64UrlUnpadded::decode_vec(text.as_str().unwrap_or_default()).unwrap()
}

impl TestCa {
    /// A CA that reads proofs at an address, whatever the name is.
    pub(crate) fn start(proofs: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                serve(&client, &shared, (address, proofs));
            }
        });
        Self { address, state }
    }

    pub(crate) fn directory(&self) -> String {
        format!("http://{}/directory", self.address)
    }

    /// The numbers of accounts and orders.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.accounts, state.orders)
    }
}

/// Answers the requests of a connection.
fn serve(client: &TcpStream, state: &Mutex<State>, places: (SocketAddr, SocketAddr)) {
    let mut reader = BufReader::new(client);
    while let Some(request) = read_request(&mut reader) {
        let mut state = state.lock().unwrap();
        let reply = reply(&request, &mut state, places);
        state.given += 1;
        let nonce = format!("nonce-{}", state.given);
        state.nonces.insert(nonce.clone());
        let mut head = format!("HTTP/1.1 {}\r\nreplay-nonce: {nonce}\r\n", reply.status);
        for (name, value) in reply.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body = if request.method == "HEAD" { "" } else { &reply.body };
        head += &format!("content-length: {}\r\n\r\n{body}", body.len());
        let mut client = client;
        if client.write_all(head.as_bytes()).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Request { method, path, body })
}

/// Checks the signature of a request, and returns its payload.
fn verify(request: &Request, state: &mut State, own: &str) -> Value {
    let head: Value = serde_json::from_slice(&decoded(&request.body["protected"])).unwrap();
    let nonce = head["nonce"].as_str().unwrap();
    assert!(state.nonces.remove(nonce), "{nonce} was not given, or is used twice");
    assert_eq!(head["url"], format!("{own}{}", request.path));
    if let Value::Object(key) = &head["jwk"] {
        let point = [vec![4], decoded(&key["x"]), decoded(&key["y"])].concat();
        state.key = point;
        let (x, y) = (&key["x"], &key["y"]);
        let thumb = format!(r#"{{"crv":"P-256","kty":"EC","x":{x},"y":{y}}}"#);
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, thumb.as_bytes());
        state.thumb = Base64UrlUnpadded::encode_string(digest.as_ref());
    }
    let text = |name: &str| request.body[name].as_str().unwrap_or_default();
    let signed = format!("{}.{}", text("protected"), text("payload"));
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &state.key)
        .verify(signed.as_bytes(), &decoded(&request.body["signature"]))
        .expect("a right signature");
    serde_json::from_slice(&decoded(&request.body["payload"])).unwrap_or(Value::Null)
}

fn reply(request: &Request, state: &mut State, places: (SocketAddr, SocketAddr)) -> Answer {
    let (address, proofs) = places;
    let own = format!("http://{address}");
    let at = |path: &str| format!("{own}{path}");
    match request.path.as_str() {
        "/directory" => {
            let urls = json!({ "newNonce": at("/nonce"), "newAccount": at("/account"),
                "newOrder": at("/order"), "meta": {} });
            return answer("200 OK", &urls);
        }
        "/nonce" => return answer("200 OK", &Value::Null),
        _ => {}
    }
    let payload = verify(request, state, &own);
    match request.path.as_str() {
        "/account" => {
            assert_eq!(payload["termsOfServiceAgreed"], true);
            state.accounts += 1;
            let made = answer("201 Created", &json!({ "status": "valid" }));
            Answer { headers: vec![("location", at("/account/1"))], ..made }
        }
        "/order" => {
            let name = payload["identifiers"][0]["value"].as_str().unwrap();
            (state.name, state.status) = (name.to_owned(), "pending");
            state.orders += 1;
            let made = answer("201 Created", &order(state, &own));
            Answer { headers: vec![("location", at("/order/1"))], ..made }
        }
        "/order/1" => answer("200 OK", &order(state, &own)),
        "/authorization" => answer("200 OK", &authorization(state, &own)),
        "/challenge" => {
            read_proof(state, proofs);
            answer("200 OK", &authorization(state, &own)["challenges"][0])
        }
        "/finalize" => {
            assert_eq!(state.status, "ready");
            state.chain = issue(&decoded(&payload["csr"]), &state.name);
            state.status = "valid";
            answer("200 OK", &order(state, &own))
        }
        "/certificate" => {
            Answer { status: "200 OK", headers: Vec::new(), body: state.chain.clone() }
        }
        path => panic!("{path}"),
    }
}

fn order(state: &State, own: &str) -> Value {
    json!({ "status": state.status, "authorizations": [format!("{own}/authorization")],
        "finalize": format!("{own}/finalize"), "certificate": format!("{own}/certificate"),
        "identifiers": [{ "type": "dns", "value": state.name }] })
}

fn authorization(state: &State, own: &str) -> Value {
    let status = match state.status {
        "ready" => "valid",
        other => other,
    };
    let mut challenge = json!({ "type": "http-01", "url": format!("{own}/challenge"), "token": "tok_en-1",
        "status": status });
    if status == "invalid" {
        challenge["error"] = json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": state.problem,
            "status": 403 });
    }
    json!({ "status": status, "identifier": { "type": "dns", "value": state.name }, "challenges": [challenge] })
}

/// Reads the proof as the CA of a name that leads to `place` does.
fn read_proof(state: &mut State, place: SocketAddr) {
    let read = TcpStream::connect_timeout(&place, Duration::from_secs(5)).and_then(|mut client| {
        let name = &state.name;
        write!(
            client,
            "GET /.well-known/acme-challenge/tok_en-1 HTTP/1.1\r\nHost: {name}\r\n\r\n"
        )?;
        let mut text = String::new();
        client.read_to_string(&mut text)?;
        Ok(text)
    });
    let wanted = format!("\r\n\r\ntok_en-1.{}", state.thumb);
    state.status = match read {
        Ok(text) if text.ends_with(&wanted) => "ready",
        other => {
            state.problem = format!("the proof is wrong: {other:?}");
            "invalid"
        }
    };
}

/// The public key of a request: a point of the curve P-256.
struct RequestedKey(Vec<u8>);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// A certificate for the key of a request, from 2026 to 2099.
fn issue(request: &[u8], name: &str) -> String {
    let root = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(params, root);
    assert!(request.windows(name.len()).any(|part| part == name.as_bytes()));
    // a bit string of 66 bytes, of which the first counts unused bits and the second begins the point
    let begin = request.windows(4).position(|part| part == [3, 66, 0, 4]).unwrap() + 3;
    let key = RequestedKey(request[begin..begin + 65].to_vec());
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2099, 1, 1);
    params.signed_by(&key, &issuer).unwrap().pem()
}
