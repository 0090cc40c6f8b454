//! The results of the bench lab: a list, of which some are put side by side.

use api::{Benchmark, BenchmarkList};
use maud::{Markup, html};

use super::{Page, aged, frame};
use crate::answers::Shown;
use crate::dashboard::Visit;

/// The findings that the list shows of a result; the report has all.
const SHOWN_FINDINGS: usize = 2;

/// The page of results.
pub(crate) fn benchmarks(list: &Shown<BenchmarkList>, visit: &Visit) -> Page {
    let BenchmarkList { folder, results } = &list.value;
    frame(
        "poolhouse: benchmarks",
        "/benchmarks",
        visit,
        &html! {
            h1 { "Benchmarks" }
            (aged(list.age))
            section class="card" {
                @if results.is_empty() {
                    p { "There is no result yet. A measurement is made by a command, and takes minutes:" }
                    p { code class="command" {
                        "mkdir -p " (folder.display()) " && poolhouse bench path /tank -o " (folder.display()) "/tank.json"
                    } }
                    p class="hint" {
                        code { "poolhouse bench --help" } " has those of drives, arrays, the network and ways to copy."
                    }
                } @else { (table(results)) }
            }
        },
    )
}

fn table(results: &[Benchmark]) -> Markup {
    html! {
        form method="get" action="/benchmarks/report" {
            div class="scroll" tabindex="0" { table {
                thead { tr {
                    th { span class="unseen" { "Chosen" } } th { "Result" } th { "Subject" } th { "Began" } th { "Figures" }
                    th { "Findings" }
                } }
                tbody { @for result in results { (row(result)) } }
            } }
            button { "Show the chosen ones side by side" }
        }
        p class="hint" { "The command is " code { "poolhouse bench report FILE... -o PAGE.html" } "." }
    }
}

fn row(result: &Benchmark) -> Markup {
    let Benchmark { file, kind, label, subject, started, .. } = result;
    html! {
        tr {
            @if let Some(why) = &result.problem {
                td {} td { (file) } td colspan="4" class="hint" { (why) }
            } @else {
                td { input type="checkbox" name="file" value=(file) aria-label={ "Choose " (file) }; }
                td {
                    a href={ "/benchmarks/report?file=" (super::segment(file)) } { (label) }
                    br; span class="hint" { (kind) @if !result.is_complete { ", interrupted" } }
                }
                td { (subject) }
                td class="hint" { (started.get(..16).unwrap_or(started).replace('T', " ")) }
                td {
                    @for (what, value) in &result.figures { div { (what) ": " strong { (value) } } }
                }
                td { @for finding in result.findings.iter().take(SHOWN_FINDINGS) { p { (finding) } } }
            }
        }
    }
}
