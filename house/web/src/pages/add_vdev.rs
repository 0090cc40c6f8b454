//! Vdevs for a pool: the drives are chosen, the planner shows what each layout adds, and `zpool add -n` is asked first.

use api::Drive;
use engine::pool::PoolStatus;
use maud::{Markup, html};
use planner::{Goal, LayoutPlan, Plan, PlanRequest};
use units::Ashift;

use super::drives::summary;
use super::{Page, action_form, frame, pool_path};
use crate::dashboard::Visit;
use crate::forms::Form;

/// The layouts that are checked and shown.
const MAX_LAYOUTS: usize = 5;
/// The roles of vdevs without data: zpool's word and the page's.
const ROLES: [(&str, &str); 3] =
    [("spare", "hot spares"), ("cache", "cache devices (L2ARC)"), ("log", "log devices (SLOG)")];

/// A choice of the page, and the reason why `zpool add -n` refuses it.
pub(crate) struct CheckedLayout {
    /// The layout in the planner's words, or a role.
    pub(crate) layout: String,
    /// The planner's figures; none of a role.
    plan: Option<LayoutPlan>,
    /// The refusal.
    pub(crate) refusal: Option<String>,
}

/// The drives that are free and chosen, the largest first.
pub(crate) fn chosen_drives<'a>(drives: &'a [Drive], form: &Form) -> Vec<&'a Drive> {
    let is_chosen = |drive: &&Drive| form.all("drive").any(|path| drive.path.as_os_str() == path);
    let mut chosen: Vec<&Drive> =
        drives.iter().filter(|drive| drive.is_free()).filter(is_chosen).collect();
    chosen.sort_by_key(|drive| std::cmp::Reverse(drive.size));
    chosen
}

/// The layouts of the chosen drives that the planner finds best, and the roles without data.
pub(crate) fn candidates(chosen: &[&Drive]) -> Vec<CheckedLayout> {
    if chosen.is_empty() {
        return Vec::new();
    }
    let sizes = chosen.iter().map(|drive| drive.size).collect();
    let question = Ashift::new(12).map(|ashift| PlanRequest::new(sizes, ashift));
    let plan = question.and_then(|question| Plan::ranked(&question, Some(Goal::Balance)).ok());
    let layouts = plan.into_iter().flat_map(|plan| plan.layouts).take(MAX_LAYOUTS);
    let layouts = layouts.map(|plan| CheckedLayout {
        layout: plan.layout.clone(),
        plan: Some(plan),
        refusal: None,
    });
    let roles = ROLES.iter().map(|(role, _)| CheckedLayout {
        layout: (*role).to_owned(),
        plan: None,
        refusal: None,
    });
    layouts.chain(roles).collect()
}

/// The page of a pool that gets more vdevs.
pub(crate) fn add_vdev(
    pool: &PoolStatus,
    drives: &[Drive],
    chosen: &[&Drive],
    layouts: &[CheckedLayout],
    visit: &Visit,
) -> Page {
    let free: Vec<_> = drives.iter().filter(|drive| drive.is_free()).collect();
    let is_chosen = |drive: &Drive| chosen.iter().any(|it| it.path == drive.path);
    frame(
        &format!("poolhouse: add to {}", pool.name),
        "/",
        visit,
        &html! {
            h1 { "Add drives to " a href=(pool_path(&pool.name)) { (pool.name) } }
            section class="card" {
                h2 { "1. Choose the drives" }
                @if free.is_empty() { p class="hint" { "All drives that are seen are in use." } } @else {
                    form method="get" action={ (pool_path(&pool.name)) "/add" } {
                        @for drive in &free {
                            label class="choice" {
                                input type="checkbox" name="drive" value=(drive.path.display()) checked[is_chosen(drive)];
                                span { (summary(drive)) }
                            }
                        }
                        button { "Show the layouts" }
                    }
                }
            }
            @if !chosen.is_empty() { section class="card" { (table(pool, chosen, layouts)) } }
        },
    )
}

fn table(pool: &PoolStatus, chosen: &[&Drive], layouts: &[CheckedLayout]) -> Markup {
    html! {
        h2 { "2. Choose their use" }
        p class="hint" {
            "Existing data stay where they are; new data are spread over all vdevs. A raidz or dRAID vdev cannot be \
             removed again. Each line was checked by " code { "zpool add -n" } "."
        }
        div class="scroll" tabindex="0" { table {
            thead { tr {
                th { "Use" } th class="number" { "Adds" } th class="number" { "Drives that may fail" } th { "Add them" }
            } }
            tbody { @for layout in layouts { (row(pool, chosen, layout)) } }
        } }
    }
}

fn row(pool: &PoolStatus, chosen: &[&Drive], checked: &CheckedLayout) -> Markup {
    let role = ROLES.iter().find(|(role, _)| *role == checked.layout);
    html! {
        tr {
            td { strong { @if let Some((_, name)) = role { (name) } @else { (checked.layout) } } }
            td class="number" { @if let Some(plan) = &checked.plan { (plan.usable_shown) } }
            td class="number" { @if let Some(plan) = &checked.plan { (plan.safety.tolerance) } }
            td {
                @if let Some(why) = &checked.refusal { span class="hint" { "Refused: " (why) } } @else {
                    (action_form("add-vdev", &[("pool", &pool.name), ("layout", &checked.layout)], &html! {
                        @for drive in chosen { input type="hidden" name="drive" value=(drive.path.display()); }
                        button class="small" aria-label={ "Add as " (checked.layout) } { "Add…" }
                    }))
                }
            }
        }
    }
}
