//! A drive: verdict, findings, burn-in, history, attributes.

use api::{BurnInReport, BurnInState, Drive, DriveDetails, Role};
use health::{PassSpeed, Sample};
use maud::{Markup, html};

use super::drives::temperature;
use super::format::{ago, drive_size, local, or_dash, percent, span};
use super::{Page, action_link, csrf_field, do_path, frame, grade_class, replace_path};
use crate::dashboard::Visit;

/// The samples of the curve, at most.
const POINTS: usize = 200;
/// The size of the curve in its own units.
const CURVE: (f64, f64) = (600.0, 80.0);

/// The page of a drive.
pub(crate) fn drive(details: &DriveDetails, now: u64, visit: &Visit) -> Page {
    let DriveDetails { drive, samples, burn_in } = details;
    let grade = drive.verdict.grade;
    frame(
        &format!("poolhouse: {}", drive.name),
        "/",
        visit,
        &html! {
            section class={ "verdict " (grade_class(grade)) } {
                h1 { (drive.kind) " " (drive.name) @if let Some(bay) = &drive.bay { " in bay " (bay) } }
                p { (drive.verdict.sentence) }
            }
            div class="columns" {
                div {
                    section class="card" { (facts(drive, now)) (buttons(drive, visit)) }
                    section class="card" { (findings(drive, visit)) }
                    @if let Some(report) = burn_in { section class="card" { (burn_in_card(report)) } }
                }
                div {
                    section class="card" { (curve(samples)) }
                    section class="card" { (attributes(drive)) }
                }
            }
        },
    )
}

fn facts(drive: &Drive, now: u64) -> Markup {
    let test = drive.self_test.as_ref().map(|test| format!("{}: {}", test.kind, test.result));
    html! {
        h2 { "Facts" }
        dl class="facts" {
            div { dt { "Model" } dd { (or_dash(drive.model.as_ref())) } }
            div { dt { "Serial" } dd { (or_dash(drive.serial.as_ref())) } }
            div { dt { "WWN" } dd { (or_dash(drive.wwn.as_ref())) } }
            div { dt { "Firmware" } dd { (or_dash(drive.firmware.as_ref())) } }
            div { dt { "Size" } dd { (drive_size(drive.size)) } }
            div { dt { "Temperature" } dd { (temperature(drive)) } }
            div { dt { "Hours" } dd { (or_dash(drive.power_on_hours)) } }
            @if let Some(place) = &drive.place {
                div { dt { "Pool" } dd { (place.pool) "/" (place.vdev) ", " (place.state) } }
                div { dt { "Pool errors" } dd {
                    (place.read_errors) " read, " (place.write_errors) " write, " (place.checksum_errors) " checksum"
                } }
            }
            div { dt { "Self-test" } dd { (or_dash(test)) } }
            div { dt { "Read" } dd { (or_dash(drive.read_at.map(|time| ago(time, now)))) } }
        }
    }
}

/// The buttons: find the drive in the case, test it, replace it.
fn buttons(drive: &Drive, visit: &Visit) -> Markup {
    let test = |kind: &str, label: &str| {
        let path = do_path("self-test", &[("drive", drive.id()), ("kind", kind)]);
        action_link(visit, Role::Operate, &path, label)
    };
    html! {
        @if visit.role >= Role::Operate {
            form method="post" action="/do/locate" {
                (csrf_field(visit))
                input type="hidden" name="drive" value=(drive.id());
                button { "Let its light blink" }
                p class="hint" {
                    "For a minute; it wakes the drive. The command is "
                    code { "poolhouse drives locate " (drive.id()) } "."
                }
            }
            div class="buttons" {
                @if let Some(place) = &drive.place {
                    (action_link(visit, Role::Operate, &replace_path(&place.pool, &place.device), "Replace…"))
                }
                (test("short", "Short self-test…"))
                (test("long", "Long self-test…"))
                @if drive.is_free() {
                    (action_link(visit, Role::Administer, &do_path("burn-in", &[("drive", drive.id())]), "Burn-in…"))
                }
            }
        }
    }
}

fn findings(drive: &Drive, visit: &Visit) -> Markup {
    let findings = &drive.verdict.findings;
    html! {
        h2 { "Findings" }
        @if findings.is_empty() { p class="hint" { "None." } }
        ul class="alerts" {
            @for finding in findings {
                li {
                    @if finding.is_noted { span class="badge unknown" { "noted" } }
                    @else { span class={ "badge " (grade_class(finding.grade)) } { (finding.grade.as_str()) } }
                    " " (finding.sentence) " " (finding.action)
                }
            }
        }
        @if findings.iter().any(|finding| !finding.is_noted) {
            (action_link(visit, Role::Operate, &do_path("note", &[("drive", drive.id())]), "I know, note it…"))
        }
    }
}

/// The newest burn-in: its verdict, its progress and its speeds.
fn burn_in_card(report: &BurnInReport) -> Markup {
    let results = &report.results;
    let grade = report.verdict.grade;
    let done = percent(results.bytes_done(), 2 * results.pass_length());
    html! {
        h2 { "Burn-in" }
        p { span class={ "badge " (grade_class(grade)) } { (grade.as_str()) } " " (report.verdict.sentence) }
        @match report.state {
            BurnInState::Running => p {
                progress max="100" value=(done) aria-label="Progress of the burn-in" { (done) " %" } " " (done) " %"
                @if let Some(left) = report.seconds_left() { ", " (span(left)) " left" }
            }
            BurnInState::Stopped => p {
                "It stopped at " (done) " %. " @if let Some(note) = &report.note { (note) }
            }
            BurnInState::Done => p class="hint" {
                "Started " (local(report.started)) @if let Some(end) = report.finished { ", ended " (local(end)) } "."
            }
        }
        @for (name, pass) in [("Written", &results.write), ("Read", &results.read)] {
            @if let Some(speed) = pass.bytes_per_second() {
                p class="hint" {
                    (name) ": " (drive_size(pass.bytes)) " at " (drive_size(speed)) "/s. Along the drive, in MB/s: "
                    (zones(pass))
                }
            }
        }
    }
}

/// The speeds along the drive's length.
fn zones(pass: &PassSpeed) -> String {
    let speeds = pass.zone_speeds().into_iter();
    let speeds = speeds.map(|speed| or_dash(speed.map(|speed| speed / 1_000_000)));
    speeds.collect::<Vec<_>>().join(" ")
}

fn attributes(drive: &Drive) -> Markup {
    html! {
        h2 { "Attributes" }
        @if drive.attributes.is_empty() { p class="hint" { "The drive reports none." } } @else {
            div class="scroll" tabindex="0" { table class="dense" {
                thead { tr {
                    th class="number" { "ID" } th { "Name" } th class="number" { "Value" }
                    th class="number" { "Worst" } th class="number" { "Thresh" } th { "Raw" }
                } }
                tbody {
                    @for attribute in &drive.attributes {
                        tr {
                            td class="number" { (attribute.id) }
                            td { (attribute.name) @if attribute.is_failing { " " span class="badge failing" { "failing" } } }
                            td class="number" { (attribute.value) }
                            td class="number" { (attribute.worst) }
                            td class="number" { (attribute.threshold) }
                            td { (attribute.raw) }
                        }
                    }
                }
            } }
        }
    }
}

/// The curve of temperatures.
fn curve(samples: &[Sample]) -> Markup {
    let skipped = samples.len() - samples.len().min(POINTS);
    let points = samples.iter().skip(skipped);
    let points: Vec<_> = points.filter_map(|it| Some((it.time, it.temperature?))).collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return html! { h2 { "Temperature" } p class="hint" { "No temperature is known yet." } };
    };
    let celsius = points.iter().map(|(_, celsius)| *celsius);
    let (low, high) = (celsius.clone().min().unwrap_or(0), celsius.max().unwrap_or(0));
    html! {
        h2 { "Temperature" }
        @if points.len() > 1 {
            svg class="curve" viewBox={ "0 0 " (CURVE.0) " " (CURVE.1) } role="img"
                aria-label={ "Temperature from " (low) " to " (high) " °C" } preserveAspectRatio="none" {
                polyline points=(polyline(&points, low, high)) fill="none" stroke="currentColor"
                    stroke-width="1.5" vector-effect="non-scaling-stroke" {}
            }
        }
        p class="hint" {
            @if low == high { (low) " °C" } @else { (low) " to " (high) " °C" }
            ", " (local(first.0)) @if first.0 != last.0 { " to " (local(last.0)) }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a pixel is enough")]
fn polyline(points: &[(u64, i64)], low: i64, high: i64) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let (width, height) = ((last.0 - first.0).max(1) as f64, (high - low).max(1) as f64);
    let point = |(time, celsius): &(u64, i64)| {
        let x = (time - first.0) as f64 / width * CURVE.0;
        let y = CURVE.1 - (celsius - low) as f64 / height * (CURVE.1 - 4.0) - 2.0;
        format!("{x:.1},{y:.1}")
    };
    points.iter().map(point).collect::<Vec<_>>().join(" ")
}
