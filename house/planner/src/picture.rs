//! Pictures of a plan: SVG, and one HTML page that holds them all.

mod capacity_bars;
mod heat_map;
mod page;
mod scatter;

use ::picture::Svg;
pub use page::render_page;
use units::Ashift;

use crate::plan::{Plan, PlanRequest};

/// Layouts that a picture shows at most.
const MAX_LAYOUTS: usize = 40;

/// All pictures, each with its name.
pub fn draw_all(plan: &Plan, question: &PlanRequest) -> Vec<(String, Svg)> {
    let mut all = vec![
        ("bytes".to_owned(), capacity_bars::draw(plan)),
        ("capacity-safety".to_owned(), scatter::draw(plan)),
    ];
    for ashift in compared_ashifts(question) {
        for parity in 1..=3 {
            let name = format!("efficiency-raidz{parity}-ashift{ashift}");
            all.push((name, heat_map::draw(parity, ashift)));
        }
    }
    all
}

/// The sectors that the heat maps compare: the chosen one, and the usual ones.
fn compared_ashifts(question: &PlanRequest) -> Vec<Ashift> {
    let mut all: Vec<Ashift> = [9, 12, 13].into_iter().filter_map(Ashift::new).collect();
    if !all.contains(&question.ashift) {
        all.push(question.ashift);
        all.sort_unstable();
    }
    all
}
