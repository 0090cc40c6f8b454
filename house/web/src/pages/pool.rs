//! A pool: its state, its scan, its devices with their actions, and its damaged files.

use api::{Drive, Overview, Role};
use engine::pool::{PoolStatus, ScanKind, VdevStatus};
use maud::{Markup, html};

use super::pools::{scan, space};
use super::{
    ACTIONS, Page, action_link, add_path, do_path, drive_path, frame, replace_path, state_class,
};
use crate::dashboard::Visit;

/// The page of a pool.
pub(crate) fn pool(pool: &PoolStatus, overview: &Overview, now: u64, visit: &Visit) -> Page {
    frame(
        &format!("poolhouse: pool {}", pool.name),
        "/",
        visit,
        &html! {
            section id="state" class={ "verdict " (state_class(&pool.state)) } data-live {
                h1 { "Pool " (pool.name) " is " (pool.state) }
                p {
                    @if let Some(why) = &pool.error { (why) }
                    @else if pool.state == "ONLINE" { "All devices work." }
                    @else { "See the devices below." }
                }
            }
            section id="facts" class="card" data-live {
                (space(pool))
                p { "Scan: " (scan(pool.scan.as_ref(), now)) }
                (scan_actions(pool, visit))
            }
            section id="devices" class="card" data-live {
                h2 { "Devices" }
                (device_table(pool, &overview.drives.drives, visit))
            }
            @if !pool.data_errors.is_empty() {
                section id="damage" class="card" data-live {
                    h2 { "Damaged files" }
                    p { "No copy and no parity could repair them. Restore them from a copy." }
                    ul { @for file in &pool.data_errors { li { (file) } } }
                }
            }
        },
    )
}

fn scan_actions(pool: &PoolStatus, visit: &Visit) -> Markup {
    let active = pool.scan.as_ref().filter(|scan| scan.is_active());
    let is_scrub = active.is_none_or(|scan| scan.scan != ScanKind::Resilver);
    let is_scanning = active.is_some_and(engine::pool::ScanStatus::is_scanning);
    let link = |mode: &str, label: &str| {
        let path = do_path("scrub", &[("pool", &pool.name), ("mode", mode)]);
        action_link(visit, Role::Operate, &path, label)
    };
    let pool_link = |action: &str, role: Role, label: &str| {
        action_link(visit, role, &do_path(action, &[("pool", &pool.name)]), label)
    };
    html! {
        div class="buttons" {
            @if is_scrub && !pool.is_unavailable() {
                @if is_scanning { (link("pause", "Pause…")) }
                @else if active.is_some() { (link("", "Continue the scrub…")) }
                @else { (link("", "Scrub…")) }
                @if active.is_some() { (link("stop", "Stop the scrub…")) }
            }
            (pool_link("clear", Role::Operate, "Clear errors…"))
            @if !pool.is_unavailable() {
                (action_link(visit, Role::Administer, &add_path(&pool.name), "Add drives…"))
            }
            @if !pool.is_unavailable() { (pool_link("export", Role::Administer, "Export…")) }
        }
    }
}

fn device_table(pool: &PoolStatus, drives: &[Drive], visit: &Visit) -> Markup {
    let table = Devices { pool, drives, visit };
    html! {
        div class="scroll" tabindex="0" { table {
            thead { tr { th { "Device" } th { "Bay" } th { "State" } th class="number" { "Read" }
                th class="number" { "Write" } th class="number" { "Cksum" } th { (ACTIONS) } } }
            tbody {
                @for vdev in &pool.vdevs { (table.rows(vdev, 0, vdev.class.as_deref())) }
                @for vdev in &pool.caches { (table.rows(vdev, 0, Some("cache"))) }
                @for vdev in &pool.spares { (table.rows(vdev, 0, Some("spare"))) }
            }
        } }
    }
}

struct Devices<'a> {
    pool: &'a PoolStatus,
    drives: &'a [Drive],
    visit: &'a Visit,
}

impl Devices<'_> {
    fn rows(&self, vdev: &VdevStatus, depth: usize, role: Option<&str>) -> Markup {
        let drive = find_drive(self.drives, &self.pool.name, &vdev.name);
        html! {
            tr {
                td class={ "depth" (depth.min(3)) } {
                    @if let Some(drive) = drive { a href=(drive_path(drive.id())) { (vdev.name) } } @else { (vdev.name) }
                    @if let Some(role) = role { " " span class="hint" { (role) } }
                    @if let Some(note) = &vdev.note { " " span class="hint" { (note) } }
                }
                td { @if let Some(bay) = drive.and_then(|drive| drive.bay.as_ref()) { (bay) } }
                td { span class={ "badge " (state_class(&vdev.state)) } { (vdev.state) } }
                td class="number" { (vdev.read_errors) }
                td class="number" { (vdev.write_errors) }
                td class="number" { (vdev.checksum_errors) }
                td class="actions" {
                    @if vdev.children.is_empty() && role.is_none() { (self.actions(vdev)) }
                    @if depth == 0 && is_removable(vdev) {
                        @let fields = [("pool", self.pool.name.as_str()), ("device", vdev.name.as_str())];
                        (action_link(self.visit, Role::Administer, &do_path("remove-vdev", &fields), "Remove…"))
                    }
                }
            }
            @for child in &vdev.children { (self.rows(child, depth + 1, None)) }
        }
    }

    fn actions(&self, vdev: &VdevStatus) -> Markup {
        let fields = [("pool", self.pool.name.as_str()), ("device", vdev.name.as_str())];
        let link = |action: &str, label: &str| {
            action_link(self.visit, Role::Operate, &do_path(action, &fields), label)
        };
        let guide = replace_path(&self.pool.name, &vdev.name);
        let errors = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors];
        html! {
            (action_link(self.visit, Role::Operate, &guide, "Replace…"))
            @if vdev.state == "ONLINE" { (link("offline", "Offline…")) } @else { (link("online", "Online…")) }
            @if errors.iter().any(|count| *count > 0) { (link("clear", "Clear…")) }
        }
    }
}

/// Whether the kind of a top-level vdev can be removed from a pool at all; the daemon checks the rest.
fn is_removable(vdev: &VdevStatus) -> bool {
    let is_striped = vdev.name.starts_with("raidz") || vdev.name.starts_with("draid");
    !is_striped || vdev.class.as_deref() == Some("log")
}

/// The drive of a device of a pool.
pub(super) fn find_drive<'a>(drives: &'a [Drive], pool: &str, device: &str) -> Option<&'a Drive> {
    drives.iter().find(|drive| {
        drive.place.as_ref().is_some_and(|place| place.pool == pool && place.device == device)
    })
}
