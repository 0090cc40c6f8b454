//! The book: once, again when worse, over.

use alerts::{AlertBook, AlertState, Condition, Message, Severity};

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

fn told(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.title.as_str()).collect()
}

#[test]
fn conditions_are_told_once_and_when_worse() {
    let mut book = AlertBook::default();
    let first = book.update(vec![condition(Severity::Warning, 1)], |_| true, 10);
    assert_eq!(told(&first), ["Pool tank is at 1"]);
    assert_eq!(first[0].text, "Its data can be read. See: poolhouse zpool status tank");
    assert!(book.update(vec![condition(Severity::Warning, 1)], |_| true, 20).is_empty());
    assert_eq!(book.update(vec![condition(Severity::Warning, 2)], |_| true, 30).len(), 1);
    // better, and then as bad as before
    assert!(book.update(vec![condition(Severity::Warning, 1)], |_| true, 40).is_empty());
    assert!(book.update(vec![condition(Severity::Warning, 2)], |_| true, 50).is_empty());
    assert_eq!(book.update(vec![condition(Severity::Critical, 0)], |_| true, 60).len(), 1);
    assert!(book.update(vec![condition(Severity::Warning, 9)], |_| true, 70).is_empty());
}

#[test]
fn short_absence_is_no_end() {
    let mut book = AlertBook::default();
    book.update(vec![condition(Severity::Warning, 1)], |_| true, 0);
    assert!(book.update(Vec::new(), |_| true, 100).is_empty());
    assert!(book.update(vec![condition(Severity::Warning, 1)], |_| true, 200).is_empty());
    assert!(book.update(Vec::new(), |_| true, 300).is_empty());
    assert!(book.update(Vec::new(), |_| true, 599).is_empty());
    assert_eq!(told(&book.update(Vec::new(), |_| true, 600)), ["Over: Pool tank is at 1"]);
    assert_eq!(book.alerts()[0].state, AlertState::Ended);
    // a new one is told again
    assert_eq!(book.update(vec![condition(Severity::Warning, 1)], |_| true, 700).len(), 1);
    assert_eq!(book.alerts().len(), 2);
}

#[test]
fn undelivered_messages_are_tried_again() {
    let mut book = AlertBook::default();
    let message = book.update(vec![condition(Severity::Warning, 1)], |_| true, 1000).remove(0);
    book.queue(&message, &["mail".to_owned(), "ntfy".to_owned()]);
    assert_eq!(book.next_due(1000).unwrap().0, "mail");
    assert!(!book.failed("mail", &message, "no route", 1000));
    assert_eq!(book.next_due(1000).unwrap().0, "ntfy");
    book.delivered("ntfy", &message);
    assert_eq!(book.next_due(1009), None);
    assert_eq!(book.undelivered(), ["1 message waits for mail: no route"]);
    // the book is read again after a restart
    let text = serde_json::to_string(&book).unwrap();
    let mut book: AlertBook = serde_json::from_str(&text).unwrap();
    assert_eq!(book.next_due(1010).unwrap().1, message);
    assert!(book.update(vec![condition(Severity::Warning, 1)], |_| true, 1010).is_empty());
    assert!(book.failed("mail", &message, "no route", 1000 + 3 * 24 * 60 * 60));
    assert_eq!(book.next_due(u64::MAX), None);
}

#[test]
fn queue_is_bounded() {
    let mut book = AlertBook::default();
    let message = book.update(vec![condition(Severity::Warning, 1)], |_| true, 0).remove(0);
    for time in 0..1000 {
        book.queue(&Message { time, ..message.clone() }, &["mail".to_owned()]);
    }
    assert_eq!(book.next_due(u64::MAX).unwrap().1.time, 800);
    book.keep_channels(&["ntfy".to_owned()]);
    assert_eq!(book.next_due(u64::MAX), None);
}

#[test]
fn alerts_stay_while_nothing_is_known() {
    let mut book = AlertBook::default();
    book.update(vec![condition(Severity::Warning, 1)], |_| true, 0);
    for now in [10, 1000, 10_000] {
        assert!(book.update(Vec::new(), |_| false, now).is_empty());
    }
    assert!(book.update(vec![condition(Severity::Warning, 1)], |_| true, 10_001).is_empty());
}
