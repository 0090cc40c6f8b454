//! The users of the dashboard and of shares.

use api::{DashboardUser, Role, ShareUser};
use maud::{Markup, html};

use super::{ACTIONS, Page, action_form, action_link, aged, csrf_field, do_path, frame};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The page of users.
pub(crate) fn users(
    dashboard: &Shown<Vec<DashboardUser>>,
    shares: &Shown<Vec<ShareUser>>,
    visit: &Visit,
) -> Page {
    frame(
        "poolhouse: users",
        "/users",
        visit,
        &html! {
            h1 { "Users" }
            (aged(dashboard.age.or(shares.age)))
            div class="columns" {
                div {
                    section class="card" {
                        h2 { "Of this dashboard" }
                        div class="scroll" tabindex="0" { table {
                            thead { tr {
                                th { "Name" } th { "May" } th { "One-time codes" } th class="number" { "Sessions" }
                                th { (ACTIONS) }
                            } }
                            tbody { @for user in &dashboard.value { (dashboard_row(user, visit)) } }
                        } }
                    }
                    section class="card" { (invitation()) }
                }
                div {
                    section class="card" {
                        h2 { "Of shares" }
                        @if shares.value.is_empty() { p class="hint" { "None. SMB clients log in by such a user." } } @else {
                            div class="scroll" tabindex="0" { table {
                                thead { tr { th { "Name" } th { "Rights of the system user" } th { (ACTIONS) } } }
                                tbody { @for user in &shares.value { (share_row(user, visit)) } }
                            } }
                        }
                    }
                    section class="card" { (new_share_user(visit)) }
                }
            }
        },
    )
}

fn dashboard_row(user: &DashboardUser, visit: &Visit) -> Markup {
    html! {
        tr {
            td { (user.name) }
            td { (user.role.as_str()) }
            td { @if user.has_totp { "on" } @else { "off" } }
            td class="number" { (user.sessions) }
            td class="actions" {
                (action_link(visit, Role::Administer, &do_path("remove-user", &[("name", &user.name)]), "Remove…"))
            }
        }
    }
}

fn invitation() -> Markup {
    html! {
        h2 { "Invite a user, or reset a password" }
        (action_form("invite", &[], &html! {
            label for="invited" { "Name" }
            input id="invited" name="name" required autocomplete="off" autocapitalize="none";
            label for="role" { "May" }
            select id="role" name="role" {
                option value="look" { "look: see all pages" }
                option value="operate" { "operate: care for drives, scrubs and snapshots" }
                option value="administer" { "administer: do all of it" }
            }
            button { "Invite…" }
        }))
    }
}

fn share_row(user: &ShareUser, visit: &Visit) -> Markup {
    html! {
        tr {
            td { (user.name) }
            td { (user.system_user) }
            td class="actions" {
                (action_link(visit, Role::Administer, &do_path("remove-share-user", &[("name", &user.name)]), "Remove…"))
            }
        }
    }
}

/// A form that posts at once: a password must not be in an address.
fn new_share_user(visit: &Visit) -> Markup {
    html! {
        h2 { "New user of shares" }
        form method="post" action="/share-users" class="action" {
            (csrf_field(visit))
            label for="share-name" { "Name" }
            input id="share-name" name="name" required autocomplete="off" autocapitalize="none";
            label for="share-password" { "Password" }
            input id="share-password" type="password" name="password" required autocomplete="new-password";
            button { "Add" }
        }
        p class="hint" { "The command is " code { "poolhouse user add NAME" } ", which asks for the password." }
    }
}
