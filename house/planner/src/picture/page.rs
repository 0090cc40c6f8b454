//! One page with a table and all pictures, which stands by itself.

use std::fmt::Write;

use units::human_bytes;

use super::svg::{STYLE, escape};
use super::{MOST_LAYOUTS, ashifts, bars, heat, scatter};
use crate::plan::{LayoutPlan, Plan, Question};
use crate::report::{chance, decimal, duration, percent, rate, short};

const PAGE_STYLE: &str = "
body { margin: 0 auto; padding: 16px; max-width: 1100px; background: var(--paper); \
color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .4em 0; }
h2 { font-size: 1.15rem; margin: 2em 0 .6em; } h3 { font-size: 1rem; margin: 1.6em 0 .8em; }
p, li { max-width: 70ch; } .soft { color: var(--soft); }
svg { display: block; width: 100%; height: auto; max-width: 560px; }
.pair { display: grid; gap: 0 40px; \
grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.pair > div { min-width: 0; }
.maps { display: grid; gap: 24px; \
grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr)); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th { text-align: right; color: var(--soft); font-weight: 500; vertical-align: bottom; }
td { text-align: right; white-space: nowrap; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 8.5rem; }
@media (min-width: 700px) { td:first-child { white-space: nowrap; } }
tr.best td:first-child { font-weight: 600; }
";

/// The page.
pub fn page(plan: &Plan, question: &Question) -> String {
    let title = format!("What {} give", drives(&question.drives));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<style>{STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escape(&title)
    );
    introduce(&mut out, plan, question);
    table(&mut out, plan);
    out.push_str("<div class=\"pair\">\n<div>\n");
    section(&mut out, "Where the bytes go", "Parity and padding are those of blocks of 128K.");
    out.push_str(&bars::draw(plan).inline());
    out.push_str("</div>\n<div>\n");
    section(&mut out, "Room against safety", "Numbers are at the layouts that no other beats.");
    out.push_str(&scatter::draw(plan).inline());
    out.push_str("</div>\n</div>\n");
    section(
        &mut out,
        "How much of a raidz is data",
        "A block takes whole rows of parity and whole sectors, so small records on wide arrays of \
         large sectors waste the most.",
    );
    for ashift in ashifts(question) {
        let _ =
            writeln!(out, "<h3>Sectors of {} (ashift {ashift})</h3>", human_bytes(ashift.bytes()));
        out.push_str("<div class=\"maps\">\n");
        for parity in 1..=3 {
            out.push_str(&heat::draw(parity, ashift).inline());
        }
        out.push_str("</div>\n");
    }
    section(&mut out, "What is supposed", "Sizes are exact. The rest is estimated:");
    out.push_str("<ul>\n");
    for assumption in &plan.assumptions {
        let _ = writeln!(out, "<li>{}</li>", escape(assumption));
    }
    out.push_str("</ul>\n</body>\n</html>\n");
    out
}

/// Drives in words: `24 x 4.00 TB and 2 x 3.00 TB`.
fn drives(drives: &[u64]) -> String {
    let groups = drives.chunk_by(|a, b| a == b);
    let words = groups.map(|same| format!("{} x {}", same.len(), decimal(same[0])));
    words.collect::<Vec<_>>().join(" and ")
}

fn introduce(out: &mut String, plan: &Plan, question: &Question) {
    let Some(first) = plan.layouts.first() else { return };
    let taken = if question.whole_disks { "whole disks" } else { "files or partitions" };
    let mix: Vec<String> = (question.records.parts().iter())
        .map(|(size, share)| match question.records.parts().len() {
            1 => human_bytes(*size),
            _ => format!("{} ({:.0} %)", human_bytes(*size), share * 100.0),
        })
        .collect();
    let _ = writeln!(
        out,
        "<p class=\"soft\">{} in all, taken as {taken}, sectors of {}, records of {}.</p>",
        escape(&decimal(first.raw_bytes)),
        human_bytes(question.ashift.bytes()),
        escape(&mix.join(", "))
    );
}

fn section(out: &mut String, title: &str, words: &str) {
    let _ = writeln!(out, "<h2>{title}</h2>\n<p class=\"soft\">{words}</p>");
}

fn table(out: &mut String, plan: &Plan) {
    let priced = plan.layouts.iter().any(|layout| layout.cost.price.is_some());
    let price = if priced { "<th>euros per TiB</th>" } else { "" };
    let _ = writeln!(
        out,
        "<h2>Layouts</h2>\n<p class=\"soft\">In bold: no other is better in room, safety and \
         random speed at once.</p>\n<div class=\"scroll\"><table>\n<tr><th>layout</th>\
         <th>zfs list shows</th><th>of raw</th><th>your records fit</th><th>may fail</th>\
         <th>lost in 5 years</th><th>damaged in 5 years</th><th>streams</th>\
         <th>random reads</th><th>resilver</th>{price}</tr>"
    );
    for layout in plan.layouts.iter().take(MOST_LAYOUTS) {
        row(out, layout);
    }
    out.push_str("</table></div>\n");
    if let Some(first) = plan.layouts.first() {
        let (watts, year) = (first.cost.watts, first.cost.power_per_year);
        let _ = writeln!(
            out,
            "<p class=\"soft\">The drives draw {watts:.0} W: {year:.0} euros a year.</p>"
        );
    }
}

fn row(out: &mut String, layout: &LayoutPlan) {
    let class = if layout.pareto_best { " class=\"best\"" } else { "" };
    let _ = write!(out, "<tr{class}><td>{}</td>", escape(&short(&layout.layout)));
    let mut cells = vec![
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
    for cell in cells {
        let _ = write!(out, "<td>{}</td>", escape(&cell));
    }
    out.push_str("</tr>\n");
}
