//! The pools: state, space, errors, scans, and their vdevs.

use api::Overview;
use engine::pool::{PoolStatus, ScanKind, ScanStatus, VdevStatus};
use maud::{Markup, html};
use units::human_bytes;

use super::format::{ago, percent, span};
use super::{segment, state_class};

pub(super) fn pools(overview: &Overview, now: u64) -> Markup {
    html! {
        h2 { "Pools" }
        @if overview.pools.is_empty() {
            p class="hint" { "None is imported. Look for some: " code { "poolhouse zpool import" } }
        }
        @for pool in &overview.pools { (pool_card(&pool.status, now)) }
    }
}

fn pool_card(pool: &PoolStatus, now: u64) -> Markup {
    let free = pool.size - pool.allocated.min(pool.size);
    let used = percent(pool.allocated, pool.size);
    let errors = error_counts(pool);
    html! {
        article class="pool" {
            div class="row" {
                h3 {
                    (pool.name) " "
                    span class={ "badge " (state_class(&pool.state)) } { (pool.state) }
                }
                @if !pool.is_unavailable() { (scrub_button(pool)) }
            }
            @if let Some(why) = &pool.error { p class="complaint" { (why) } }
            @if !pool.is_unavailable() {
                dl class="facts" {
                    div { dt { "Used" } dd {
                        meter max="100" high="80" value=(used) { (used) " %" }
                        " " (human_bytes(pool.allocated)) " of " (human_bytes(pool.size)) " (" (used) " %), "
                        (human_bytes(free)) " free"
                    } }
                    div { dt { "Errors" } dd { (errors.0) " read, " (errors.1) " write, " (errors.2) " checksum" } }
                    div { dt { "Scan" } dd { (scan(pool.scan.as_ref(), now)) } }
                }
                (vdev_details(pool))
            }
        }
    }
}

/// The link to the page that confirms a scrub. Links only open pages; forms change something.
fn scrub_button(pool: &PoolStatus) -> Markup {
    let scrubs = pool.scan.as_ref().filter(|scan| scan.state == "scanning");
    let path = format!("/pools/{}/scrub", segment(&pool.name));
    html! {
        @match scrubs.map(|scan| scan.scan) {
            None => a class="button" href=(path) { "Scrub…" },
            Some(ScanKind::Scrub | ScanKind::ErrorScrub) => a class="button" href={ (path) "?stop=1" } { "Stop the scrub…" },
            Some(_) => {}
        }
    }
}

fn scan(scan: Option<&ScanStatus>, now: u64) -> Markup {
    let Some(scan) = scan else { return html! { "none requested" } };
    let kind = match scan.scan {
        ScanKind::Resilver => "resilver",
        ScanKind::Scrub => "scrub",
        ScanKind::ErrorScrub => "error scrub",
    };
    html! {
        @if scan.state == "scanning" {
            @let done = percent(scan.scanned, scan.total);
            (kind) " " progress max="100" value=(done) { (done) " %" } " " (done) " %"
            @if let Some(left) = time_left(scan, now) { ", " (span(left)) " left" }
        } @else if scan.state == "paused" {
            (kind) " paused at " (percent(scan.scanned, scan.total)) " %"
        } @else {
            (kind) " " (scan.state) " " (ago(scan.ended, now))
        }
        @if scan.errors > 0 { ", " strong { (scan.errors) " damaged blocks" } }
        @else if scan.written > 0 { ", " (human_bytes(scan.written)) " repaired" }
    }
}

/// The seconds that a scan still takes at its speed so far.
fn time_left(scan: &ScanStatus, now: u64) -> Option<u64> {
    let elapsed = now.checked_sub(scan.started).filter(|elapsed| *elapsed > 0)?;
    let left = u128::from(scan.total.checked_sub(scan.scanned)?) * u128::from(elapsed);
    u64::try_from(left.checked_div(u128::from(scan.scanned))?).ok()
}

fn vdev_details(pool: &PoolStatus) -> Markup {
    html! {
        details id={ "vdevs-" (pool.guid) } {
            summary { "Devices" }
            div class="scroll" { table {
                thead { tr { th { "Device" } th { "State" } th class="number" { "Read" }
                    th class="number" { "Write" } th class="number" { "Cksum" } } }
                tbody {
                    @for vdev in &pool.vdevs { (vdev_rows(vdev, 0, vdev.class.as_deref())) }
                    @for vdev in &pool.caches { (vdev_rows(vdev, 0, Some("cache"))) }
                    @for vdev in &pool.spares { (vdev_rows(vdev, 0, Some("spare"))) }
                }
            } }
        }
    }
}

fn vdev_rows(vdev: &VdevStatus, depth: usize, role: Option<&str>) -> Markup {
    html! {
        tr {
            td class={ "depth" (depth.min(3)) } {
                (vdev.name)
                @if let Some(role) = role { " " span class="hint" { (role) } }
            }
            td { span class={ "badge " (state_class(&vdev.state)) } { (vdev.state) } }
            td class="number" { (vdev.read_errors) }
            td class="number" { (vdev.write_errors) }
            td class="number" { (vdev.checksum_errors) }
        }
        @for child in &vdev.children { (vdev_rows(child, depth + 1, None)) }
    }
}

/// The read, write and checksum errors of all devices.
fn error_counts(pool: &PoolStatus) -> (u128, u128, u128) {
    fn add(vdev: &VdevStatus, sum: &mut (u128, u128, u128)) {
        sum.0 += u128::from(vdev.read_errors);
        sum.1 += u128::from(vdev.write_errors);
        sum.2 += u128::from(vdev.checksum_errors);
        vdev.children.iter().for_each(|child| add(child, sum));
    }
    let mut sum = (0, 0, 0);
    pool.vdevs.iter().chain(&pool.caches).for_each(|vdev| add(vdev, &mut sum));
    sum
}
