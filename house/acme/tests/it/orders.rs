//! Certificates are asked for, proved and issued; and what is said where that fails.

use std::net::{SocketAddr, TcpListener, TcpStream};

use acme::{AcmeConfig, AcmeError, AcmeState, IssuedCertificate, obtain};

use crate::test_ca::TestCa;

/// An address on loopback that nothing listens on.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn config(ca: &TestCa, listen: SocketAddr) -> AcmeConfig {
    AcmeConfig {
        names: vec!["nas.example.org".to_owned()],
        agree: true,
        mail: Some("me@example.org".to_owned()),
        listen,
        directory: ca.directory(),
        ca_file: None,
    }
}

fn ask(config: &AcmeConfig, account: Option<&str>) -> Result<IssuedCertificate, AcmeError> {
    obtain(config, account).map(|(_, issued)| issued)
}

#[test]
fn certificates_are_proved_issued_and_renewed() {
    let listen = free_address();
    let ca = TestCa::start(listen);
    let config = config(&ca, listen);
    let mut state = AcmeState::default();
    assert!(state.is_due(&config, 1_800_000_000));
    let (account, issued) = obtain(&config, None).unwrap();
    assert!(tls::server_config(issued.chain.as_bytes(), issued.key.as_bytes()).is_ok());
    assert_eq!((issued.from, issued.until), (1_767_225_600, 4_070_908_800));
    state.succeed(&config, account, issued);
    assert!(!state.is_due(&config, 1_800_000_000) && state.is_due(&config, 3_500_000_000));
    // the port is closed again
    assert!(TcpStream::connect(listen).is_err());
    // a renewal has the account of before
    let (account, renewed) = obtain(&config, state.account_for(&config)).unwrap();
    assert_ne!(Some(&renewed), state.certificate_for(&config));
    assert_eq!(Some(account.as_str()), state.account_for(&config));
    assert_eq!(ca.counts(), (1, 2));
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<AcmeState>(&text).unwrap(), state);
}

#[test]
fn failures_name_what_to_do() {
    let listen = free_address();
    // a router that leads port 80 to nothing
    let ca = TestCa::start(free_address());
    let why = ask(&config(&ca, listen), None).unwrap_err();
    let text = why.to_string();
    assert!(matches!(why, AcmeError::Unproved { .. }), "{text}");
    assert!(text.contains("nas.example.org") && text.contains("the proof is wrong"), "{text}");
    let undecided = AcmeConfig { agree: false, ..config(&ca, listen) };
    let text = ask(&undecided, None).unwrap_err().to_string();
    assert!(text.contains("acme.agree"), "{text}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = config(&ca, taken.local_addr().unwrap());
    assert!(matches!(ask(&busy, None), Err(AcmeError::Listen { .. })));
    let nowhere = format!("http://{}/directory", free_address());
    let away = AcmeConfig { directory: nowhere, ..config(&ca, listen) };
    assert!(matches!(ask(&away, None), Err(AcmeError::Unreachable(_))));
    let damaged = ask(&config(&ca, listen), Some("{"));
    assert!(matches!(damaged, Err(AcmeError::Account(_))));
}

/// Against Let's Encrypt's own test server: `POOLHOUSE_PEBBLE` is its directory, `POOLHOUSE_PEBBLE_CA` the root of its
/// server, `POOLHOUSE_PEBBLE_PORT` where it reads proofs.
#[test]
#[ignore = "needs pebble: tools/acme.sh"]
fn pebble_issues_a_certificate() {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let port: u16 = variable("POOLHOUSE_PEBBLE_PORT").parse().unwrap();
    let config = AcmeConfig {
        names: vec!["nas.example.org".to_owned(), "home.example.org".to_owned()],
        agree: true,
        mail: None,
        listen: ([127, 0, 0, 1], port).into(),
        directory: variable("POOLHOUSE_PEBBLE"),
        ca_file: Some(variable("POOLHOUSE_PEBBLE_CA").into()),
    };
    let (account, issued) = obtain(&config, None).unwrap();
    assert!(tls::server_config(issued.chain.as_bytes(), issued.key.as_bytes()).is_ok());
    assert!(issued.until > issued.from);
    let (_, renewed) = obtain(&config, Some(&account)).unwrap();
    assert_ne!(renewed.chain, issued.chain);
}
