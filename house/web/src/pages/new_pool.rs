//! A new pool: the drives are chosen, the planner shows the figures of each layout, and one is created.

use api::Drive;
use maud::{Markup, html};
use planner::{Goal, LayoutPlan, Plan, PlanRequest};
use units::Ashift;

use super::drives::summary;
use super::{Page, action_form, frame};
use crate::dashboard::Visit;
use crate::forms::Form;

/// The layouts that are shown, the best for a balance first.
const MAX_LAYOUTS: usize = 8;

/// The page of a new pool. `form` has the drives that are chosen so far.
pub(crate) fn new_pool(drives: &[Drive], form: &Form, visit: &Visit) -> Page {
    let free: Vec<_> = drives.iter().filter(|drive| drive.is_free()).collect();
    let is_chosen = |drive: &&&Drive| form.all("drive").any(|path| drive.path.as_os_str() == path);
    let mut chosen: Vec<&Drive> = free.iter().filter(is_chosen).copied().collect();
    // the planner takes the largest first
    chosen.sort_by_key(|drive| std::cmp::Reverse(drive.size));
    frame(
        "poolhouse: new pool",
        "/new-pool",
        visit,
        &html! {
            h1 { "New pool" }
            p { "Drives with a pool: " a href="/imports" { "import it" } "." }
            section class="card" {
                h2 { "1. Choose the drives" }
                @if free.is_empty() { p class="hint" { "All drives that are seen belong to pools." } } @else {
                    form method="get" action="/new-pool" {
                        @for drive in &free { (choice(drive, is_chosen(&drive))) }
                        button { "Show the layouts" }
                    }
                }
            }
            @if !chosen.is_empty() { section class="card" { (layouts(&chosen)) } }
        },
    )
}

fn choice(drive: &Drive, is_chosen: bool) -> Markup {
    html! {
        label class="choice" {
            input type="checkbox" name="drive" value=(drive.path.display()) checked[is_chosen];
            span {
                (summary(drive))
            }
        }
    }
}

fn layouts(chosen: &[&Drive]) -> Markup {
    let sizes = chosen.iter().map(|drive| drive.size).collect();
    let question = Ashift::new(12).map(|ashift| PlanRequest::new(sizes, ashift));
    let plan = question.map(|question| Plan::ranked(&question, Some(Goal::Balance)));
    html! {
        h2 { "2. Choose the layout" }
        @match plan {
            Some(Ok(plan)) => {
                p class="hint" {
                    "Capacity is exact. Speed and safety are estimates, and count on drives that fail one by one."
                }
                div class="scroll" tabindex="0" { table {
                    thead { tr {
                        th { "Layout" } th class="number" { "Usable" } th class="number" { "Of raw" }
                        th class="number" { "Drives that may fail" } th class="number" { "Loss in 5 years" }
                        th class="number" { "Writes" } th class="number" { "Resilver" } th { "Create it" }
                    } }
                    tbody { @for layout in plan.layouts.iter().take(MAX_LAYOUTS) { (row(layout, chosen)) } }
                } }
            },
            Some(Err(why)) => p class="complaint" role="alert" { (why) },
            None => p class="complaint" role="alert" { "The planner has no answer." },
        }
    }
}

fn row(plan: &LayoutPlan, chosen: &[&Drive]) -> Markup {
    let label = format!("Name of the pool with {}", plan.layout);
    html! {
        tr {
            td { strong { (plan.layout) } }
            td class="number" { (plan.usable_shown) }
            td class="number" { (format!("{:.0} %", plan.efficiency * 100.0)) }
            td class="number" { (plan.safety.tolerance) }
            td class="number" { (chance(plan.safety.lost_5_years)) }
            td class="number" { (format!("{:.0} MB/s", plan.speed.sequential_write / 1e6)) }
            td class="number" { (hours(plan.speed.resilver_hours)) }
            td {
                (action_form("create-pool", &[("layout", &plan.layout)], &html! {
                    @for drive in chosen { input type="hidden" name="drive" value=(drive.path.display()); }
                    span class="inline" {
                        input name="pool" required placeholder="name" aria-label=(label)
                            autocomplete="off" autocapitalize="none";
                        button class="small" { "Create…" }
                    }
                }))
            }
        }
    }
}

/// A duration as people read it.
fn hours(value: f64) -> String {
    if value < 1.0 { "under 1 h".to_owned() } else { format!("{value:.0} h") }
}

/// A chance as people read it.
fn chance(value: f64) -> String {
    if value >= 0.001 {
        return format!("{:.1} %", value * 100.0);
    }
    if value <= 1e-9 { "under 1 in 10⁹".to_owned() } else { format!("1 in {:.0}", 1.0 / value) }
}

#[cfg(test)]
mod tests {
    use super::chance;

    #[test]
    fn chances_are_readable() {
        assert_eq!([0.25, 0.0001, 0.0].map(chance), ["25.0 %", "1 in 10000", "under 1 in 10⁹"]);
    }
}
