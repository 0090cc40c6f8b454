//! The dashboard of a real daemon with a real pool, over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::command::run;
use crate::health::watch_drives;
use crate::test_nas::TestNas;

const PASSWORD: &str = "correct+horse+battery";

/// A browser that keeps its cookie.
struct Browser {
    port: u16,
    cookie: String,
}

/// A reply: status, headers and body.
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Browser {
    fn request(&mut self, method: &str, path: &str, form: &str) -> Response {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nCookie: {}\r\nContent-Length: {}\r\n\r\n{form}",
            self.port,
            self.cookie,
            form.len()
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let set_cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        if let Some(cookie) = set_cookie.and_then(|line| line.split(';').next()) {
            cookie.clone_into(&mut self.cookie);
        }
        Response { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn page(&mut self, path: &str) -> String {
        let answer = self.request("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}{}", answer.head, answer.body);
        answer.body
    }

    /// Sends the form of a page with its token.
    fn submit(&mut self, page: &str, path: &str, fields: &str) -> Response {
        let page = self.page(page);
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        let csrf = rest.split_once('"').unwrap().0;
        self.request("POST", path, &format!("csrf={csrf}{fields}"))
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Turns the dashboard on by the link that the command prints.
fn log_in(nas: &TestNas) -> Browser {
    let port = free_port();
    nas.run_ok(&format!("config set web.listen {port}"));
    let mut browser = Browser { port, cookie: String::new() };
    assert_eq!(browser.request("GET", "/", "").status, 404);
    let shown = nas.run_ok("web setup");
    let link = shown.lines().find_map(|line| line.trim().strip_prefix("http://")).unwrap();
    let path = &link[link.find('/').unwrap()..];
    let form = format!("password={PASSWORD}&repeated={PASSWORD}");
    assert_eq!(browser.request("POST", path, &form).status, 303);
    assert!(!nas.read_log().contains(&path["/setup/".len()..]), "the log has no secret");
    browser
}

#[test]
fn first_page_shows_a_real_pool() {
    let nas = TestNas::new("dashboard", 2);
    watch_drives(&nas, &["smart-ata2.json", "smart-fail2.json"], "");
    nas.create_pool("-m none tank mirror", 2);
    let mut browser = log_in(&nas);
    nas.run("drives list --now");
    let shows = |browser: &mut Browser, text: &str| {
        let last = std::time::Instant::now() + Duration::from_mins(1);
        while !browser.page("/").contains(text) {
            assert!(std::time::Instant::now() < last, "{text}: {}", browser.page("/"));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    shows(&mut browser, "tank/mirror-0");
    let page = browser.page("/");
    for text in ["is failing", "mirror-0", "ONLINE", "none requested", "Pool tank was created."] {
        assert!(page.contains(text), "{text}: {page}");
    }
    // a scrub by the button: first the question, which shows the command
    let question = browser.page("/do/scrub?pool=tank");
    assert!(question.contains("poolhouse zpool scrub tank"), "{question}");
    let started = browser.submit("/do/scrub?pool=tank", "/do/scrub", "&pool=tank");
    assert_eq!(started.status, 303, "{}", started.body);
    shows(&mut browser, "scrub finished");
    assert!(nas.run_ok("zpool history tank").contains("zpool scrub tank"));
    // the failing drive is noted by its page
    let drive = browser.page("/drives/d1.img");
    assert!(drive.contains("Reallocated_Sector_Ct"), "{drive}");
    assert_eq!(browser.submit("/drives/d1.img", "/do/note", "&drive=d1.img").status, 303);
    assert_eq!(nas.run("drives list").status, 0);
}

#[test]
fn sessions_end_and_passwords_survive_a_restart() {
    let nas = TestNas::new("web-password", 0);
    let mut browser = log_in(&nas);
    browser.page("/");
    let status = nas.run_ok("web status");
    assert!(status.contains("on at 127.0.0.1:") && status.contains("1 sessions"), "{status}");
    let hash = nas.state_dir().join("web-users.json");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&hash).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(&hash).unwrap().contains("$argon2id$"));
    // a restart ends sessions, and keeps the password
    nas.run_ok("serve --stop");
    nas.run_ok("web status");
    nas.wait_until(|| TcpStream::connect(("127.0.0.1", browser.port)).is_ok());
    assert_eq!(browser.request("GET", "/", "").status, 303);
    assert_eq!(browser.request("POST", "/login", "name=admin&password=wrong").status, 401);
    assert_eq!(
        browser.request("POST", "/login", &format!("name=admin&password={PASSWORD}")).status,
        303
    );
    browser.page("/");
    nas.run_ok("web off");
    assert_eq!(browser.request("GET", "/", "").status, 404);
    assert!(!hash.exists());
    // the API does not know the dashboard's cookie
    assert_eq!(browser.request("GET", "/api/v1/pools", "").status, 401);
}

#[test]
fn snapshots_are_taken_and_rolled_back() {
    let nas = TestNas::new("web-snapshots", 2);
    nas.create_pool("-m none tank mirror", 2);
    let mut browser = log_in(&nas);
    let taken = browser.submit("/datasets/tank", "/do/snapshot", "&dataset=tank&name=one");
    assert_eq!(taken.status, 303, "{}", taken.body);
    let page = browser.page("/datasets/tank");
    assert!(page.contains("/do/rollback?snapshot=tank%40one"), "{page}");
    assert!(nas.run_ok("zpool history tank").contains("zfs snapshot tank@one"));
    let refused = browser.submit("/datasets/tank", "/do/rollback", "&snapshot=tank@one");
    assert_eq!(refused.status, 422, "{}", refused.body);
    let rolled =
        browser.submit("/datasets/tank", "/do/rollback", "&snapshot=tank@one&typed=tank@one");
    assert_eq!(rolled.status, 303, "{}", rolled.body);
    let created = browser.submit("/datasets", "/do/create-filesystem", "&name=tank/a");
    assert!(created.status == 303 || created.status == 200, "{}", created.body);
    assert!(browser.page("/datasets").contains("tank/a"));
    for path in ["/shares", "/copies", "/alerts", "/users", "/account", "/pools/tank"] {
        browser.page(path);
    }
    let gone = browser.submit(
        "/datasets/tank",
        "/do/destroy-snapshot",
        "&snapshot=tank@one&typed=tank@one",
    );
    assert_eq!(gone.status, 303, "{}", gone.body);
    assert!(!browser.page("/datasets/tank").contains("tank@one"));
}

#[test]
fn drive_is_replaced_by_the_guide() {
    let nas = TestNas::new("web-replace", 3);
    watch_drives(&nas, &["smart-ata2.json", "smart-fail2.json", "smart-ata2.json"], "");
    nas.create_pool("-m none tank mirror", 2);
    let mut browser = log_in(&nas);
    nas.run("drives list --now");
    let drives = nas.drive_paths(3);
    let [old, new] = [1, 2].map(|at| drives[at].display().to_string());
    let guide = format!("/pools/tank/replace/{}", old.replace('/', "%2F"));
    let (port, cookie) = (browser.port, browser.cookie.clone());
    let shows = |text: &str| {
        let mut browser = Browser { port, cookie: cookie.clone() };
        let shown = browser.request("GET", &guide, "");
        shown.status == 200 && shown.body.contains(text)
    };
    nas.wait_until(|| shows(&format!("value=\"{new}\"")));
    assert!(shows("poolhouse drives locate") && shows("Reallocated_Sector_Ct"));
    let fields = format!("&pool=tank&device={old}&guide={old}");
    let offline = browser.submit(&guide, "/do/offline", &fields);
    assert_eq!(offline.status, 303, "{}", offline.body);
    let replaced = browser.submit(&guide, "/do/replace", &format!("{fields}&new={new}&path="));
    assert_eq!(replaced.status, 303, "{}", replaced.body);
    nas.wait_until(|| shows("is no part of pool tank"));
    let status = nas.run_ok("zpool status -P tank");
    assert!(status.contains(&new) && !status.contains(&old), "{status}");
    assert!(nas.run_ok("zpool history tank").contains(&format!("zpool replace tank {old} {new}")));
}

#[test]
fn copies_are_set_up_by_forms() {
    let nas = TestNas::new("web-copies", 2);
    nas.create_pool("-m none tank", 1);
    nas.run_ok("zfs create -o mountpoint=none tank/a");
    let drive = nas.drive_paths(2).remove(1);
    nas.run_ok(&format!("zpool create -m none usb {}", drive.display()));
    let mut browser = log_in(&nas);
    let fields =
        "&name=second&source=tank/a&target=usb/a&every=daily&max-age=2d&rate=&wake=&window=";
    let question = browser.page(&format!("/do/add-replica?{}", &fields[1..]));
    let command =
        "config add replica name=second source=tank/a target=usb/a every=daily max-age=2d";
    assert!(question.contains(command), "{question}");
    let set_up = browser.submit("/copies", "/do/add-replica", fields);
    assert_eq!(set_up.status, 303, "{}", set_up.body);
    let policy = "&dataset=tank/a&hourly=&daily=7&weekly=&monthly=";
    assert_eq!(browser.submit("/copies", "/do/add-policy", policy).status, 303);
    nas.run_ok("policy run");
    let ran = browser.submit("/copies", "/do/replicate", "&name=second");
    assert!(matches!(ran.status, 200 | 303), "{}", ran.body);
    nas.wait_until(|| nas.run("zfs list -H -t snapshot -o name usb/a").stdout.contains("_daily"));
    let page = browser.page("/copies");
    assert!(page.contains("<h3>second") && page.contains("usb/a"), "{page}");
    // a repository on a disk
    let repository = nas.0.join("repository");
    let made = run(&["backup", "init", &format!("file://{}", repository.display())]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let fields = format!("&location={}&dataset=tank/a", repository.display());
    let started = browser.submit("/copies", "/do/backup", &fields);
    assert_eq!(started.status, 303, "{}", started.body);
    nas.wait_until(|| nas.run("jobs").stdout.contains("backup"));
    // a wrong field is refused by the daemon, and nothing is written
    let wrong =
        browser.submit("/copies", "/do/add-replica", "&name=x y&source=tank/a&target=usb/b");
    assert_eq!(wrong.status, 409, "{}", wrong.body);
    for (action, field) in [("remove-replica", "name=second"), ("remove-policy", "dataset=tank/a")]
    {
        let done = browser.submit("/copies", &format!("/do/{action}"), &format!("&{field}"));
        assert_eq!(done.status, 303, "{}", done.body);
    }
    let left = nas.run_ok("config show");
    assert!(!left.contains("replica") && !left.contains("policy"), "{left}");
}

#[test]
fn key_is_typed_in_for_a_locked_dataset() {
    let nas = TestNas::new("web-key", 1);
    nas.create_pool("-m none tank", 1);
    let key = nas.0.join("key");
    std::fs::write(&key, "correct horse").unwrap();
    let location = format!("-o keylocation=file://{}", key.display());
    nas.run_ok(&format!(
        "zfs create -o encryption=on -o keyformat=passphrase {location} tank/private"
    ));
    nas.run_ok("zfs create tank/private/diary");
    nas.run_ok("zfs unload-key tank/private");
    let mut browser = log_in(&nas);
    let page = browser.page("/datasets/tank%2Fprivate%2Fdiary");
    assert!(page.contains("poolhouse zfs load-key tank/private<"), "{page}");
    let fields = |key: &str| format!("&root=tank/private&dataset=tank/private/diary&key={key}");
    let wrong = browser.submit("/", "/unlock", &fields("wrong+horse"));
    assert_eq!(wrong.status, 409, "{}", wrong.body);
    let right = browser.submit("/", "/unlock", &fields("correct+horse"));
    assert!(matches!(right.status, 200 | 303), "{}", right.body);
    assert_eq!(nas.run_ok("zfs get -H -o value keystatus tank/private"), "available\n");
    assert!(!browser.page("/datasets/tank%2Fprivate%2Fdiary").contains("The key is not loaded"));
    assert!(!nas.read_log().contains("correct horse"));
}

/// One exchange over TLS with a server that a root certificate vouches for.
fn exchange_by_tls(port: u16, root: &str, request: &str) -> std::io::Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(root.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    let mut stream = rustls::StreamOwned::new(session, stream);
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        // the server closes the connection behind its answer
        Err(why) if why.kind() != std::io::ErrorKind::UnexpectedEof => return Err(why),
        _ => {}
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn browsers_trust_the_root_certificate() {
    let nas = TestNas::new("web-tls", 0);
    let port = free_port();
    let missing = nas.run("web certificate");
    assert!(
        missing.status != 0 && missing.stderr.contains("no root certificate"),
        "{}",
        missing.stderr
    );
    nas.run_ok("config set web.tls on");
    nas.run_ok(&format!("config set web.listen {port}"));
    let root = nas.run_ok("web certificate");
    assert!(root.starts_with("-----BEGIN CERTIFICATE-----") && !root.contains("KEY"), "{root}");
    let shown = nas.run_ok("web setup anna --role operate");
    let link = shown.lines().find_map(|line| line.trim().strip_prefix("https://")).unwrap();
    let path = &link[link.find('/').unwrap()..];
    let form = format!("password={PASSWORD}&repeated={PASSWORD}");
    let head = format!("Host: localhost:{port}\r\nContent-Length: {}\r\n", form.len());
    let request = format!("POST {path} HTTP/1.1\r\n{head}\r\n{form}");
    // a root of another machine does not do
    let other = TestNas::new("web-tls-other", 0);
    other.run_ok("config set web.tls on");
    other.run_ok(&format!("config set web.listen {}", free_port()));
    let wrong = other.run_ok("web certificate");
    assert!(exchange_by_tls(port, &wrong, &request).is_err());
    let answer = exchange_by_tls(port, &root, &request).unwrap();
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    assert!(answer.contains("SameSite=Strict; Secure"), "{answer}");
    assert!(nas.run_ok("web users").contains("anna  operate"), "{}", nas.run_ok("web users"));
    // requests without TLS are led to it, and never carried out
    let mut plain = Browser { port, cookie: String::new() };
    let answer = plain.request("GET", "/login", "");
    assert_eq!(answer.status, 308);
    assert!(
        answer.head.contains(&format!("location: https://127.0.0.1:{port}/login")),
        "{}",
        answer.head
    );
    assert_eq!(plain.request("POST", "/login", "name=anna").status, 426);
    assert_eq!(plain.request("GET", "/api/v1/pools", "").status, 426);
    let authority = nas.state_dir().join("web-ca.json");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&authority).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let key =
        serde_json::from_slice::<serde_json::Value>(&std::fs::read(authority).unwrap()).unwrap();
    assert!(!nas.read_log().contains(key["key"].as_str().unwrap()), "the log has no secret");
}
