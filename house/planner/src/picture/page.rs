//! One page with a table and all pictures, which stands by itself.

use ::picture::{Page, Svg, Table};
use units::human_bytes;

use super::{MAX_LAYOUTS, capacity_bars, compared_ashifts, heat_map, scatter};
use crate::plan::{LayoutPlan, Plan, PlanRequest};
use crate::report::{
    abbreviate_layout, format_chance, format_duration, format_percent, format_rate,
    format_terabytes,
};

/// The page.
pub fn render_page(plan: &Plan, question: &PlanRequest) -> String {
    let mut page = Page::new(&format!("Layouts of {}", describe_drives(&question.drives)));
    add_introduction(&mut page, plan, question);
    add_layout_table(&mut page, plan);
    page.add_columns(2, |page, index| {
        if index == 0 {
            let words = "Parity and padding are those of blocks of 128K.";
            page.add_section("Where the bytes go", words);
            page.add_picture(&capacity_bars::draw(plan));
        } else {
            let words = "Numbers are at the layouts that no other beats.";
            page.add_section("Room against safety", words);
            page.add_picture(&scatter::draw(plan));
        }
    });
    page.add_section(
        "How much of a raidz is data",
        "A block takes whole rows of parity and whole sectors, so small records on wide arrays of \
         large sectors waste the most.",
    );
    for ashift in compared_ashifts(question) {
        page.add_subsection(&format!(
            "Sectors of {} (ashift {ashift})",
            human_bytes(ashift.bytes())
        ));
        let maps: Vec<Svg> = (1..=3).map(|parity| heat_map::draw(parity, ashift)).collect();
        page.add_pictures(&maps);
    }
    page.add_section("Assumptions", "Sizes are exact. The rest is estimated:");
    page.add_list(&plan.assumptions);
    page.finish()
}

/// Drives in words: `24 x 4.00 TB and 2 x 3.00 TB`.
fn describe_drives(drives: &[u64]) -> String {
    let groups = drives.chunk_by(|a, b| a == b);
    let words = groups.map(|same| format!("{} x {}", same.len(), format_terabytes(same[0])));
    words.collect::<Vec<_>>().join(" and ")
}

fn add_introduction(page: &mut Page, plan: &Plan, question: &PlanRequest) {
    let Some(first) = plan.layouts.first() else { return };
    let taken = if question.whole_disks { "whole disks" } else { "files or partitions" };
    let mix: Vec<String> = (question.records.shares().iter())
        .map(|(size, share)| match question.records.shares().len() {
            1 => human_bytes(*size),
            _ => format!("{} ({:.0} %)", human_bytes(*size), share * 100.0),
        })
        .collect();
    page.add_note(&format!(
        "{} in all, taken as {taken}, sectors of {}, records of {}.",
        format_terabytes(first.raw_bytes),
        human_bytes(question.ashift.bytes()),
        mix.join(", ")
    ));
}

fn add_layout_table(page: &mut Page, plan: &Plan) {
    page.add_section(
        "Layouts",
        "In bold: no other is better in room, safety and random speed at once.",
    );
    let mut head = vec![
        "layout",
        "zfs list shows",
        "of raw",
        "your records fit",
        "may fail",
        "lost in 5 years",
        "damaged in 5 years",
        "streams",
        "random reads",
        "resilver",
    ];
    if plan.layouts.iter().any(|layout| layout.cost.price.is_some()) {
        head.push("euros per TiB");
    }
    let mut table = Table::new(head);
    for layout in plan.layouts.iter().take(MAX_LAYOUTS) {
        table.add_row(layout.pareto_best, table_cells(layout));
    }
    page.add_table(&table);
    if let Some(first) = plan.layouts.first() {
        let (watts, year) = (first.cost.watts, first.cost.power_per_year);
        page.add_note(&format!("The drives draw {watts:.0} W: {year:.0} euros a year."));
    }
}

fn table_cells(layout: &LayoutPlan) -> Vec<String> {
    let mut cells = vec![
        abbreviate_layout(&layout.layout),
        layout.usable_shown.clone(),
        format_percent(layout.efficiency),
        human_bytes(layout.mix_fits_bytes),
        layout.safety.tolerance.to_string(),
        format_chance(layout.safety.lost_5_years),
        format_chance(layout.safety.damaged_5_years),
        format_rate(layout.speed.sequential_read),
        format!("{:.0}/s", layout.speed.random_reads),
        format_duration(layout.speed.resilver_hours),
    ];
    cells.extend(layout.cost.price_per_usable_tib.map(|price| format!("{price:.2}")));
    cells
}
