//! WS-Discovery over loopback, on ports that the system chooses.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;

use announce::{Device, WsDiscovery, WsdPorts};

const TIME_LIMIT: Duration = Duration::from_secs(8);

fn start() -> WsDiscovery {
    let device = Device { name: "nas".to_owned(), id: [7; 16], workgroup: "WORKGROUP".to_owned() };
    let ports = WsdPorts { discovery: 0, metadata: 0 };
    WsDiscovery::start(&device, &[Ipv4Addr::LOCALHOST], ports).expect("ports of the system")
}

fn envelope(action: &str, body: &str) -> String {
    format!(
        "<s:Envelope xmlns:s=\"http://www.w3.org/2003/05/soap-envelope\" \
         xmlns:a=\"http://schemas.xmlsoap.org/ws/2004/08/addressing\" \
         xmlns:d=\"http://schemas.xmlsoap.org/ws/2005/04/discovery\"><s:Header>\
         <a:Action>http://schemas.xmlsoap.org/ws/{action}</a:Action>\
         <a:MessageID>urn:uuid:1</a:MessageID></s:Header><s:Body>{body}</s:Body></s:Envelope>"
    )
}

#[test]
fn probes_are_answered_to_the_client() {
    let server = start();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let port = server.discovery_address().unwrap().port();
    // neither bytes without meaning nor requests for printers are answered
    let printer = "<d:Probe><d:Types>x:Printer</d:Types></d:Probe>";
    for text in ["nothing".to_owned(), envelope("p", printer), envelope("p", "<d:Probe/>")] {
        client.send_to(text.as_bytes(), (Ipv4Addr::LOCALHOST, port)).unwrap();
    }
    let mut bytes = [0; 4096];
    let (length, _) = client.recv_from(&mut bytes).expect("an answer");
    let answer = String::from_utf8_lossy(&bytes[..length]);
    for part in ["ProbeMatches", "<a:RelatesTo>urn:uuid:1<", "07070707-0707", "n:Computer"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(client.recv_from(&mut bytes).is_err(), "one answer");
}

#[test]
fn metadata_names_the_computer_and_workgroup() {
    let server = start();
    let address = server.metadata_addresses()[0];
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // a refused connection is closed, perhaps with bytes unread
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let post =
        |body: &str| format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = ask(&post(&envelope("2004/09/transfer/Get", "")));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("nas/Workgroup:WORKGROUP"), "{answer}");
    assert!(ask(&post("nothing")).starts_with("HTTP/1.1 400"));
    assert_eq!(ask("POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n"), "");
    assert_eq!(ask(&"x".repeat(5000)), "");
}
