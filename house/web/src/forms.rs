//! The contents of requests: the fields of a form, the session's cookie, and the origin of a
//! request.

use axum::http::{HeaderMap, HeaderValue, header};

/// The name of the session's cookie.
pub(crate) const COOKIE: &str = "poolhouse_session";

/// The fields of a form.
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads the body of a POST request.
    pub(crate) fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// The value of a field that must not be empty.
    pub(crate) fn required(&self, name: &str) -> Result<&str, String> {
        match self.field(name) {
            "" => Err(format!("The field {name} is empty.")),
            value => Ok(value),
        }
    }

    /// All values of a field.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs().filter(move |(field, _)| *field == name).map(|(_, value)| value)
    }

    /// All fields with their values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(field, value)| (field.as_str(), value.as_str()))
    }

    /// The value of a field; empty if it is missing.
    pub(crate) fn field(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// The value of the session's cookie.
pub(crate) fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// The header that sets the session's cookie. A session that began by TLS is not valid without.
pub(crate) fn set_cookie(value: &str, is_encrypted: bool) -> Option<HeaderValue> {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&cookie).ok()
}

/// The header that removes the session's cookie.
pub(crate) fn clear_cookie() -> Option<HeaderValue> {
    let cleared = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    HeaderValue::from_str(&cleared).ok()
}

/// Whether a browser sent a form from a page of another site. Other clients send neither header.
pub(crate) fn is_cross_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_foreign_fetch =
        text("sec-fetch-site").is_some_and(|it| !matches!(it, "same-origin" | "none"));
    let is_foreign_origin = text("origin").is_some_and(|origin| {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_none() || host != text("host")
    });
    is_foreign_fetch || is_foreign_origin
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::{Form, is_cross_site, session_cookie};

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        all.iter().map(pair).collect()
    }

    #[test]
    fn cookies_are_found_among_others() {
        let cookie = |line| session_cookie(&headers(&[("cookie", line)])).map(str::to_owned);
        assert_eq!(cookie("a=1; poolhouse_session=xy; b=2").as_deref(), Some("xy"));
        assert_eq!(cookie("not_poolhouse_session=xy"), None);
        assert_eq!(cookie("poolhouse_session2=xy"), None);
    }

    #[test]
    fn forms_of_other_sites_are_recognised() {
        let host = ("host", "nas:8080");
        assert!(!is_cross_site(&headers(&[host])));
        assert!(!is_cross_site(&headers(&[host, ("origin", "http://nas:8080")])));
        for origin in ["http://evil", "http://nas:8081", "null", "https://nas:8080.evil"] {
            assert!(is_cross_site(&headers(&[host, ("origin", origin)])), "{origin}");
        }
        assert!(is_cross_site(&headers(&[host, ("sec-fetch-site", "cross-site")])));
        assert!(is_cross_site(&headers(&[host, ("sec-fetch-site", "same-site")])));
        assert!(!is_cross_site(&headers(&[host, ("sec-fetch-site", "same-origin")])));
    }

    #[test]
    fn missing_fields_are_empty() {
        let form = Form::parse(b"csrf=a%20b&password=%C3%A4");
        assert_eq!((form.field("csrf"), form.field("password")), ("a b", "\u{e4}"));
        assert_eq!(form.field("stop"), "");
    }
}
