//! The client of NUT against NUT's own server.

use std::time::{Duration, Instant};

use ups::{Login, NutClient, PowerSource, UpsError};

use crate::dummy_server::{DummyUps, PASSWORD};

fn connect(server: &DummyUps, ups: &str, login: Option<&Login>) -> Result<NutClient, UpsError> {
    NutClient::connect("127.0.0.1", server.port, ups, login, None)
}

/// Tries until it succeeds.
fn wait_for<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let last = Instant::now() + Duration::from_secs(30);
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(why) => assert!(Instant::now() < last, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn login(password: &str) -> Login {
    Login { user: "nas".to_owned(), password: password.to_owned() }
}

#[test]
fn readings_logins_and_forced_shutdown_work() {
    let Some(ups) = DummyUps::start("nut") else { return };
    let read = || {
        let mut client = connect(&ups, "cellar", None).map_err(|why| why.to_string())?;
        client.read().map_err(|why| why.to_string())
    };
    let reading = wait_for(read);
    assert_eq!((reading.source, reading.charge), (PowerSource::Line, Some(100)));
    assert_eq!((reading.runtime, reading.model.as_deref()), (Some(1800), Some("House Dummy")));

    ups.set_status("OB LB DISCHRG", 7);
    let on_battery = wait_for(|| {
        let reading = read()?;
        if reading.is_battery_low { Ok(reading) } else { Err(reading.status) }
    });
    assert_eq!((on_battery.source, on_battery.charge), (PowerSource::Battery, Some(7)));

    let mut primary = connect(&ups, "cellar", Some(&login(PASSWORD))).unwrap();
    let other = connect(&ups, "cellar", Some(&login(PASSWORD))).unwrap();
    assert_eq!(primary.login_count().unwrap(), 2);
    other.log_out();
    assert_eq!(primary.login_count().unwrap(), 1);
    primary.force_shutdown().unwrap();
    assert!(primary.read().unwrap().is_forced_shutdown);
}

#[test]
fn refusals_are_sentences_without_secrets() {
    let Some(ups) = DummyUps::start("refused") else { return };
    let refusal = |name: &str, login: Option<&Login>| {
        wait_for(|| match connect(&ups, name, login).and_then(|mut client| client.read()) {
            Err(why @ UpsError::Refused { .. }) => Ok(why.to_string()),
            other => Err(format!("{other:?}")),
        })
    };
    let why = refusal("attic", None);
    assert!(why.contains("no UPS of that name") && why.contains("UNKNOWN-UPS"), "{why}");
    let why = refusal("cellar", Some(&login("wrong password")));
    assert!(why.contains("upsd.users") && !why.contains("wrong password"), "{why}");
}
