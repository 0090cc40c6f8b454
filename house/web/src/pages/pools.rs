//! The pools: state, space, errors, scans, and their vdevs.

use api::{Overview, Role};
use engine::pool::{PoolStatus, ScanKind, ScanStatus, VdevStatus};
use maud::{Markup, html};
use units::human_bytes;

use super::format::{ago, percent, span};
use super::{action_link, do_path, pool_path, state_class};
use crate::dashboard::Visit;

pub(super) fn pools(overview: &Overview, now: u64, visit: &Visit) -> Markup {
    html! {
        h2 { "Pools" }
        @if overview.pools.is_empty() {
            p class="hint" {
                "None is imported. Look for some: " code { "poolhouse zpool import" }
                @if visit.role == Role::Administer {
                    ", or " a href="/imports" { "import one" } ", or make a " a href="/new-pool" { "new pool" }
                }
            }
        }
        @for pool in &overview.pools { (pool_card(&pool.status, now, visit)) }
    }
}

fn pool_card(pool: &PoolStatus, now: u64, visit: &Visit) -> Markup {
    let errors = error_counts(pool);
    html! {
        article class="pool" {
            div class="row" {
                h3 {
                    a href=(pool_path(&pool.name)) { (pool.name) } " "
                    span class={ "badge " (state_class(&pool.state)) } { (pool.state) }
                }
                @if !pool.is_unavailable() { (scrub_button(pool, visit)) }
            }
            @if let Some(why) = &pool.error { p class="complaint" { (why) } }
            @if !pool.is_unavailable() {
                (space(pool))
                dl class="facts" {
                    div { dt { "Errors" } dd { (errors.0) " read, " (errors.1) " write, " (errors.2) " checksum" } }
                    div { dt { "Scan" } dd { (scan(pool.scan.as_ref(), now)) } }
                }
            }
        }
    }
}

/// The space of a pool, as a bar and in words.
pub(super) fn space(pool: &PoolStatus) -> Markup {
    let free = pool.size - pool.allocated.min(pool.size);
    let used = percent(pool.allocated, pool.size);
    html! {
        div class="space" {
            meter max="100" high="80" value=(used) aria-label={ "Used space of " (pool.name) } { (used) " %" }
            span {
                (human_bytes(pool.allocated)) " of " (human_bytes(pool.size)) " (" (used) " %), "
                (human_bytes(free)) " free"
            }
        }
    }
}

/// The link to the question before a scrub.
fn scrub_button(pool: &PoolStatus, visit: &Visit) -> Markup {
    let scrubs = pool.scan.as_ref().filter(|scan| scan.is_scanning());
    let link = |mode: &str, label: &str| {
        let path = do_path("scrub", &[("pool", &pool.name), ("mode", mode)]);
        action_link(visit, Role::Operate, &path, label)
    };
    html! {
        @match scrubs.map(|scan| scan.scan) {
            None => (link("", "Scrub…")),
            Some(ScanKind::Scrub | ScanKind::ErrorScrub) => (link("stop", "Stop the scrub…")),
            Some(ScanKind::Resilver) => {}
        }
    }
}

pub(super) fn scan(scan: Option<&ScanStatus>, now: u64) -> Markup {
    let Some(scan) = scan else { return html! { "none requested" } };
    let kind = match scan.scan {
        ScanKind::Resilver => "resilver",
        ScanKind::Scrub => "scrub",
        ScanKind::ErrorScrub => "error scrub",
    };
    html! {
        @if scan.state == "scanning" {
            @let done = percent(scan.scanned, scan.total);
            (kind) " " progress max="100" value=(done) aria-label={ "Progress of the " (kind) } { (done) " %" } " " (done) " %"
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
