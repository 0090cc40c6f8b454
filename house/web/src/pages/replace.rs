//! The guide to replace a device: find it, take it offline, choose the new drive, and watch the resilver.
//!
//! The guide has no state of its own. Each step shows whether it is done from the state of the pool and the drives,
//! so that the guide can be left and opened again at any time.

use api::{Drive, Overview, Role};
use engine::pool::{PoolStatus, ScanKind, VdevStatus};
use health::Grade;
use maud::{Markup, html};

use super::drives::summary;
use super::format::drive_size;
use super::pool::find_drive;
use super::pools::scan;
use super::{
    Page, action_form, bays, csrf_field, do_path, drive_path, frame, grade_class, pool_path,
    state_class,
};
use crate::dashboard::Visit;

/// The device that is replaced.
struct Target<'a> {
    pool: &'a PoolStatus,
    device: &'a str,
    vdev: &'a VdevStatus,
    /// The drive, if it is known.
    drive: Option<&'a Drive>,
    /// Whether a replacement of it runs.
    is_replacing: bool,
}

/// The page of the guide.
pub(crate) fn replace(
    pool: &PoolStatus,
    device: &str,
    overview: &Overview,
    now: u64,
    visit: &Visit,
) -> Page {
    let drives = &overview.drives.drives;
    let found = find_vdev(pool, device);
    let body = match found {
        None => is_gone(pool, device, now),
        Some((vdev, is_replacing)) => {
            let drive = find_drive(drives, &pool.name, device);
            let target = Target { pool, device, vdev, drive, is_replacing };
            steps(&target, overview, now, visit)
        }
    };
    frame(&format!("poolhouse: replace {device}"), "/", visit, &body)
}

/// A leaf of a pool, and whether it is being replaced.
fn find_vdev<'a>(pool: &'a PoolStatus, device: &str) -> Option<(&'a VdevStatus, bool)> {
    fn search<'a>(
        vdev: &'a VdevStatus,
        device: &str,
        is_replacing: bool,
    ) -> Option<(&'a VdevStatus, bool)> {
        if vdev.name == device && vdev.children.is_empty() {
            return Some((vdev, is_replacing));
        }
        let is_replacing = vdev.name.starts_with("replacing");
        vdev.children.iter().find_map(|child| search(child, device, is_replacing))
    }
    pool.vdevs.iter().find_map(|vdev| search(vdev, device, false))
}

fn is_gone(pool: &PoolStatus, device: &str, now: u64) -> Markup {
    html! {
        section id="guide" class="card" data-live {
            h1 { (device) " is no part of pool " (pool.name) }
            p { "If you replaced it, that is done, and you can take the old drive out." }
            p { "Scan: " (scan(pool.scan.as_ref(), now)) }
            a class="button" href=(pool_path(&pool.name)) { "To the pool" }
        }
    }
}

fn steps(target: &Target<'_>, overview: &Overview, now: u64, visit: &Visit) -> Markup {
    let (pool, device) = (target.pool, target.device);
    html! {
        section id="state" class={ "verdict " (verdict_class(target)) } data-live {
            h1 { "Replace " (device) " of pool " (pool.name) }
            p {
                "It is " (target.vdev.state) ", with " (target.vdev.read_errors) " read, "
                (target.vdev.write_errors) " write and " (target.vdev.checksum_errors) " checksum errors. "
                @if let Some(drive) = target.drive { (drive.verdict.sentence) }
            }
        }
        ol class="steps" {
            li id="step-find" class="card" { (find_step(target, overview, visit)) }
            li id="step-offline" class="card" data-live { (offline_step(target, visit)) }
            li id="step-new" class="card" { (new_step(target, &overview.drives.drives, visit)) }
            li id="step-watch" class="card" data-live { (watch_step(target, now)) }
        }
    }
}

/// The class of the worse of both: the state in the pool, and the health of the drive.
fn verdict_class(target: &Target<'_>) -> &'static str {
    let grade = target.drive.map_or(Grade::Ok, |drive| drive.verdict.grade);
    if target.vdev.state == "ONLINE" && matches!(grade, Grade::Watch | Grade::Failing) {
        return grade_class(grade);
    }
    state_class(&target.vdev.state)
}

fn find_step(target: &Target<'_>, overview: &Overview, visit: &Visit) -> Markup {
    html! {
        h2 { "Find the drive" }
        @if let Some(drive) = target.drive {
            p {
                (drive.kind) " " (drive.name) ", serial " strong { (drive.serial.as_deref().unwrap_or("unknown")) } ", "
                @if let Some(bay) = &drive.bay { "in bay " strong { (bay) } }
                @else { "in a bay that the map does not know" }
                ". " a href=(drive_path(drive.id())) { "Its page" }
            }
            @if visit.role >= Role::Operate {
                form method="post" action="/do/locate" {
                    (csrf_field(visit))
                    input type="hidden" name="drive" value=(drive.id());
                    input type="hidden" name="pool" value=(target.pool.name);
                    input type="hidden" name="guide" value=(target.device);
                    button { "Let its light blink" }
                    span class="hint" { code { "poolhouse drives locate " (drive.id()) } ", for a minute" }
                }
            }
            @if !overview.drives.bays.is_empty() { (bays::map(&overview.drives, Some(drive.id()))) }
        } @else {
            p { "The daemon does not see this device any more. Compare the serial numbers of the others on the "
                a href="/" { "overview" } "." }
        }
    }
}

fn offline_step(target: &Target<'_>, visit: &Visit) -> Markup {
    let (pool, device) = (target.pool.name.as_str(), target.device);
    let fields = [("pool", pool), ("device", device), ("guide", device)];
    html! {
        h2 { "Take it offline" }
        @if target.vdev.state != "ONLINE" && target.vdev.state != "DEGRADED" {
            p { span class="badge ok" { "done" } " It is " (target.vdev.state) "." }
        } @else {
            p {
                "Do this if the new drive goes into the same bay. With a free bay leave the old drive in use: it helps "
                "to copy the data, and the redundancy stays meanwhile."
            }
            (super::action_link(visit, Role::Operate, &do_path("offline", &fields), "Take it offline…"))
        }
    }
}

fn new_step(target: &Target<'_>, drives: &[Drive], visit: &Visit) -> Markup {
    let (pool, device) = (target.pool.name.as_str(), target.device);
    let needed = target.vdev.physical_size;
    let free: Vec<_> = drives.iter().filter(|drive| drive.is_free()).collect();
    html! {
        h2 { "Choose the new drive" }
        @if target.is_replacing {
            p { span class="badge ok" { "done" } " The replacement runs." }
        } @else if visit.role < Role::Operate {
            p { "This needs the role operate." }
        } @else {
            (action_form("replace", &[("pool", pool), ("device", device), ("guide", device)], &html! {
                @if free.is_empty() {
                    p { "No drive without a pool is seen. Put the new one in, and load this page again; or type its path." }
                }
                @for (at, drive) in free.iter().enumerate() {
                    @let is_too_small = drive.size < needed;
                    label class="choice" {
                        input type="radio" name="new" value=(drive.path.display())
                            disabled[is_too_small] checked[at == 0 && !is_too_small];
                        span {
                            (summary(drive))
                            @if is_too_small { " " span class="hint" { "too small: " (drive_size(needed)) " are needed" } }
                        }
                    }
                }
                label for="path" { "Another path" }
                input id="path" name="path" autocomplete="off" autocapitalize="none" placeholder="/dev/disk/by-id/…";
                label class="check" { input type="checkbox" name="force" value="1"; " even if it holds data (-f)" }
                button { "Replace…" }
            }))
        }
    }
}

fn watch_step(target: &Target<'_>, now: u64) -> Markup {
    let resilver = target.pool.scan.as_ref().filter(|scan| scan.scan == ScanKind::Resilver);
    html! {
        h2 { "Wait for the resilver" }
        @if target.is_replacing {
            p class="big" { (scan(resilver, now)) }
            p { "Leave the old drive in until this is done. You can close this page." }
        } @else {
            p class="hint" { "The pool writes the data of the old drive to the new one, and stays in use." }
        }
    }
}
