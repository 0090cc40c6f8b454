//! Pictures of a plan: SVG, and one HTML page that holds them all.

mod bars;
mod heat;
mod page;
mod scatter;

use ::picture::Svg;
pub use page::page;
use units::Ashift;

use crate::plan::{Plan, Question};

/// Layouts that a picture shows at most.
const MOST_LAYOUTS: usize = 40;

/// All pictures, each with its name.
pub fn all(plan: &Plan, question: &Question) -> Vec<(String, Svg)> {
    let mut all = vec![
        ("bytes".to_owned(), bars::draw(plan)),
        ("capacity-safety".to_owned(), scatter::draw(plan)),
    ];
    for ashift in ashifts(question) {
        for parity in 1..=3 {
            let name = format!("efficiency-raidz{parity}-ashift{ashift}");
            all.push((name, heat::draw(parity, ashift)));
        }
    }
    all
}

/// The sectors that the heat maps compare: the one asked for, and the usual ones.
fn ashifts(question: &Question) -> Vec<Ashift> {
    let mut all: Vec<Ashift> = [9, 12, 13].into_iter().filter_map(Ashift::new).collect();
    if !all.contains(&question.ashift) {
        all.push(question.ashift);
        all.sort_unstable();
    }
    all
}
