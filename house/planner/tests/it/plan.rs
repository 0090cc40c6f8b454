//! What programs rely on in a plan, and what people see of it.

use planner::{Goal, Mix, Plan, Prices, Question, RECORDS, Words, parse_drives, picture, report};
use serde_json::Value;
use units::Ashift;

fn question(drives: &str) -> Question {
    Question::new(parse_drives(drives).unwrap(), Ashift::new(12).unwrap())
}

fn planned(drives: &str, layout: &str) -> Plan {
    let question = question(drives);
    let words = Words::parse(layout, question.drives.len()).unwrap();
    Plan::of(&question, &[words]).unwrap()
}

#[test]
fn programs_find_what_they_were_promised() {
    let plan = planned("6x4000787030016,4x8TB", "raidz2 6 mirror 2 mirror 2");
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
fn records_other_than_128k_hold_less_or_more() {
    let plan = planned("6x4TB", "raidz2 6");
    let layout = &plan.layouts[0];
    let fits = |size: u64| {
        let index = RECORDS.iter().position(|record| *record == size).unwrap();
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
fn goals_are_served() {
    let best = |goal| {
        let plan = Plan::ranked(&question("12x4TB"), Some(goal)).unwrap();
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
fn odd_drives_get_layouts_by_size() {
    let plan = Plan::ranked(&question("3x2TB,2x3TB"), None).unwrap();
    let layouts: Vec<&str> = plan.layouts.iter().map(|layout| layout.layout.as_str()).collect();
    assert!(layouts.contains(&"mirror 2 mirror 3") && layouts.contains(&"mirror 2 raidz1 3"));
    assert!(layouts.contains(&"raidz1 5") && layouts.contains(&"stripe 5"));
    // the larger drives lose what the smaller ones do not have
    let raidz = plan.layouts.iter().find(|layout| layout.layout == "raidz1 5").unwrap();
    assert!(raidz.account.tail_bytes.abs_diff(2_000_000_000_000) < 1 << 20);
    assert!(plan.layouts.iter().any(|layout| layout.pareto_best));
    assert!(plan.layouts.iter().any(|layout| !layout.pareto_best));
}

#[test]
fn spares_make_repairs_begin_at_once() {
    let plan = planned("7x4TB", "raidz2 6 spare 1");
    let without = planned("6x4TB", "raidz2 6");
    assert!(plan.layouts[0].safety.lost_5_years < without.layouts[0].safety.lost_5_years);
    assert_eq!(plan.layouts[0].usable_bytes, without.layouts[0].usable_bytes);
}

#[test]
fn impossible_figures_are_refused() {
    let words = [Words::parse("mirror 2", 2).unwrap()];
    let mut wrong = [question("2x4TB"), question("2x4TB"), question("2x1MB"), question("2x4E")];
    wrong[0].fill = 1.5;
    wrong[1].drive.annual_failure_rate = 1.0;
    wrong[3].drives = vec![u64::MAX; 2];
    for question in wrong {
        assert!(Plan::of(&question, &words).is_err(), "{question:?}");
    }
}

#[test]
fn text_names_what_matters() {
    let mut question = question("24x4000787030016");
    question.prices = Some(Prices::Each(90.0));
    question.plays = 10;
    let words = Words::parse("raidz3 24", 24).unwrap();
    let text = report::text(&Plan::of(&question, &[words]).unwrap());
    for part in
        ["zfs list shows        69.6T", "padding", "resilver", "of 10 in 5 years", "2160.00"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let table = report::text(&Plan::ranked(&question, Some(Goal::Balance)).unwrap());
    assert!(table.contains("* 4 x raidz2 6 "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

/// Whether every element is closed in order; only what our pages have is understood.
fn balanced(text: &str) -> Result<usize, String> {
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
fn pictures_are_whole_and_stand_by_themselves() {
    let mut question = question("12x4TB");
    question.records = Mix::parse("16K=1,1M=3").unwrap();
    let plan = Plan::ranked(&question, None).unwrap();
    let page = picture::page(&plan, &question);
    assert!(balanced(&page).unwrap() > 1000);
    for wrong in ["<script", "http://", "https://", "src=", "NaN", "inf\""] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
    let all = picture::all(&plan, &question);
    assert_eq!(all.len(), 2 + 3 * 3);
    for (name, svg) in all {
        let svg = svg.file();
        balanced(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!svg.contains("NaN"), "{name}");
    }
}

/// Whether every number of a plan is one, prices apart.
fn sound(value: &Value, name: &str) -> bool {
    match value {
        Value::Null => name.starts_with("price"),
        Value::Array(items) => items.iter().all(|item| sound(item, name)),
        Value::Object(fields) => fields.iter().all(|(name, field)| sound(field, name)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[test]
fn the_smallest_and_the_largest_pools_have_sound_figures() {
    let layouts =
        ["stripe 6", "mirror 6", "raidz3 6", "draid1:2d:6c:1s", "mirror 2 raidz1 3 spare 1"];
    for (drives, ashift) in [("6x64MiB", 9), ("6x64MiB", 16), ("6x100PiB", 12), ("6x24TB", 16)] {
        let mut question = question(drives);
        question.ashift = Ashift::new(ashift).unwrap();
        for layout in layouts {
            let words = Words::parse(layout, 6).unwrap();
            let plan = Plan::of(&question, &[words]).unwrap();
            let account = plan.layouts[0].account;
            assert_eq!(account.raw_bytes(), plan.layouts[0].raw_bytes, "{drives} {layout}");
            assert!(sound(&serde_json::to_value(&plan).unwrap(), ""), "{drives} {layout}");
            picture::page(&plan, &question);
            report::text(&plan);
        }
    }
}

#[test]
fn a_rack_full_of_drives_is_planned_too() {
    let plan = Plan::ranked(&question("1000x20TB"), Some(Goal::Balance)).unwrap();
    assert!(plan.layouts[0].safety.tolerance >= 2);
}
