//! The configuration of a running daemon, and its API on TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::command::path_arg;
use crate::test_nas::TestNas;

/// A port that nothing listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends a request over TCP; returns its status and body, or nothing if nothing listens.
fn http(port: u16, request_line: &str, token: Option<&str>) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).ok()?;
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    write!(stream, "{request_line} HTTP/1.1\r\nHost: nas\r\n{token}Content-Length: 0\r\n\r\n")
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

/// Gets the metrics under a name of this machine.
fn metrics(port: u16, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\n{headers}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[test]
fn metrics_need_token_or_this_machine() {
    let nas = TestNas::new("metrics", 2);
    nas.create_pool("-m none tank mirror", 2);
    let port = free_port();
    nas.run_ok(&format!("config set web.listen {port}"));
    let local = format!("Host: localhost:{port}");
    nas.wait_until(|| metrics(port, &local).1.contains("zfs_pool_health{pool=\"tank\"} 0\n"));
    let (status, text) = metrics(port, &local);
    assert!(status == 200 && text.contains("content-type: text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("poolhouse_device_errors_total{pool=\"tank\","), "{text}");
    // of single datasets, by zfs_exporter's names
    nas.run_ok("zfs create -o quota=64m tank/a");
    nas.run_ok("zfs create -s -V 16m tank/v");
    for line in [
        "zfs_dataset_quota_bytes{name=\"tank/a\",pool=\"tank\",type=\"filesystem\"} 67108864\n",
        "zfs_dataset_quota_bytes{name=\"tank\",pool=\"tank\",type=\"filesystem\"} 0\n",
        "zfs_dataset_volume_size_bytes{name=\"tank/v\",pool=\"tank\",type=\"volume\"} 16777216\n",
        "zfs_dataset_used_bytes{name=\"tank/a\",pool=\"tank\",type=\"filesystem\"} ",
    ] {
        nas.wait_until(|| metrics(port, &local).1.contains(line));
    }
    assert_eq!(metrics(port, "Host: nas.example.org").0, 401);
    assert_eq!(metrics(port, &format!("{local}\r\nX-Forwarded-For: 10.0.0.1")).0, 401);
    let token = std::fs::read_to_string(nas.state_dir().join("token")).unwrap();
    let shown = format!("Host: nas.example.org\r\nAuthorization: Bearer {}", token.trim());
    assert_eq!(metrics(port, &shown).0, 200);
}

#[test]
fn the_api_on_tcp_needs_its_token() {
    let nas = TestNas::new("tcp", 1);
    nas.create_pool("-m none tank", 1);
    let (first, second) = (free_port(), free_port());
    nas.run_ok(&format!("config set web.listen {first}"));
    let token = std::fs::read_to_string(nas.state_dir().join("token")).unwrap();
    let list = "GET /api/v1/pools";
    let (status, body) = http(first, list, None).unwrap();
    assert_eq!(status, 401, "{body}");
    assert!(body.contains("permission denied"), "{body}");
    assert_eq!(http(first, list, Some("0")).unwrap().0, 401);
    let (status, body) = http(first, list, Some(token.trim())).unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["value"][0]["name"]), (200, &Value::from("tank")));
    let (status, _) = http(first, "POST /api/v1/pools/tank/scrub", Some(token.trim())).unwrap();
    assert_eq!(status, 200);
    assert!(nas.run_ok("zpool history tank").contains("POST /api/v1/pools/tank/scrub"));
    // the role operate cares, and destroys nothing
    let operator = std::fs::read_to_string(nas.state_dir().join("token-operate")).unwrap();
    let asks = |line: &str| http(first, line, Some(operator.trim())).unwrap().0;
    assert_eq!((asks(list), asks("POST /api/v1/pools/tank/clear")), (200, 200));
    assert_eq!((asks("DELETE /api/v1/pools/tank"), asks("POST /api/v1/daemon/stop")), (403, 403));
    let reader = std::fs::read_to_string(nas.state_dir().join("token-look")).unwrap();
    assert_eq!(http(first, "POST /api/v1/pools/tank/clear", Some(reader.trim())).unwrap().0, 403);
    assert_eq!(http(first, "GET /api/v1/nothing", Some(token.trim())).unwrap().0, 404);
    let (_, body) = http(first, "GET /api/v1/openapi.json", Some(token.trim())).unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["paths"]["/api/v1/pools/{name}/scrub"]["post"]["operationId"], "ScrubPool");
    crate::api_page::check(&body);

    // another port is added, and the first stays open; then the first goes
    nas.run_ok(&format!("config set web.listen [{first},{second}]"));
    assert_eq!(http(second, list, None).unwrap().0, 401);
    assert_eq!(http(first, list, None).unwrap().0, 401);
    nas.run_ok(&format!("config set web.listen {second}"));
    nas.wait_until(|| http(first, list, None).is_none());
    assert_eq!(http(second, list, None).unwrap().0, 401);
    nas.run_ok("config unset web.listen");
    nas.wait_until(|| http(second, list, None).is_none());
}

#[test]
fn the_daemon_follows_its_configuration_file() {
    let nas = TestNas::new("config", 0);
    let file = nas.state_dir().join("config.toml");
    let path = path_arg(&file);
    assert_eq!(nas.run_ok("config show"), "");
    let why = nas.run_failing("config check", 1);
    assert!(why.contains("cannot be read"), "{why}");
    let port = free_port();
    let good = format!("# the API\n[web]\nlisten = {port}  # for scripts\n");
    std::fs::write(&file, &good).unwrap();
    assert_eq!(nas.run_ok("config check"), format!("{path}: no mistakes\n"));
    nas.wait_until(|| http(port, "GET /api/v1/pools", None).is_some());
    assert_eq!(nas.run_ok("config show"), good);

    // a file with mistakes changes nothing
    std::fs::write(&file, format!("{good}\n[ftp]\nlisten = 21\n")).unwrap();
    let why = nas.run_failing("config check", 1);
    assert!(why.contains(&format!("{path}: line 5: [ftp]: there is no such section")), "{why}");
    nas.wait_until(|| nas.run("config show").stderr.contains("does not take effect: line 5"));
    assert_eq!(nas.run_ok("config show"), good);
    assert_eq!(http(port, "GET /api/v1/pools", None).unwrap().0, 401);
    let why = nas.run_failing("config set web.listen nowhere", 2);
    assert!(why.contains("is not an address and a port"), "{why}");

    // comments stay when the daemon writes the file
    std::fs::write(&file, &good).unwrap();
    let other = free_port();
    nas.run_ok(&format!("config set web.listen {other}"));
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written, good.replace(&port.to_string(), &other.to_string()));
    assert!(nas.run_ok("events").contains("config_reloaded"));
}

#[test]
fn sections_are_added_and_removed() {
    let nas = TestNas::new("sections", 1);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create tank/a");
    nas.run_ok("config add policy dataset=tank/a daily=7 weekly=4");
    nas.run_ok("config add policy dataset=tank hourly=3");
    let shown = nas.run_ok("config show");
    let first = "[[policy]]\ndataset = \"tank/a\"\ndaily = 7\nweekly = 4\n";
    assert_eq!(shown, format!("{first}\n[[policy]]\ndataset = \"tank\"\nhourly = 3\n"));
    nas.run_ok("policy run");
    let snapshots = nas.run_ok("zfs list -H -t snapshot -o name tank/a");
    assert!(snapshots.contains("_daily") && snapshots.contains("_weekly"), "{snapshots}");
    // a mistake changes nothing
    let why = nas.run_failing("config add policy dataset=tank/b dayly=7", 2);
    assert!(why.contains("dayly"), "{why}");
    let why = nas.run_failing("config remove policy dataset=tank/b", 2);
    assert!(why.contains("no [[policy]] has dataset = tank/b"), "{why}");
    assert_eq!(nas.run_ok("config show"), shown);
    nas.run_ok("config remove policy dataset=tank");
    assert_eq!(nas.run_ok("config show"), first);
}
