//! The store: once, again when worse, over.

use std::time::Duration;

use alerts::{AlertState, AlertStore, Condition, Message, Severity};

fn condition(severity: Severity, level: u64) -> Condition {
    Condition {
        key: "pool/tank/state".to_owned(),
        severity,
        level,
        title: format!("Pool tank is at {level}"),
        sentence: "Its data can be read.".to_owned(),
        action: "See: poolhouse zpool status tank".to_owned(),
    }
}

fn titles(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.title.as_str()).collect()
}

#[test]
fn messages_come_once_and_when_worse() {
    let mut store = AlertStore::default();
    let first = store.update(vec![condition(Severity::Warning, 1)], |_| true, 10);
    assert_eq!(titles(&first), ["Pool tank is at 1"]);
    assert_eq!(first[0].text, "Its data can be read. See: poolhouse zpool status tank");
    assert!(store.update(vec![condition(Severity::Warning, 1)], |_| true, 20).is_empty());
    assert_eq!(store.update(vec![condition(Severity::Warning, 2)], |_| true, 30).len(), 1);
    // better, and then as bad as before
    assert!(store.update(vec![condition(Severity::Warning, 1)], |_| true, 40).is_empty());
    assert!(store.update(vec![condition(Severity::Warning, 2)], |_| true, 50).is_empty());
    assert_eq!(store.update(vec![condition(Severity::Critical, 0)], |_| true, 60).len(), 1);
    assert!(store.update(vec![condition(Severity::Warning, 9)], |_| true, 70).is_empty());
}

#[test]
fn acknowledged_alerts_speak_again_when_worse() {
    let mut store = AlertStore::default();
    let key = "pool/tank/state";
    assert!(!store.acknowledge(key));
    store.update(vec![condition(Severity::Warning, 1)], |_| true, 0);
    assert!(store.acknowledge(key) && store.is_acknowledged(key));
    assert!(store.update(vec![condition(Severity::Warning, 1)], |_| true, 10).is_empty());
    assert!(store.is_acknowledged(key));
    assert_eq!(store.update(vec![condition(Severity::Warning, 2)], |_| true, 20).len(), 1);
    assert!(!store.is_acknowledged(key));
}

#[test]
fn short_absence_does_not_end_an_alert() {
    let mut store = AlertStore::default();
    store.update(vec![condition(Severity::Warning, 1)], |_| true, 0);
    assert!(store.update(Vec::new(), |_| true, 100).is_empty());
    assert!(store.update(vec![condition(Severity::Warning, 1)], |_| true, 200).is_empty());
    assert!(store.update(Vec::new(), |_| true, 300).is_empty());
    assert!(store.update(Vec::new(), |_| true, 599).is_empty());
    assert_eq!(titles(&store.update(Vec::new(), |_| true, 600)), ["Over: Pool tank is at 1"]);
    assert_eq!(store.alerts()[0].state, AlertState::Ended);
    // a new one sends a message again
    assert_eq!(store.update(vec![condition(Severity::Warning, 1)], |_| true, 700).len(), 1);
    assert_eq!(store.alerts().len(), 2);
}

#[test]
fn undelivered_messages_are_tried_again() {
    let mut store = AlertStore::default();
    let message = store.update(vec![condition(Severity::Warning, 1)], |_| true, 1000).remove(0);
    store.queue(&message, &["mail".to_owned(), "ntfy".to_owned()]);
    assert_eq!(store.next_due(1000).unwrap().0, "mail");
    assert!(!store.failed("mail", &message, "no route", 1000));
    assert_eq!(store.next_due(1000).unwrap().0, "ntfy");
    store.delivered("ntfy", &message);
    assert_eq!(store.next_due(1009), None);
    assert_eq!(store.undelivered(), ["1 message waits for mail: no route"]);
    // the store is read again after a restart
    let text = serde_json::to_string(&store).unwrap();
    let mut store: AlertStore = serde_json::from_str(&text).unwrap();
    assert_eq!(store.next_due(1010).unwrap().1, message);
    assert!(store.update(vec![condition(Severity::Warning, 1)], |_| true, 1010).is_empty());
    assert!(store.failed("mail", &message, "no route", 1000 + 3 * 24 * 60 * 60));
    assert_eq!(store.next_due(u64::MAX), None);
}

#[test]
fn queue_is_bounded() {
    let mut store = AlertStore::default();
    let message = store.update(vec![condition(Severity::Warning, 1)], |_| true, 0).remove(0);
    for time in 0..1000 {
        store.queue(&Message { time, ..message.clone() }, &["mail".to_owned()]);
    }
    assert_eq!(store.next_due(u64::MAX).unwrap().1.time, 800);
    store.keep_channels(&["ntfy".to_owned()]);
    assert_eq!(store.next_due(u64::MAX), None);
}

#[test]
fn alerts_stay_while_nothing_is_known() {
    let mut store = AlertStore::default();
    store.update(vec![condition(Severity::Warning, 1)], |_| true, 0);
    for now in [10, 1000, 10_000] {
        assert!(store.update(Vec::new(), |_| false, now).is_empty());
    }
    assert!(store.update(vec![condition(Severity::Warning, 1)], |_| true, 10_001).is_empty());
}

#[test]
fn all_well_comes_weekly_unless_something_is_wrong() {
    const DAY: u64 = 24 * 60 * 60;
    let mut store = AlertStore::default();
    let week = Some(Duration::from_hours(7 * 24));
    let ask = |store: &mut AlertStore, day: u64| store.all_well(week, "3 pools", day * DAY);
    assert_eq!(ask(&mut store, 100), None);
    assert_eq!(ask(&mut store, 106), None);
    let message = ask(&mut store, 107).unwrap();
    assert_eq!((message.title.as_str(), message.text.as_str()), ("All is well", "3 pools"));
    assert_eq!(ask(&mut store, 107), None);
    store.update(vec![condition(Severity::Warning, 0)], |_| true, 108 * DAY);
    assert_eq!(ask(&mut store, 120), None);
    store.update(Vec::new(), |_| true, 120 * DAY);
    store.update(Vec::new(), |_| true, 121 * DAY);
    assert!(ask(&mut store, 121).is_some());
    assert_eq!(store.all_well(None, "", 500 * DAY), None);
}
