//! The JSON of a plan, and its report.

use planner::{
    Goal, Plan, PlanRequest, PoolLayout, Prices, RECORD_SIZES, RecordMix, parse_drives, picture,
    report,
};
use serde_json::Value;
use units::Ashift;

fn request(drives: &str) -> PlanRequest {
    PlanRequest::new(parse_drives(drives).unwrap(), Ashift::new(12).unwrap())
}

fn plan_layout(drives: &str, layout: &str) -> Plan {
    let question = request(drives);
    let words = PoolLayout::parse(layout, question.drives.len()).unwrap();
    Plan::for_layouts(&question, &[words]).unwrap()
}

#[test]
fn json_has_documented_fields() {
    let plan = plan_layout("6x4000787030016,4x8TB", "raidz2 6 mirror 2 mirror 2");
    let json: Value = serde_json::to_value(&plan).unwrap();
    let layout = &json["layouts"][0];
    assert_eq!(layout["layout"], "raidz2 6 mirror 2 mirror 2");
    let number = |value: &Value| value.as_u64().unwrap();
    let vdevs = layout["vdevs"].as_array().unwrap();
    assert_eq!(vdevs.len(), 3);
    let size: u64 = (vdevs.iter())
        .map(|vdev| number(&vdev["metaslabs"]) << number(&vdev["metaslab_shift"]))
        .sum();
    assert_eq!(number(&layout["size_bytes"]), size);
    assert!(number(&layout["usable_bytes"]) < size);
    assert_eq!(number(&vdevs[0]["asize"]), 24_004_693_327_872);
    assert!(layout["needs_force"].as_bool().unwrap());
    for name in ["df_bytes", "slop_bytes", "account", "records", "speed", "safety", "cost"] {
        assert!(!layout[name].is_null(), "{name}");
    }
}

#[test]
fn usable_space_depends_on_record_size() {
    let plan = plan_layout("6x4TB", "raidz2 6");
    let layout = &plan.layouts[0];
    let fits = |size: u64| {
        let index = RECORD_SIZES.iter().position(|record| *record == size).unwrap();
        layout.records[index].fits_bytes
    };
    // a 4 KiB block takes three sectors, where the pool counts on one and a half for it
    assert!(fits(4 << 10).abs_diff(layout.usable_bytes / 2) < layout.usable_bytes / 100);
    assert!(fits(1 << 20) >= layout.usable_bytes);
    for record in &layout.records {
        let sum = record.efficiency + record.parity + record.padding;
        assert!((sum - 1.0).abs() < 1e-9, "{record:?}");
    }
}

#[test]
fn ranking_follows_goal() {
    let best = |goal| {
        let plan = Plan::ranked(&request("12x4TB"), Some(goal)).unwrap();
        plan.layouts.into_iter().next().unwrap()
    };
    let (capacity, safety) = (best(Goal::Capacity), best(Goal::Safety));
    let (speed, balance) = (best(Goal::Speed), best(Goal::Balance));
    assert!(capacity.safety.tolerance > 0 && capacity.usable_bytes > safety.usable_bytes);
    assert!(safety.safety.lost_5_years < balance.safety.lost_5_years);
    assert!(speed.speed.random_reads >= balance.speed.random_reads);
    assert_eq!(balance.layout, "raidz2 6 raidz2 6");
}

#[test]
fn mixed_drives_are_grouped_by_size() {
    let plan = Plan::ranked(&request("3x2TB,2x3TB"), None).unwrap();
    let layouts: Vec<&str> = plan.layouts.iter().map(|layout| layout.layout.as_str()).collect();
    assert!(layouts.contains(&"mirror 2 mirror 3") && layouts.contains(&"mirror 2 raidz1 3"));
    assert!(layouts.contains(&"raidz1 5") && layouts.contains(&"stripe 5"));
    // the larger drives lose the space that the smaller ones do not have
    let raidz = plan.layouts.iter().find(|layout| layout.layout == "raidz1 5").unwrap();
    assert!(raidz.account.tail_bytes.abs_diff(2_000_000_000_000) < 1 << 20);
    assert!(plan.layouts.iter().any(|layout| layout.pareto_best));
    assert!(plan.layouts.iter().any(|layout| !layout.pareto_best));
}

#[test]
fn hot_spare_lowers_loss_chance() {
    let plan = plan_layout("7x4TB", "raidz2 6 spare 1");
    let without = plan_layout("6x4TB", "raidz2 6");
    assert!(plan.layouts[0].safety.lost_5_years < without.layouts[0].safety.lost_5_years);
    assert_eq!(plan.layouts[0].usable_bytes, without.layouts[0].usable_bytes);
}

#[test]
fn impossible_values_are_refused() {
    let words = [PoolLayout::parse("mirror 2", 2).unwrap()];
    let mut wrong = [request("2x4TB"), request("2x4TB"), request("2x1MB"), request("2x4E")];
    wrong[0].fill = 1.5;
    wrong[1].drive.annual_failure_rate = 1.0;
    wrong[3].drives = vec![u64::MAX; 2];
    for question in wrong {
        assert!(Plan::for_layouts(&question, &words).is_err(), "{question:?}");
    }
}

#[test]
fn text_report_has_key_figures() {
    let mut question = request("24x4000787030016");
    question.prices = Some(Prices::PerDrive(90.0));
    question.simulation_runs = 10;
    let words = PoolLayout::parse("raidz3 24", 24).unwrap();
    let text = report::format_plan(&Plan::for_layouts(&question, &[words]).unwrap());
    for part in
        ["zfs list shows        69.6T", "padding", "resilver", "of 10 in 5 years", "2160.00"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let table = report::format_plan(&Plan::ranked(&question, Some(Goal::Balance)).unwrap());
    assert!(table.contains("* 4 x raidz2 6 "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

/// Whether every element is closed in order; only what our pages have is understood.
fn count_balanced_elements(text: &str) -> Result<usize, String> {
    let mut open: Vec<&str> = Vec::new();
    let mut count = 0;
    for tag in text.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').ok_or_else(|| format!("<{tag} does not end"))?;
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        if let Some(closed) = name.strip_prefix('/') {
            let last = open.pop();
            if last != Some(closed) {
                return Err(format!("{closed} closes {last:?}"));
            }
        } else if !tag.ends_with('/') && !matches!(name, "meta" | "!doctype") {
            open.push(name);
            count += 1;
        }
    }
    if open.is_empty() { Ok(count) } else { Err(format!("{open:?} are open")) }
}

#[test]
fn pictures_are_well_formed_and_self_contained() {
    let mut question = request("12x4TB");
    question.records = RecordMix::parse("16K=1,1M=3").unwrap();
    let plan = Plan::ranked(&question, None).unwrap();
    let page = picture::render_page(&plan, &question);
    assert!(count_balanced_elements(&page).unwrap() > 1000);
    for wrong in ["<script", "http://", "https://", "src=", "NaN", "inf\""] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
    let all = picture::draw_all(&plan, &question);
    assert_eq!(all.len(), 2 + 3 * 3);
    for (name, svg) in all {
        let svg = svg.to_document();
        count_balanced_elements(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!svg.contains("NaN"), "{name}");
    }
}

/// Whether every number of a plan is one, prices apart.
fn has_all_numbers(value: &Value, name: &str) -> bool {
    match value {
        Value::Null => name.starts_with("price"),
        Value::Array(items) => items.iter().all(|item| has_all_numbers(item, name)),
        Value::Object(fields) => fields.iter().all(|(name, field)| has_all_numbers(field, name)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[test]
fn smallest_and_largest_pools_have_valid_numbers() {
    let layouts =
        ["stripe 6", "mirror 6", "raidz3 6", "draid1:2d:6c:1s", "mirror 2 raidz1 3 spare 1"];
    for (drives, ashift) in [("6x64MiB", 9), ("6x64MiB", 16), ("6x100PiB", 12), ("6x24TB", 16)] {
        let mut question = request(drives);
        question.ashift = Ashift::new(ashift).unwrap();
        for layout in layouts {
            let words = PoolLayout::parse(layout, 6).unwrap();
            let plan = Plan::for_layouts(&question, &[words]).unwrap();
            let account = plan.layouts[0].account;
            assert_eq!(account.raw_bytes(), plan.layouts[0].raw_bytes, "{drives} {layout}");
            assert!(
                has_all_numbers(&serde_json::to_value(&plan).unwrap(), ""),
                "{drives} {layout}"
            );
            picture::render_page(&plan, &question);
            report::format_plan(&plan);
        }
    }
}

#[test]
fn thousand_drives_can_be_planned() {
    let plan = Plan::ranked(&request("1000x20TB"), Some(Goal::Balance)).unwrap();
    assert!(plan.layouts[0].safety.tolerance >= 2);
}
