//! The dashboard of a real daemon with a real pool, over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::health::watch_drives;
use crate::test_nas::TestNas;

const PASSWORD: &str = "correct+horse+battery";

/// A browser that keeps its cookie.
struct Browser {
    port: u16,
    cookie: String,
}

/// A reply: status, headers and body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Browser {
    fn request(&mut self, method: &str, path: &str, form: &str) -> Answer {
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
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn page(&mut self, path: &str) -> String {
        let answer = self.request("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}{}", answer.head, answer.body);
        answer.body
    }

    /// Sends the form of a page with its token.
    fn submit(&mut self, page: &str, path: &str, fields: &str) -> Answer {
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
        while !browser.page("/live").contains(text) {
            assert!(std::time::Instant::now() < last, "{text}: {}", browser.page("/live"));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    shows(&mut browser, "tank/mirror-0");
    let page = browser.page("/");
    for text in ["is failing", "mirror-0", "ONLINE", "none requested", "Pool tank was created."] {
        assert!(page.contains(text), "{text}: {page}");
    }
    // a scrub by the button: first the question, which shows the command
    let question = browser.page("/pools/tank/scrub");
    assert!(question.contains("poolhouse zpool scrub tank"), "{question}");
    let started = browser.submit("/pools/tank/scrub", "/pools/tank/scrub", "");
    assert_eq!(started.status, 303, "{}", started.body);
    shows(&mut browser, "scrub finished");
    assert!(nas.run_ok("zpool history tank").contains("zpool scrub tank"));
    // the failing drive is noted by its page
    let drive = browser.page("/drives/d1.img");
    assert!(drive.contains("Reallocated_Sector_Ct"), "{drive}");
    assert_eq!(browser.submit("/drives/d1.img", "/drives/d1.img/note", "").status, 303);
    assert_eq!(nas.run("drives list").status, 0);
}

#[test]
fn sessions_end_and_passwords_survive_a_restart() {
    let nas = TestNas::new("web-password", 0);
    let mut browser = log_in(&nas);
    browser.page("/");
    let status = nas.run_ok("web status");
    assert!(status.contains("on at 127.0.0.1:") && status.contains("1 sessions"), "{status}");
    let hash = nas.state_dir().join("web-password");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&hash).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(&hash).unwrap().starts_with("$argon2id$"));
    // a restart ends sessions, and keeps the password
    nas.run_ok("serve --stop");
    nas.run_ok("web status");
    nas.wait_until(|| TcpStream::connect(("127.0.0.1", browser.port)).is_ok());
    assert_eq!(browser.request("GET", "/", "").status, 303);
    assert_eq!(browser.request("POST", "/login", "password=wrong").status, 401);
    assert_eq!(browser.request("POST", "/login", &format!("password={PASSWORD}")).status, 303);
    browser.page("/");
    nas.run_ok("web off");
    assert_eq!(browser.request("GET", "/", "").status, 404);
    assert!(!hash.exists());
    // the API does not know the dashboard's cookie
    assert_eq!(browser.request("GET", "/api/v1/pools", "").status, 401);
}
