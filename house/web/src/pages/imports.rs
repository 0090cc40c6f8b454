//! Pools that can be imported: those on drives that no imported pool uses.

use api::{ImportablePool, Role};
use maud::{Markup, html};

use super::{ACTIONS, Page, action_link, aged, do_path, frame, state_class};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The page of pools that were found in a directory; empty: on the drives of this machine.
pub(crate) fn imports(dir: &str, found: &Shown<Vec<ImportablePool>>, visit: &Visit) -> Page {
    let option = if dir.is_empty() { String::new() } else { format!(" -d {dir}") };
    frame(
        "poolhouse: import pools",
        "/new-pool",
        visit,
        &html! {
            h1 { "Import pools" }
            (aged(found.age))
            p class="hint" { "The same list: " code { "poolhouse zpool import" (option) } }
            form method="get" action="/imports" class="action" {
                label for="dir" { "Look in a directory, for example with image files; empty: all drives" }
                input id="dir" name="dir" value=(dir) autocomplete="off" autocapitalize="none";
                button { "Look" }
            }
            section class="card" {
                @if found.value.is_empty() {
                    p class="hint" { "No drive has a pool that is not imported." }
                } @else {
                    div class="scroll" tabindex="0" { table {
                        thead { tr {
                            th { "Pool" } th { "Guid" } th { "Health" } th { "Last used" } th { "Devices" } th { (ACTIONS) }
                        } }
                        tbody { @for pool in &found.value { (row(dir, pool, visit)) } }
                    } }
                }
            }
        },
    )
}

fn row(dir: &str, pool: &ImportablePool, visit: &Visit) -> Markup {
    let guid = pool.guid.to_string();
    let is_exported = pool.state == "exported";
    let mut fields = vec![("pool", pool.name.as_str()), ("guid", guid.as_str())];
    if !dir.is_empty() {
        fields.push(("dir", dir));
    }
    if !is_exported {
        fields.push(("force", "1"));
    }
    let label = if is_exported { "Import…" } else { "Import by force…" };
    html! {
        tr {
            td { strong { (pool.name) } }
            td { (guid) }
            td { span class={ "badge " (state_class(&pool.health)) } { (pool.health) } }
            td {
                @if is_exported { "exported" } @else { "not exported" }
                @if let Some(host) = &pool.host { " by " (host) }
            }
            td {
                @for (depth, name, state) in &pool.vdevs {
                    @if *depth > 0 { div class={ "depth" (depth.min(&3)) } { (name) " " span class="hint" { (state) } } }
                }
                @if let Some(why) = &pool.reason { p class="complaint" { (why) } }
            }
            td class="actions" {
                @if pool.reason.is_none() || !is_exported {
                    (action_link(visit, Role::Administer, &do_path("import", &fields), label))
                }
            }
        }
    }
}
