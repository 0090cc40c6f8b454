//! Pages as people open them: in a browser without a window, on a screen as wide as a phone's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::poolhouse::{arg, good};

/// Browsers that may be installed, all of one family.
const BROWSERS: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"];

/// Measures the page once it is shown, and leaves what it found in the page's own text.
const PROBE: &str = r#"<script>
const errors = []; window.onerror = (what) => { errors.push(String(what)); };
window.addEventListener("load", () => {
  const boxes = [...document.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
  const texts = [...document.querySelectorAll("svg text")];
  const outside = texts.filter(text => {
    const box = text.getBoundingClientRect(), frame = text.closest("svg").getBoundingClientRect();
    return box.left < frame.left - 2 || box.right > frame.right + 2;
  });
  const small = texts.filter(text => text.getBoundingClientRect().height < 8);
  const found = {
    pictures: boxes.filter(box => box.width > 200 && box.height > 40).length,
    marks: document.querySelectorAll("svg rect, svg circle, svg path").length,
    outside: outside.map(text => text.textContent), small: small.length,
    wide: document.documentElement.scrollWidth, screen: window.innerWidth,
    title: document.title, text: document.body.innerText.length, errors,
  };
  const place = document.createElement("pre");
  place.id = "found"; place.textContent = JSON.stringify(found); document.body.append(place);
});
</script>"#;

fn browser() -> Option<&'static str> {
    let found = BROWSERS.into_iter().find(|name| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    if found.is_none() {
        eprintln!("left out: no browser is installed (Debian: chromium-headless-shell)");
    }
    found
}

/// Opens a page and says what is seen of it.
fn seen(browser: &str, page: &Path) -> Value {
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(!html.contains("<script"), "the page itself has no script");
    let probed = page.with_extension("probed.html");
    std::fs::write(&probed, html.replace("</head>", &format!("{PROBE}</head>"))).expect("a file");
    let profile = fixtures::scratch(&format!("browser-{}", std::process::id()));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--disable-dev-shm-usage", "--window-size=390,844", "--virtual-time-budget=5000"])
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", probed.display()))
        .output()
        .expect("the browser starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("CONSOLE"), "the page makes the browser complain: {said}");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = dom.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let found = found.unwrap_or_else(|| panic!("the page was not shown: {said}\n{dom}"));
    let text = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).expect("JSON")
}

fn check(browser: &str, page: &Path, pictures: u64) {
    let found = seen(browser, page);
    let number = |name: &str| found[name].as_u64().unwrap_or_default();
    assert_eq!(number("pictures"), pictures, "{found}");
    assert!(number("marks") > 10 && number("text") > 200, "{found}");
    assert_eq!(found["errors"].as_array().map(Vec::len), Some(0), "{found}");
    assert_eq!(
        found["outside"].as_array().map(Vec::len),
        Some(0),
        "words leave a picture: {found}"
    );
    assert_eq!(number("small"), 0, "words can be read: {found}");
    assert!(number("wide") <= number("screen"), "nothing is wider than a phone: {found}");
}

fn scratch(name: &str) -> PathBuf {
    fixtures::scratch(&format!("browser-{name}"))
}

#[test]
fn a_plan_is_shown() {
    let Some(browser) = browser() else { return };
    let page = scratch("plan").join("plan.html");
    good(&["plan", "--drives", "6x4TB,2x8TB", "--for", "balance", "--html", arg(&page)]);
    // where bytes go, room against safety, three parities at three sectors
    check(browser, &page, 2 + 9);
}

#[test]
fn results_are_shown() {
    let Some(browser) = browser() else { return };
    let dir = scratch("bench");
    let results = ["raidz2-6", "mirror"].map(|name| dir.join(format!("{name}.json")));
    for result in &results {
        let words = ["--seconds", "0.02", "--size", "4M", "--files", "40", "--runs", "2", "-q"];
        good(&[&["bench", "path", arg(&dir), "-o", arg(result)], &words[..]].concat());
    }
    let one = dir.join("one.html");
    good(&["bench", "report", arg(&results[0]), "-o", arg(&one)]);
    // sequential, random reads, random writes, small files
    check(browser, &one, 4);
    let both = dir.join("both.html");
    let drives = ["a", "b"].map(|name| dir.join(name));
    for drive in &drives {
        std::fs::write(drive, vec![7; 8 << 20]).expect("a file");
    }
    let disk = dir.join("disk.json");
    let words = ["--seconds", "0.02", "--runs", "2", "--zones", "3", "-q", "-o", arg(&disk)];
    good(&[&["bench", "disk", arg(&drives[0]), arg(&drives[1])], &words[..]].concat());
    good(&["bench", "report", arg(&results[0]), arg(&results[1]), "-o", arg(&both)]);
    check(browser, &both, 4 + 2 * 4);
    good(&["bench", "report", arg(&disk), "-o", arg(&both)]);
    // sequential, random reads, zones
    check(browser, &both, 3);
}
