//! The shares of all protocols, and the clients that are connected.

use api::{Protocol, Role, ShareClient, ShareState, ShareStatus};
use maud::{Markup, html};
use units::human_bytes;

use super::format::span;
use super::{ACTIONS, Page, action_form, action_link, aged, do_path, frame};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The page of shares.
pub(crate) fn shares(list: &Shown<ShareStatus>, datasets: &[String], visit: &Visit) -> Page {
    let ShareStatus { shares, notes } = &list.value;
    frame(
        "poolhouse: shares",
        "/shares",
        visit,
        &html! {
            h1 { "Shares" }
            (aged(list.age))
            section id="shares" class="card" data-live {
                @if shares.is_empty() { p class="hint" { "Nothing is shared." } } @else {
                    div class="scroll" tabindex="0" { table {
                        thead { tr {
                            th { "Protocol" } th { "Dataset" } th { "For clients" } th { "Connected" } th { (ACTIONS) }
                        } }
                        tbody { @for share in shares { (row(share, visit)) } }
                    } }
                }
                @for note in notes { p class="hint" { (note) } }
            }
            @if visit.role == Role::Administer { section class="card" { (new_share(datasets)) } }
        },
    )
}

fn row(share: &ShareState, visit: &Visit) -> Markup {
    let name = share.target.as_ref().or(share.path.as_ref());
    let (word, is_configured) = (share.protocol.as_str(), !share.source.starts_with("share"));
    html! {
        tr {
            td { (share.protocol) }
            td { (share.dataset) @if share.read_only { " " span class="badge unknown" { "read only" } } }
            td {
                @if let Some(name) = name { (name) }
                @if let Some(address) = &share.address {
                    br; span class="hint" { (address) @if let Some(port) = share.port { ":" (port) } }
                }
                @if let Some(why) = &share.problem { p class="complaint" { (why) } }
                span class="hint" { " " (share.source) }
            }
            td {
                @if share.clients.is_empty() { span class="hint" { "nobody" } }
                @for client in &share.clients { div { (client_line(client)) } }
            }
            td class="actions" {
                @if is_configured {
                    @let path = do_path("unshare", &[("protocol", word), ("name", &share.dataset)]);
                    (action_link(visit, Role::Administer, &path, "Remove…"))
                }
            }
        }
    }
}

fn client_line(client: &ShareClient) -> Markup {
    html! {
        (client.address)
        @if let Some(user) = &client.user { " " strong { (user) } }
        span class="hint" {
            @if let Some(seconds) = client.connected { ", for " (span(seconds)) }
            @if let (Some(read), Some(written)) = (client.read_bytes, client.written_bytes) {
                ", read " (human_bytes(read)) ", wrote " (human_bytes(written))
            }
        }
    }
}

fn new_share(datasets: &[String]) -> Markup {
    html! {
        h2 { "New share" }
        (action_form("share", &[], &html! {
            label for="protocol" { "Protocol" }
            select id="protocol" name="protocol" {
                @for protocol in Protocol::ALL {
                    option value=(protocol.as_str()) {
                        (protocol) @if protocol.shares_volumes() { " (volumes)" } @else { " (file systems)" }
                    }
                }
            }
            label for="dataset" { "File system or volume" }
            input id="dataset" name="dataset" required list="known" autocomplete="off" autocapitalize="none";
            datalist id="known" { @for name in datasets { option value=(name) {} } }
            label for="networks" { "Networks that may connect, for example 192.168.1.0/24; empty: this machine only" }
            input id="networks" name="networks" autocomplete="off";
            label for="users" { "Users (SMB), separated by commas" }
            input id="users" name="users" autocomplete="off" autocapitalize="none";
            label class="check" { input type="checkbox" name="read_only" value="1"; " clients may only read" }
            button { "Share…" }
        }))
    }
}
