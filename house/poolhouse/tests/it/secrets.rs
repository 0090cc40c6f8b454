//! Secrets stay where they are: in no log, in no command line, and in no answer of the API.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::command::{path_arg, run_with_input};
use crate::test_nas::TestNas;

/// The secrets that this test gives to the daemon.
const GIVEN: [&str; 7] = [
    "passphrase-of-a-dataset",
    "passphrase-typed-in",
    "password-of-the-dashboard",
    "password-of-a-share",
    "password-of-the-ups",
    "key-of-the-bucket",
    "token-of-the-topic",
];

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A file that only its owner reads.
fn private_file(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Asks the API with the owner's token, or the dashboard with a form.
fn request(port: u16, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let length = body.len();
    let host = format!("Host: 127.0.0.1:{port}\r\nContent-Length: {length}\r\nConnection: close");
    write!(stream, "{head}\r\n{host}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The command lines of all processes that have to do with a folder.
fn command_lines(folder: &Path) -> String {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(path_arg(folder))).collect::<Vec<_>>().join("\n")
}

/// Gives the daemon a secret of each kind. Returns the port of its API.
fn give_secrets(nas: &TestNas) -> u16 {
    let [key, typed, dashboard, share, ups, bucket, topic] = GIVEN;
    let file = |name: &str, text: &str| {
        let path = nas.0.join(name);
        private_file(&path, text);
        path_arg(&path).to_owned()
    };
    nas.create_pool("tank", 2);
    let location = file("dataset.key", key);
    let encrypted = "-u -o encryption=on -o keyformat=passphrase";
    nas.run_ok(&format!("zfs create {encrypted} -o keylocation=file://{location} tank/private"));
    nas.run_ok("zfs snapshot tank/private@a");
    let port = free_port();
    nas.run_ok(&format!("config set web.listen {port}"));
    let shown = nas.run_ok("web setup");
    let link = shown.lines().find_map(|line| line.trim().strip_prefix("http://")).unwrap();
    let form = format!("password={dashboard}&repeated={dashboard}");
    let answer =
        request(port, &format!("POST {} HTTP/1.1", &link[link.find('/').unwrap()..]), &form);
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    // a wrong passphrase, typed into the page
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let page = request(port, &format!("GET / HTTP/1.1\r\n{cookie}"), "");
    let csrf = page.split_once("name=\"csrf\" value=\"").unwrap().1.split('"').next().unwrap();
    let form = format!("csrf={csrf}&root=tank/private&dataset=tank/private&key={typed}");
    request(port, &format!("POST /unlock HTTP/1.1\r\n{cookie}"), &form);
    let state = nas.state_dir();
    let user = ["user", "add", "anna", "--system-user", "root", "--state", path_arg(&state)];
    run_with_input(&user, &format!("{share}\n"));
    // a UPS and a bucket that do not answer: the daemon tries both, and reports the reasons
    let ups_file = file("ups-password", ups);
    nas.run_ok(&format!("config set ups.server nut://127.0.0.1:{}/cellar", free_port()));
    nas.run_ok("config set ups.user nas");
    nas.run_ok(&format!("config set ups.password_file {ups_file}"));
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let keys = format!(
        "AWS_ACCESS_KEY_ID=AKIA\nAWS_SECRET_ACCESS_KEY={bucket}\nAWS_ENDPOINT_URL={endpoint}\n"
    );
    let keys = file("bucket.env", &keys);
    nas.run_ok(&format!("config add repository location=s3://backups/nas credentials={keys}"));
    nas.run_ok(&format!("config set alerts.ntfy http://127.0.0.1:{}/topic", free_port()));
    nas.run_ok(&format!("config set alerts.ntfy_token {topic}"));
    let refused = nas.run("backup run s3://backups/nas tank/private@a");
    assert_ne!(refused.status, 0, "{}", refused.stdout);
    port
}

#[test]
fn secrets_are_in_no_log_process_or_answer() {
    let nas = TestNas::new("secrets", 2);
    let port = give_secrets(&nas);
    let state = nas.state_dir();
    let read = |name: &str| fs::read_to_string(state.join(name)).unwrap();
    let mut secrets: Vec<String> = GIVEN.map(str::to_owned).to_vec();
    secrets.push(read("token").trim().to_owned());
    secrets.extend(["$argon2", "PRIVATE KEY"].map(str::to_owned));
    let token = format!("Authorization: Bearer {}", read("token").trim());
    let get = |path: &str| request(port, &format!("GET {path} HTTP/1.1\r\n{token}"), "");
    nas.wait_until(|| {
        nas.read_log().contains("UPS") || get("/api/v1/ups").contains("cannot be reached")
    });
    let description = get("/api/v1/openapi.json");
    let (_, json) = description.split_once("\r\n\r\n").unwrap();
    let description: Value = serde_json::from_str(json).unwrap();
    let mut told =
        vec![("log".to_owned(), nas.read_log()), ("/proc".to_owned(), command_lines(&nas.0))];
    assert!(
        told.iter().all(|(_, text)| text.contains(path_arg(&nas.0)) || text.contains("as process"))
    );
    let is_asked = |parameter: &Value| parameter["required"] == true;
    let mut asked = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        let parameters = methods["get"]["parameters"].as_array();
        if parameters.is_some_and(|all| !all.iter().any(is_asked)) && path != "/api/v1/events" {
            let answer = get(path);
            asked += usize::from(answer.starts_with("HTTP/1.1 200"));
            told.push((path.clone(), answer));
        }
    }
    assert!(asked > 20, "{asked}");
    for path in ["/metrics", "/api/v1/repositories", "/api/v1/pool-history?name=tank"] {
        told.push((path.to_owned(), get(path)));
    }
    for (place, text) in &told {
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "{place} tells {secret}: {text}");
        }
    }
    // the bucket's failure was told, and so this test looked where a secret could be
    let repositories = &told.iter().rfind(|(place, _)| place == "/api/v1/repositories").unwrap().1;
    assert!(repositories.contains("s3://backups/nas") && repositories.contains("problem"));
}
