//! docs/api.md, generated from the daemon's description of its API.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

const DOCUMENT: &str = "../../docs/api.md";
const INTRODUCTION: &str = "# The API

Every command of `poolhouse` is a call of this API, on the daemon's Unix socket (`socket` in its state folder). With
`poolhouse config set web.listen ADDRESS:PORT` the same calls are answered over HTTP, on other addresses than loopback
over HTTPS, with a token as `Authorization: Bearer TOKEN`: that of the file `token` in the state folder has all rights,
that of `token-operate` makes those of *all users* that change nothing, and those of *operate*, that of `token-look`
the former only. `GET /api/v1/openapi.json` describes each field.

```text
curl --unix-socket STATE/socket http://localhost/api/v1/pools
```

An answer is `{\"value\": ..., \"warnings\": [...]}`; a refusal has a status of 400 or more, and is
`{\"error\": SENTENCE, \"status\": EXIT STATUS OF THE COMMAND}`. *All users*: every local user may make the call, as with
OpenZFS. *Owner*: root, and the user of the daemon. *Operate*: the owner, and clients with `token-operate`. A test makes this page
(`UPDATE_DOCS=1 cargo test -p poolhouse --test it api`).
";

/// The calls as a table, sorted by path.
fn page(description: &Value) -> String {
    let mut page = format!("{INTRODUCTION}\n| call | by | does |\n| --- | --- | --- |\n");
    for (path, methods) in description["paths"].as_object().expect("paths") {
        for (method, call) in methods.as_object().expect("methods") {
            let by = match (&call["x-operates"], &call["x-owner-only"]) {
                (Value::Bool(true), _) => "operate",
                (_, Value::Bool(true)) => "owner",
                _ => "all users",
            };
            let summary = call["summary"].as_str().unwrap_or_default();
            let first = summary.split("\n\n").next().unwrap_or_default().replace('\n', " ");
            let method = method.to_uppercase();
            writeln!(page, "| `{method} {path}` | {by} | {first} |").expect("a string");
        }
    }
    page
}

/// Compares docs/api.md with a description, or writes it.
pub(crate) fn check(description: &Value) {
    let (path, new) = (Path::new(DOCUMENT), page(description));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &new).expect("docs/api.md is written");
    }
    let old = std::fs::read_to_string(path).unwrap_or_default();
    let hint = "UPDATE_DOCS=1 cargo test -p poolhouse --test it api";
    assert!(old == new, "docs/api.md is not up to date: {hint}");
}
