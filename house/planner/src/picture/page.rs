//! One page with a table and all pictures, which stands by itself.

use ::picture::{Page, Svg, Table};
use units::human_bytes;

use super::{MOST_LAYOUTS, ashifts, bars, heat, scatter};
use crate::plan::{LayoutPlan, Plan, Question};
use crate::report::{chance, decimal, duration, percent, rate, short};

/// The page.
pub fn page(plan: &Plan, question: &Question) -> String {
    let mut page = Page::new(&format!("What {} give", drives(&question.drives)));
    introduce(&mut page, plan, question);
    table(&mut page, plan);
    page.side_by_side(2, |page, index| {
        if index == 0 {
            let words = "Parity and padding are those of blocks of 128K.";
            page.section("Where the bytes go", words);
            page.picture(&bars::draw(plan));
        } else {
            let words = "Numbers are at the layouts that no other beats.";
            page.section("Room against safety", words);
            page.picture(&scatter::draw(plan));
        }
    });
    page.section(
        "How much of a raidz is data",
        "A block takes whole rows of parity and whole sectors, so small records on wide arrays of \
         large sectors waste the most.",
    );
    for ashift in ashifts(question) {
        page.part(&format!("Sectors of {} (ashift {ashift})", human_bytes(ashift.bytes())));
        let maps: Vec<Svg> = (1..=3).map(|parity| heat::draw(parity, ashift)).collect();
        page.pictures(&maps);
    }
    page.section("What is supposed", "Sizes are exact. The rest is estimated:");
    page.list(&plan.assumptions);
    page.end()
}

/// Drives in words: `24 x 4.00 TB and 2 x 3.00 TB`.
fn drives(drives: &[u64]) -> String {
    let groups = drives.chunk_by(|a, b| a == b);
    let words = groups.map(|same| format!("{} x {}", same.len(), decimal(same[0])));
    words.collect::<Vec<_>>().join(" and ")
}

fn introduce(page: &mut Page, plan: &Plan, question: &Question) {
    let Some(first) = plan.layouts.first() else { return };
    let taken = if question.whole_disks { "whole disks" } else { "files or partitions" };
    let mix: Vec<String> = (question.records.parts().iter())
        .map(|(size, share)| match question.records.parts().len() {
            1 => human_bytes(*size),
            _ => format!("{} ({:.0} %)", human_bytes(*size), share * 100.0),
        })
        .collect();
    page.soft(&format!(
        "{} in all, taken as {taken}, sectors of {}, records of {}.",
        decimal(first.raw_bytes),
        human_bytes(question.ashift.bytes()),
        mix.join(", ")
    ));
}

fn table(page: &mut Page, plan: &Plan) {
    page.section(
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
    for layout in plan.layouts.iter().take(MOST_LAYOUTS) {
        table.row(layout.pareto_best, row(layout));
    }
    page.table(&table);
    if let Some(first) = plan.layouts.first() {
        let (watts, year) = (first.cost.watts, first.cost.power_per_year);
        page.soft(&format!("The drives draw {watts:.0} W: {year:.0} euros a year."));
    }
}

fn row(layout: &LayoutPlan) -> Vec<String> {
    let mut cells = vec![
        short(&layout.layout),
        layout.usable_shown.clone(),
        percent(layout.efficiency),
        human_bytes(layout.mix_fits_bytes),
        layout.safety.tolerance.to_string(),
        chance(layout.safety.lost_5_years),
        chance(layout.safety.damaged_5_years),
        rate(layout.speed.sequential_read),
        format!("{:.0}/s", layout.speed.random_reads),
        duration(layout.speed.resilver_hours),
    ];
    cells.extend(layout.cost.price_per_usable_tib.map(|price| format!("{price:.2}")));
    cells
}
