//! Access rules: sessions, forms of other sites, guessed passwords, setup links.

use std::sync::atomic::Ordering;

use crate::client::{Browser, PASSWORD};

/// Every path that a session can reach, and more.
const PATHS: [&str; 9] = [
    "/",
    "/live",
    "/drives/sda",
    "/drives/sda/note",
    "/pools/tank/scrub",
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
            let get = browser.get(path).await;
            let expected = if path == "/live" { 401 } else { 303 };
            assert_eq!(get.status, expected, "{path}");
            assert!(get.status == 401 || get.header("location") == "/login", "{path}");
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
    let csrf = browser.get("/").await.csrf().to_owned();
    let mut other = browser.other();
    other.post("/login", &format!("password={PASSWORD}")).await;
    let foreign = other.get("/").await.csrf().to_owned();
    assert_ne!(csrf, foreign);
    for wrong in ["", "csrf=", "csrf=x", &format!("csrf={foreign}")] {
        for path in ["/pools/tank/scrub", "/drives/sda/note", "/logout"] {
            assert_eq!(browser.post(path, wrong).await.status, 403, "{path} {wrong}");
        }
    }
    assert!(browser.daemon.done.lock().is_empty());
    let answer = browser.post("/pools/tank/scrub", &format!("csrf={csrf}")).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/"));
    let stop = browser.post("/pools/tank/scrub", &format!("csrf={csrf}&stop=1")).await;
    assert_eq!(stop.status, 303);
    browser.post("/drives/a%2Fb/note", &format!("csrf={csrf}")).await;
    let done = browser.daemon.done.lock().clone();
    assert_eq!(
        done,
        ["tank false: zpool scrub tank", "tank true: zpool scrub -s tank", "note a/b"]
    );
    // a GET of a change only opens the confirmation
    assert_eq!(browser.get(&format!("/logout?csrf={csrf}")).await.status, 404);
    assert_eq!(browser.request("PUT", "/", "").await.status, 405);
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let mut browser = Browser::logged_in().await;
    let csrf = browser.get("/").await.csrf().to_owned();
    for header in [("origin", "http://evil"), ("sec-fetch-site", "cross-site"), ("origin", "null")]
    {
        browser.headers = vec![header];
        let form = format!("csrf={csrf}&password={PASSWORD}");
        assert_eq!(browser.post("/pools/tank/scrub", &form).await.status, 403);
        assert_eq!(browser.post("/login", &form).await.status, 403);
    }
    browser.headers = vec![("origin", "http://nas:8080"), ("sec-fetch-site", "same-origin")];
    assert_eq!(browser.post("/pools/tank/scrub", &format!("csrf={csrf}")).await.status, 303);
}

#[tokio::test]
async fn login_gives_a_new_session_each_time() {
    let mut browser = Browser::logged_in().await;
    let planted = "f".repeat(64);
    let first = browser.cookie.replace(planted.clone()).unwrap();
    let answer = browser.post("/login", &format!("password={PASSWORD}")).await;
    assert_eq!(answer.status, 303);
    let cookie = answer.header("set-cookie");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let second = browser.cookie.clone().unwrap();
    assert!(second != planted && second != first);
    browser.cookie = Some(planted);
    assert_eq!(browser.get("/").await.status, 303);
    // the session that the browser had ends with another login
    browser.cookie = Some(second.clone());
    browser.post("/login", &format!("password={PASSWORD}")).await;
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
        assert_eq!(browser.post("/login", "password=wrong").await.status, 401);
    }
    // even the right one has to wait
    let right = format!("password={PASSWORD}");
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
    for hour in 1..12 {
        browser.daemon.clock.store(hour * 3600, Ordering::Relaxed);
        assert_eq!(browser.get("/live").await.status, 200);
    }
    browser.daemon.clock.store(12 * 3600, Ordering::Relaxed);
    assert_eq!(browser.get("/live").await.status, 401);
}

#[tokio::test]
async fn setup_link_works_once() {
    let mut browser = Browser::new();
    let link = browser.dashboard.make_setup_link().unwrap();
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
    let link = browser.dashboard.make_setup_link().unwrap();
    assert_eq!(other.post(&link, &form).await.status, 303);
    assert_eq!(browser.get("/").await.status, 303);
    let late = browser.dashboard.make_setup_link().unwrap();
    browser.daemon.clock.store(15 * 60, Ordering::Relaxed);
    assert_eq!(browser.post(&late, &form).await.status, 404);
}

#[tokio::test]
async fn turning_off_ends_everything() {
    let mut browser = Browser::logged_in().await;
    let link = browser.dashboard.make_setup_link().unwrap();
    browser.dashboard.turn_off().unwrap();
    assert_eq!(browser.get("/").await.status, 404);
    assert_eq!(browser.get(&link).await.status, 404);
    assert!(!browser.dashboard.is_on() && browser.dashboard.session_count() == 0);
}

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let mut browser = Browser::logged_in().await;
    for (path, status) in
        [("/", 200), ("/live", 200), ("/assets/live.js", 200), ("/none", 404), ("/%ff", 400)]
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
    assert_eq!(browser.post("/pools/tank/scrub", &form).await.status, 400 + 13);
}
