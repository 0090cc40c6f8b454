//! Access rules: sessions, forms of other sites, guessed passwords, setup links.

use std::sync::atomic::Ordering;

use api::{Role, SetUpDashboard};

use crate::client::{Browser, PASSWORD};

/// Every path that a session can reach, and more.
const PATHS: [&str; 22] = [
    "/",
    "/drives/sda",
    "/pools/tank",
    "/pools/tank/replace/sda",
    "/datasets",
    "/datasets/tank",
    "/shares",
    "/copies",
    "/repositories?location=s3://b/nas",
    "/repositories/files?location=s3://b/nas&dataset=tank&at=monday",
    "/benchmarks",
    "/benchmarks/report?file=tank.json",
    "/alerts",
    "/users",
    "/account",
    "/account/totp",
    "/do/scrub",
    "/share-users",
    "/logout",
    "/index.html",
    "/assets",
    "/%2e%2e/%2e%2e/etc/passwd",
];

#[tokio::test]
async fn nothing_is_served_before_a_password_is_set() {
    let mut browser = Browser::new();
    for path in PATHS.into_iter().chain(["/login"]) {
        for method in ["GET", "POST"] {
            let answer = browser.request(method, path, "password=").await;
            assert_eq!(answer.status, 404, "{method} {path}");
            assert!(answer.body.contains("poolhouse web setup"), "{method} {path}");
        }
    }
    assert!(browser.daemon.done.lock().is_empty());
}

#[tokio::test]
async fn no_request_without_session_reaches_anything() {
    let mut browser = Browser::logged_in().await.other();
    for cookie in [None, Some(String::new()), Some("0".repeat(64)), Some("x; y".to_owned())] {
        browser.cookie = cookie;
        for path in PATHS {
            browser.headers = vec![("x-live", "1")];
            assert_eq!(browser.get(path).await.status, 401, "{path}");
            browser.headers.clear();
            let get = browser.get(path).await;
            assert_eq!((get.status, get.header("location")), (303, "/login"), "{path}");
            assert!(!get.body.contains("Pools"), "{path}");
            let post = browser.post(path, "csrf=").await;
            assert_eq!(post.status, 401, "{path}");
        }
    }
    assert_eq!(browser.get("/login").await.status, 200);
    assert!(browser.daemon.done.lock().is_empty());
}

#[tokio::test]
async fn changes_need_the_token_of_their_session() {
    let mut browser = Browser::logged_in().await;
    let csrf = browser.csrf().await;
    let mut other = browser.other();
    other.post("/login", &login(PASSWORD)).await;
    let foreign = other.csrf().await;
    assert_ne!(csrf, foreign);
    for wrong in ["", "csrf=", "csrf=x", &format!("csrf={foreign}")] {
        for path in ["/do/scrub", "/do/note", "/account/password", "/share-users", "/logout"] {
            let form = format!("{wrong}&pool=tank&drive=sda");
            assert_eq!(browser.post(path, &form).await.status, 403, "{path} {wrong}");
        }
    }
    assert!(browser.daemon.done.lock().is_empty());
    let answer = browser.post("/do/scrub", &format!("csrf={csrf}&pool=tank")).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/pools/tank"));
    browser.post("/do/scrub", &format!("csrf={csrf}&pool=tank&mode=stop")).await;
    browser.post("/do/note", &format!("csrf={csrf}&drive=a%2Fb")).await;
    let done = browser.daemon.done.lock().clone();
    assert_eq!(done, ["zpool scrub tank", "zpool scrub -s tank", "drives note a/b"]);
    // a GET of a change only asks
    let question = browser.get(&format!("/do/scrub?pool=tank&csrf={csrf}")).await;
    assert!(question.body.contains("poolhouse zpool scrub tank"), "{}", question.body);
    assert_eq!(browser.get(&format!("/logout?csrf={csrf}")).await.status, 404);
    assert_eq!(browser.request("PUT", "/", "").await.status, 405);
    assert_eq!(browser.daemon.done.lock().len(), 3);
}

#[tokio::test]
async fn destruction_needs_the_name() {
    let mut browser = Browser::logged_in().await;
    let csrf = browser.csrf().await;
    for typed in ["", "&typed=", "&typed=tank@b"] {
        let form = format!("csrf={csrf}&snapshot=tank@a{typed}");
        let answer = browser.post("/do/destroy-snapshot", &form).await;
        assert_eq!(answer.status, 422, "{typed}");
        assert!(answer.body.contains("Nothing was changed"), "{}", answer.body);
    }
    assert!(browser.daemon.done.lock().is_empty());
    let form = format!("csrf={csrf}&snapshot=tank@a&typed=tank@a");
    assert_eq!(browser.post("/do/destroy-snapshot", &form).await.status, 303);
    assert_eq!(*browser.daemon.done.lock(), ["zfs destroy tank@a"]);
}

#[tokio::test]
async fn roles_limit_what_users_change() {
    let admin = Browser::logged_in().await;
    let actions = [
        ("/do/scrub", "pool=tank", Role::Operate),
        ("/do/offline", "pool=tank&device=sda", Role::Operate),
        ("/do/snapshot", "dataset=tank&name=a", Role::Operate),
        ("/do/export", "pool=tank", Role::Administer),
        ("/do/rollback", "snapshot=tank@a&typed=tank@a", Role::Administer),
        ("/do/share", "protocol=nfs&dataset=tank", Role::Administer),
        ("/do/invite", "name=eve&role=administer", Role::Administer),
        ("/share-users", "name=eve&password=secret", Role::Administer),
    ];
    for role in [Role::Look, Role::Operate] {
        let mut browser = admin.invited("ben", role).await;
        let csrf = browser.csrf().await;
        for (path, fields, needed) in actions {
            let status = browser.post(path, &format!("csrf={csrf}&{fields}")).await.status;
            assert_eq!(status == 403, role < needed, "{role:?} {path} {status}");
        }
        assert_eq!(browser.get("/users").await.status, 403);
        assert_eq!(browser.get("/").await.status, 200);
    }
    let done = admin.daemon.done.lock().clone();
    assert_eq!(done, ["zpool scrub tank", "zpool offline tank sda", "zfs snapshot tank@a"]);
}

#[tokio::test]
async fn removed_users_lose_their_sessions() {
    let mut admin = Browser::logged_in().await;
    let mut browser = admin.invited("ben", Role::Operate).await;
    assert!(admin.dashboard.remove_user("admin").unwrap_err().contains("last user"));
    admin.dashboard.remove_user("ben").unwrap();
    assert_eq!(browser.get("/").await.status, 303);
    assert_eq!(browser.post("/login", &format!("name=ben&password={PASSWORD}")).await.status, 401);
    assert_eq!(admin.get("/").await.status, 200);
}

#[tokio::test]
async fn one_time_codes_are_needed_once_on() {
    let mut browser = Browser::logged_in().await;
    let csrf = browser.csrf().await;
    let page = browser.get("/account/totp").await.body;
    let (_, rest) = page.split_once("name=\"secret\" value=\"").unwrap();
    let secret = rest.split_once('"').unwrap().0;
    let right = |time: u64| code(secret, time);
    let form = format!("csrf={csrf}&secret={secret}&code=");
    assert_eq!(browser.post("/account/totp", &format!("{form}000000")).await.status, 422);
    let now = crate::client::NOW;
    assert_eq!(browser.post("/account/totp", &format!("{form}{}", right(now))).await.status, 303);
    let mut other = browser.other();
    assert_eq!(other.post("/login", &login(PASSWORD)).await.status, 401);
    // the code that turned them on is spent
    let spent = format!("{}&code={}", login(PASSWORD), right(now));
    assert_eq!(other.post("/login", &spent).await.status, 401);
    browser.daemon.clock.store(60, Ordering::Relaxed);
    let fresh = format!("{}&code={}", login(PASSWORD), right(now + 60));
    assert_eq!(other.post("/login", &fresh).await.status, 303);
    assert_eq!(other.other().post("/login", &fresh).await.status, 401);
    // the secret is in no page and no log after that
    assert!(!browser.get("/account").await.body.contains(secret));
    assert!(!browser.daemon.log.lock().join("").contains(secret));
}

/// The code of an authenticator app at a time (RFC 6238).
fn code(secret: &str, time: u64) -> String {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        _ => letter - b'2' + 26,
    };
    let bits: Vec<u8> =
        secret.bytes().flat_map(|it| (0..5).rev().map(move |bit| (digit(it) >> bit) & 1)).collect();
    let key: Vec<u8> =
        bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum * 2 + bit)).collect();
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &key);
    let tag = aws_lc_rs::hmac::sign(&key, &(time / 30).to_be_bytes());
    let hash = tag.as_ref();
    let at = usize::from(hash[19] & 15);
    let number = u32::from_be_bytes(hash[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

/// The form of a login of the first user.
fn login(password: &str) -> String {
    format!("name=admin&password={password}")
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let mut browser = Browser::logged_in().await;
    let csrf = browser.get("/").await.csrf().to_owned();
    for header in [("origin", "http://evil"), ("sec-fetch-site", "cross-site"), ("origin", "null")]
    {
        browser.headers = vec![header];
        let form = format!("csrf={csrf}&pool=tank&{}", login(PASSWORD));
        assert_eq!(browser.post("/do/scrub", &form).await.status, 403);
        assert_eq!(browser.post("/login", &form).await.status, 403);
    }
    browser.headers = vec![("origin", "http://nas:8080"), ("sec-fetch-site", "same-origin")];
    let form = format!("csrf={csrf}&pool=tank");
    assert_eq!(browser.post("/do/scrub", &form).await.status, 303);
}

#[tokio::test]
async fn login_gives_a_new_session_each_time() {
    let mut browser = Browser::logged_in().await;
    let planted = "f".repeat(64);
    let first = browser.cookie.replace(planted.clone()).unwrap();
    let answer = browser.post("/login", &login(PASSWORD)).await;
    assert_eq!(answer.status, 303);
    let cookie = answer.header("set-cookie");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let mut encrypted = browser.other();
    encrypted.is_encrypted = true;
    let answer = encrypted.post("/login", &login(PASSWORD)).await;
    assert!(answer.header("set-cookie").ends_with("; SameSite=Strict; Secure"));
    let second = browser.cookie.clone().unwrap();
    assert!(second != planted && second != first);
    browser.cookie = Some(planted);
    assert_eq!(browser.get("/").await.status, 303);
    // the session that the browser had ends with another login
    browser.cookie = Some(second.clone());
    browser.post("/login", &login(PASSWORD)).await;
    browser.cookie = Some(second);
    assert_eq!(browser.get("/").await.status, 303);
    // another browser's stays
    browser.cookie = Some(first);
    assert_eq!(browser.get("/").await.status, 200);
}

#[tokio::test]
async fn logout_ends_the_session() {
    let mut browser = Browser::logged_in().await;
    let (csrf, cookie) = (browser.get("/").await.csrf().to_owned(), browser.cookie.clone());
    let answer = browser.post("/logout", &format!("csrf={csrf}")).await;
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
    browser.cookie = cookie;
    assert_eq!(browser.get("/").await.status, 303);
}

#[tokio::test]
async fn guessing_passwords_is_throttled() {
    let mut browser = Browser::logged_in().await.other();
    for _ in 0..5 {
        assert_eq!(browser.post("/login", "name=admin&password=wrong").await.status, 401);
    }
    // even the right one has to wait
    let right = login(PASSWORD);
    let answer = browser.post("/login", &right).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, "10"));
    assert!(answer.body.contains("Wait 10 seconds"));
    let mut neighbour = browser.other();
    neighbour.address = "10.0.0.7".parse().unwrap();
    assert_eq!(neighbour.post("/login", &right).await.status, 303);
    browser.daemon.clock.store(10, Ordering::Relaxed);
    assert_eq!(browser.post("/login", &right).await.status, 303);
    let log = browser.daemon.log.lock().join("\n");
    assert!(log.contains("a login from 127.0.0.1 failed"), "{log}");
    assert!(!log.contains("wrong") && !log.contains(PASSWORD), "{log}");
}

#[tokio::test]
async fn sessions_end_when_nobody_uses_them() {
    let mut browser = Browser::logged_in().await;
    // the page's own background requests do not extend the session
    browser.headers = vec![("x-live", "1")];
    for hour in 1..12 {
        browser.daemon.clock.store(hour * 3600, Ordering::Relaxed);
        assert_eq!(browser.get("/").await.status, 200);
    }
    browser.daemon.clock.store(12 * 3600, Ordering::Relaxed);
    assert_eq!(browser.get("/").await.status, 401);
}

#[tokio::test]
async fn setup_link_works_once() {
    let mut browser = Browser::new();
    let link = browser.dashboard.make_setup_link(&SetUpDashboard::default()).unwrap();
    assert_eq!(browser.get(&link).await.status, 200);
    let refused = browser.post(&link, "password=short&repeated=short").await;
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("too short"), "{}", refused.body);
    let form = format!("password={PASSWORD}&repeated={PASSWORD}");
    assert_eq!(browser.post("/setup/0", &form).await.status, 404);
    assert_eq!(browser.post(&link, &form).await.status, 303);
    assert_eq!(browser.get("/").await.status, 200);
    assert_eq!(browser.post(&link, &form).await.status, 404);
    assert_eq!(browser.get(&link).await.status, 404);
    // a new password ends the sessions of the old one
    let mut other = browser.other();
    let link = browser.dashboard.make_setup_link(&SetUpDashboard::default()).unwrap();
    assert_eq!(other.post(&link, &form).await.status, 303);
    assert_eq!(browser.get("/").await.status, 303);
    let late = browser.dashboard.make_setup_link(&SetUpDashboard::default()).unwrap();
    browser.daemon.clock.store(15 * 60, Ordering::Relaxed);
    assert_eq!(browser.post(&late, &form).await.status, 404);
}

#[tokio::test]
async fn turning_off_ends_everything() {
    let mut browser = Browser::logged_in().await;
    let link = browser.dashboard.make_setup_link(&SetUpDashboard::default()).unwrap();
    browser.dashboard.turn_off().unwrap();
    assert_eq!(browser.get("/").await.status, 404);
    assert_eq!(browser.get(&link).await.status, 404);
    assert!(!browser.dashboard.is_on() && browser.dashboard.session_count() == 0);
}

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let mut browser = Browser::logged_in().await;
    for (path, status) in
        [("/", 200), ("/datasets", 200), ("/assets/live.js", 200), ("/none", 404), ("/%ff", 400)]
    {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(!answer.body.contains("style=\"") && !answer.body.contains("onclick"), "{path}");
    }
}

#[tokio::test]
async fn paths_outside_the_assets_are_not_files() {
    let mut browser = Browser::logged_in().await;
    for path in [
        "/assets/../Cargo.toml",
        "/assets/..%2f..%2fetc%2fpasswd",
        "/assets/%2e%2e/%2e%2e/etc/passwd",
        "/assets//etc/passwd",
        "/assets/style.css%00",
        "/assets/",
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.body.contains("root:"), "{path}");
    }
    assert_eq!(browser.other().get("/assets/style.css").await.status, 200);
}

#[tokio::test]
async fn large_forms_are_refused() {
    let mut browser = Browser::logged_in().await;
    let form = format!("csrf={}", "x".repeat(100_000));
    assert_eq!(browser.post("/do/scrub", &form).await.status, 400 + 13);
}
