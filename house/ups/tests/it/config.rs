//! Addresses of UPS servers.

use ups::{ServerAddress, ServerKind};

#[test]
fn addresses_of_both_protocols_are_read() {
    for (text, shown) in [
        ("nut://localhost/cellar", "cellar@localhost:3493"),
        ("nut://10.0.0.7:4000/ups1", "ups1@10.0.0.7:4000"),
        ("nut://[::1]:4000/ups1", "ups1@::1:4000"),
        ("apcupsd://nas.example.org", "apcupsd at nas.example.org:3551"),
        ("apcupsd://[fe80::1]", "apcupsd at fe80::1:3551"),
    ] {
        assert_eq!(ServerAddress::parse(text).unwrap().to_string(), shown);
    }
    let nut = ServerAddress::parse("nut://localhost/cellar").unwrap();
    assert_eq!(nut.kind, ServerKind::Nut("cellar".to_owned()));
}

#[test]
fn wrong_addresses_are_refused() {
    for text in [
        "localhost",
        "nut://localhost",
        "nut://localhost/",
        "nut:///ups",
        "nut://localhost:0/ups",
        "nut://localhost:x/ups",
        "nut://localhost/a b",
        "nut://localhost/a\nFSD",
        "nut://lo calhost/ups",
        "apcupsd://[::1]x",
        "apcupsd://",
    ] {
        assert!(ServerAddress::parse(text).is_err(), "{text}");
    }
}
