//! apcupsd's protocol, by the bytes of its status report.

use std::io::{Read, Write};
use std::net::TcpListener;

use ups::{ApcupsdClient, PowerSource, Reading, UpsError};

/// The fields of a Back-UPS on battery, as apcupsd 3.14 sends them.
const ON_BATTERY: &[&str] = &[
    "APC      : 001,036,0871\n",
    "DATE     : 2026-11-27 13:40:02 +0000  \n",
    "HOSTNAME : nas\n",
    "VERSION  : 3.14.14 (31 May 2016) debian\n",
    "UPSNAME  : cellar\n",
    "CABLE    : USB Cable\n",
    "DRIVER   : USB UPS Driver\n",
    "UPSMODE  : Stand Alone\n",
    "MODEL    : Back-UPS ES 700G \n",
    "STATUS   : ONBATT \n",
    "LINEV    : 0.0 Volts\n",
    "LOADPCT  : 31.0 Percent\n",
    "BCHARGE  : 87.0 Percent\n",
    "TIMELEFT : 23.4 Minutes\n",
    "MBATTCHG : 5 Percent\n",
    "STATFLAG : 0x05060010\n",
    "END APC  : 2026-11-27 13:40:03 +0000  \n",
];

/// Serves one connection with these bytes, and reads the UPS there.
fn read_from(answer: Vec<u8>) -> Result<Reading, UpsError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 8];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"\x00\x06status");
        stream.write_all(&answer).unwrap();
    });
    let reading = ApcupsdClient::connect("127.0.0.1", port).and_then(|mut client| client.read());
    server.join().unwrap();
    reading
}

fn messages(fields: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        bytes.extend(u16::try_from(field.len()).unwrap().to_be_bytes());
        bytes.extend(field.as_bytes());
    }
    bytes.extend([0, 0]);
    bytes
}

fn read_with_status(status: &str) -> Result<Reading, UpsError> {
    let fields: Vec<_> = ON_BATTERY.iter().map(|field| field.replace("ONBATT", status)).collect();
    read_from(messages(&fields))
}

#[test]
fn status_report_is_read() {
    let reading = read_with_status("ONBATT").unwrap();
    assert_eq!(reading.source, PowerSource::Battery);
    assert_eq!((reading.charge, reading.runtime, reading.load), (Some(87), Some(1404), Some(31)));
    assert_eq!(reading.model.as_deref(), Some("Back-UPS ES 700G"));
    assert!(!reading.is_battery_low && !reading.is_forced_shutdown);
}

#[test]
fn status_words_have_their_meaning() {
    assert!(read_with_status("ONBATT LOWBATT").unwrap().is_battery_low);
    assert_eq!(read_with_status("ONLINE").unwrap().source, PowerSource::Line);
    assert_eq!(read_with_status("CAL ONBATT").unwrap().source, PowerSource::Line);
    assert!(read_with_status("SHUTTING DOWN").unwrap().is_forced_shutdown);
    assert!(read_with_status("ONLINE REPLACEBATT").unwrap().needs_battery);
    assert!(matches!(read_with_status("COMMLOST"), Err(UpsError::Stale { .. })));
    assert!(matches!(read_with_status("SELFTEST"), Err(UpsError::NoPowerSource { .. })));
}

#[test]
fn damaged_answers_are_errors() {
    let whole = messages(&[ON_BATTERY[9].to_owned()]);
    for cut in 0..whole.len() - 1 {
        assert!(read_from(whole[..cut].to_vec()).is_err(), "cut at {cut}");
    }
    let endless = messages(&vec!["A : b\n".to_owned(); 501]);
    assert!(matches!(read_from(endless), Err(UpsError::Malformed { .. })));
    assert!(matches!(read_from(b"\xff\xffx".to_vec()), Err(UpsError::Malformed { .. })));
    assert!(matches!(
        read_from(messages(&["no colon".to_owned()])),
        Err(UpsError::Malformed { .. })
    ));
}
