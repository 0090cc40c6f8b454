//! Channels: an HTTP server and a mail program take the messages.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use alerts::{AlertsConfig, Channel, DeliveryError, Message, Severity};

fn message() -> Message {
    Message {
        key: "pool/tank/state".to_owned(),
        severity: Severity::Critical,
        title: "Pool tänk\r\nX: y is SUSPENDED".to_owned(),
        text: "Nothing can be written at 40 °C.".to_owned(),
        time: 7,
    }
}

/// A server that answers one request; its URL, and the head and body of the request.
fn server(status: &'static str) -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/topic", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&line.to_ascii_lowercase());
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
        sender.send((head, String::from_utf8(body).unwrap())).unwrap();
    });
    (url, receiver)
}

fn received(receiver: &Receiver<(String, String)>) -> (String, String) {
    receiver.recv_timeout(Duration::from_secs(30)).unwrap()
}

#[test]
fn ntfy_gets_title_priority_and_text() {
    let (url, receiver) = server("200 OK");
    let channel = Channel::Ntfy { url, token: Some("tk_1".to_owned()), ca_file: None };
    channel.send(&message(), "nas").unwrap();
    let (head, body) = received(&receiver);
    assert!(head.starts_with("post /topic http/1.1"), "{head}");
    assert!(head.contains("title: nas: pool t?nk??x: y is suspended\r\n"), "{head}");
    assert!(head.contains("priority: 5") && head.contains("authorization: bearer tk_1"), "{head}");
    assert_eq!(body, "Nothing can be written at 40 °C.");
}

#[test]
fn webhook_gets_json() {
    let (url, receiver) = server("204 No Content");
    Channel::Webhook { url, ca_file: None }.send(&message(), "nas").unwrap();
    let body: serde_json::Value = serde_json::from_str(&received(&receiver).1).unwrap();
    assert_eq!((&body["severity"], &body["host"]), (&"critical".into(), &"nas".into()));
    assert_eq!(body["title"], "Pool tänk\r\nX: y is SUSPENDED");
}

#[test]
fn refusals_and_redirects_are_errors() {
    for (status, number) in
        [("403 Forbidden", 403), ("302 Found\r\nLocation: http://[::1]:1/", 302)]
    {
        let (url, _receiver) = server(status);
        let why = Channel::Webhook { url, ca_file: None }.send(&message(), "nas").unwrap_err();
        assert!(matches!(why, DeliveryError::Refused { status, .. } if status == number), "{why}");
    }
    let url = "http://127.0.0.1:1/secret-topic".to_owned();
    let why = Channel::Webhook { url, ca_file: None }.send(&message(), "nas").unwrap_err();
    assert!(matches!(why, DeliveryError::Unreachable { .. }), "{why}");
    assert!(!why.to_string().contains("secret"), "{why}");
}

#[test]
fn unreadable_certificates_stop_https() {
    let ca_file = Some(PathBuf::from("/absent.pem"));
    let channel = Channel::Webhook { url: "https://127.0.0.1:1/".to_owned(), ca_file };
    let why = channel.send(&message(), "nas").unwrap_err();
    assert!(matches!(why, DeliveryError::Certificates { .. }), "{why}");
}

/// A shell script that stands for sendmail.
fn mail_program(name: &str, script: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("alerts-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let program = dir.join("sendmail");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn mail(program: PathBuf) -> Result<(), DeliveryError> {
    let (to, from) = ("me@example.org".to_owned(), Some("nas@example.org".to_owned()));
    Channel::Mail { to, from, program }.send(&message(), "nas")
}

#[test]
fn sendmail_gets_a_whole_mail() {
    let program =
        mail_program("mail", "dir=$(dirname $0); echo \"$@\" > $dir/args; cat > $dir/mail");
    mail(program.clone()).unwrap();
    let read = |name: &str| fs::read_to_string(program.with_file_name(name)).unwrap();
    assert_eq!(read("args"), "-i -f nas@example.org -- me@example.org\n");
    let mail = read("mail");
    let (head, body) = mail.split_once("\n\n").unwrap();
    assert!(head.contains("\nTo: me@example.org\n"), "{head}");
    assert!(head.contains("Subject: [nas] critical: Pool t?nk??X: y is SUSPENDED\n"), "{head}");
    assert!(body.contains("Nothing can be written at 40 °C."), "{body}");
    fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

#[test]
fn failing_mail_programs_are_reported() {
    let program = mail_program("fails", "cat > /dev/null; exit 75");
    let why = mail(program.clone()).unwrap_err().to_string();
    assert!(why.contains("exit status: 75"), "{why}");
    fs::remove_dir_all(program.parent().unwrap()).unwrap();
    let why = mail("/absent/sendmail".into()).unwrap_err().to_string();
    assert!(why.contains("install msmtp-mta"), "{why}");
}

#[test]
fn configuration_refuses_values_that_cannot_work() {
    let read =
        |text: &str| serde_json::from_str::<AlertsConfig>(text).map_err(|why| why.to_string());
    let config =
        r#"{"mail": "me@example.org", "ntfy": "https://ntfy.sh/x", "webhook": "http://h/x"}"#;
    let names: Vec<_> = read(config).unwrap().channels().iter().map(Channel::name).collect();
    assert_eq!(names, ["mail", "ntfy", "webhook"]);
    assert!(read("{}").unwrap().channels().is_empty());
    for wrong in [
        r#"{"mail": "-oQ/tmp@x"}"#,
        r#"{"mail": "a\nBcc: b@x"}"#,
        r#"{"ntfy": "ntfy.sh/x"}"#,
        r#"{"webhook": "file:///etc"}"#,
        r#"{"space": 0}"#,
        r#"{"sms": "1"}"#,
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
