//! The page of the user who is logged in: the password, and one-time codes.

use maud::{Markup, html};
use qrcode::{Color, QrCode};

use super::access::{complaint, new_password};
use super::{Page, csrf_field, frame};
use crate::dashboard::Visit;

/// The page of a user.
pub(crate) fn account(visit: &Visit, why: Option<&str>) -> Page {
    frame(
        &format!("poolhouse: {}", visit.user),
        "/account",
        visit,
        &html! {
            h1 { (visit.user) }
            p class="hint" { "You may " (visit.role.as_str()) "." }
            (complaint(why))
            div class="columns" {
                section class="card" {
                    h2 { "Password" }
                    form method="post" action="/account/password" {
                        (csrf_field(visit))
                        (new_password())
                        button { "Change it" }
                    }
                    p class="hint" { "Your sessions in other browsers end." }
                }
                section class="card" {
                    h2 { "One-time codes" }
                    @if visit.has_totp {
                        p { "A login needs a code of your app." }
                        form method="post" action="/account/totp-off" {
                            (csrf_field(visit))
                            label for="code" { "A code of the app" }
                            input id="code" name="code" required inputmode="numeric" autocomplete="one-time-code";
                            button class="quiet" { "Turn them off" }
                        }
                    } @else {
                        p { "A stolen password opens nothing when each login also needs a code of an app." }
                        p { a class="button" href="/account/totp" { "Turn them on" } }
                    }
                }
            }
        },
    )
}

/// The page that shows a new secret, and asks for a code of it.
pub(crate) fn totp(visit: &Visit, host: &str, secret: &str, why: Option<&str>) -> Page {
    let label = super::segment(&format!("{}@{host}", visit.user));
    let uri = format!("otpauth://totp/poolhouse:{label}?secret={secret}&issuer=poolhouse");
    frame(
        "poolhouse: one-time codes",
        "/account",
        visit,
        &html! {
            section class="card narrow" {
                h1 { "One-time codes" }
                p { "Scan this with an authenticator app, or type the secret into it." }
                (picture(&uri))
                p { code class="command" { (secret) } }
                (complaint(why))
                form method="post" action="/account/totp" {
                    (csrf_field(visit))
                    input type="hidden" name="secret" value=(secret);
                    label for="code" { "The code that the app shows" }
                    input id="code" name="code" required inputmode="numeric" autocomplete="one-time-code" autofocus;
                    button { "Turn them on" }
                    a class="button quiet" href="/account" { "Cancel" }
                }
            }
        },
    )
}

/// A text as a QR code. It is dark on light in the dark look, too: scanners need that.
fn picture(text: &str) -> Markup {
    let Ok(code) = QrCode::new(text) else { return html! {} };
    let (width, colors) = (code.width(), code.to_colors());
    let dark = colors.iter().enumerate().filter(|(_, color)| **color == Color::Dark);
    let path: String =
        dark.map(|(at, _)| format!("M{} {}h1v1h-1z", at % width + 4, at / width + 4)).collect();
    let side = width + 8;
    html! {
        svg class="qr" viewBox={ "0 0 " (side) " " (side) } role="img" aria-label="QR code of the secret" {
            rect width=(side) height=(side) fill="#fff" {}
            path d=(path) fill="#000" {}
        }
    }
}
