//! Redaction laid over a walk: segments of objects whose blocks a stream leaves out, or sends again.
//!
//! A stream can leave out the blocks of one redaction list, and its base can be the bookmark of another. The blocks of
//! the first are redacted. Those that both have are left alone: the receiver does not have them. Those that only the
//! base has are sent, also if they did not change.

use std::collections::VecDeque;

use ondisk::dsl::RedactedBlocks;

use crate::ResumePoint;

/// The use of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// A REDACT record takes the place of its blocks.
    Redact,
    /// The receiver lacks it and will lack it.
    Skip,
    /// It is sent, as the receiver lacks it.
    Restore,
}

/// A run of blocks of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) object: u64,
    pub(crate) first: u64,
    /// The block after the last.
    pub(crate) end: u64,
    /// Bytes of a block.
    pub(crate) block_size: u64,
    pub(crate) action: Action,
}

impl Segment {
    const fn of(run: &RedactedBlocks, action: Action) -> Self {
        Self {
            object: run.object.get(),
            first: run.first.get(),
            // a list from a disk may have any numbers
            end: match run.first.get().checked_add(run.count) {
                Some(end) => end,
                None => u64::MAX,
            },
            block_size: run.block_size,
            action,
        }
    }
}

/// A part of a walk's range, or a segment, in the order in which they are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Blocks of the walk: the first, and the one after the last.
    Walked(u64, u64),
    Segment(Segment),
}

/// The segments that were not sent yet, by object and block.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    left: VecDeque<Segment>,
}

impl Overlay {
    /// Lays the list of the stream over that of its base.
    pub(crate) fn new(redacted: &[RedactedBlocks], missing: &[RedactedBlocks]) -> Self {
        let mut redacted: VecDeque<_> =
            redacted.iter().map(|run| Segment::of(run, Action::Redact)).collect();
        let mut missing: VecDeque<_> =
            missing.iter().map(|run| Segment::of(run, Action::Restore)).collect();
        let mut left = VecDeque::new();
        while let (Some(one), Some(other)) = (redacted.front_mut(), missing.front_mut()) {
            let (a, b) = ((one.object, one.first), (other.object, other.first));
            let (lower, bound) = if a <= b { (&mut *one, b) } else { (&mut *other, a) };
            // the part before the other list's segment stands alone
            let end = if lower.object < bound.0 { lower.end } else { lower.end.min(bound.1) };
            if lower.first < end {
                left.push_back(Segment { end, ..*lower });
                lower.first = end;
            } else if a == b {
                let end = one.end.min(other.end);
                left.push_back(Segment { end, action: Action::Skip, ..*one });
                (one.first, other.first) = (end, end);
            }
            redacted.pop_front_if(|segment| segment.first >= segment.end);
            missing.pop_front_if(|segment| segment.first >= segment.end);
        }
        left.extend(redacted);
        left.extend(missing);
        Self { left }
    }

    /// Drops the segments before the position at which a stream resumes.
    pub(crate) fn skip_to(&mut self, point: ResumePoint) {
        while let Some(front) = self.left.front_mut() {
            let block = point.offset.checked_div(front.block_size).unwrap_or(0);
            if front.object > point.object || (front.object == point.object && front.end > block) {
                if front.object == point.object {
                    front.first = front.first.max(block);
                }
                return;
            }
            self.left.pop_front();
        }
    }

    /// The next segment of an object before this one.
    pub(crate) fn pop_before_object(&mut self, object: u64) -> Option<Segment> {
        self.left.pop_front_if(|segment| segment.object < object)
    }

    /// The next segment of an object.
    pub(crate) fn pop_of_object(&mut self, object: u64) -> Option<Segment> {
        self.left.pop_front_if(|segment| segment.object == object)
    }

    /// Whether no segment is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Splits a range of a walk by the segments that overlap or precede it. The segment that goes on behind it stays.
    pub(crate) fn split(&mut self, object: u64, first: u64, end: u64) -> Vec<Part> {
        let (mut parts, mut at) = (Vec::new(), first);
        while let Some(segment) = self.left.pop_front_if(|it| it.object == object && it.first < end)
        {
            if segment.first < at {
                let cut = segment.end.min(at);
                parts.push(Part::Segment(Segment { end: cut, ..segment }));
                self.put_back(segment, cut);
                continue;
            }
            let cut = segment.end.min(end);
            if segment.action == Action::Restore {
                // the walk has those blocks, too
                parts.push(Part::Walked(at, cut));
            } else {
                if at < segment.first {
                    parts.push(Part::Walked(at, segment.first));
                }
                parts.push(Part::Segment(Segment { end: cut, ..segment }));
            }
            at = cut;
            self.put_back(segment, cut);
        }
        if at < end {
            parts.push(Part::Walked(at, end));
        }
        parts
    }

    /// The rest of a segment from a block on is next again.
    fn put_back(&mut self, segment: Segment, first: u64) {
        if first < segment.end {
            self.left.push_front(Segment { first, ..segment });
        }
    }
}

#[cfg(test)]
mod tests {
    use ondisk::dsl::RedactedBlocks;
    use units::{BlockId, ObjectId};

    use super::{Action, Overlay, Part, Segment};

    fn run(object: u64, first: u64, count: u64) -> RedactedBlocks {
        let (object, first) = (ObjectId::new(object), BlockId::new(first));
        RedactedBlocks { object, first, count, block_size: 512 }
    }

    fn segment(object: u64, first: u64, end: u64, action: Action) -> Segment {
        Segment { object, first, end, block_size: 512, action }
    }

    #[test]
    fn blocks_of_both_lists_are_skipped() {
        let mut overlay = Overlay::new(
            &[run(2, 0, 4), run(5, 1, 1)],
            &[run(1, 0, 1), run(2, 2, 4), run(6, 0, 1)],
        );
        let mut found = Vec::new();
        while let Some(next) = overlay.pop_before_object(u64::MAX) {
            found.push(next);
        }
        let expected = [
            segment(1, 0, 1, Action::Restore),
            segment(2, 0, 2, Action::Redact),
            segment(2, 2, 4, Action::Skip),
            segment(2, 4, 6, Action::Restore),
            segment(5, 1, 2, Action::Redact),
            segment(6, 0, 1, Action::Restore),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn redaction_overrides_walk_and_restore_does_not() {
        let mut overlay = Overlay::new(&[run(1, 2, 2)], &[run(1, 0, 1), run(1, 6, 4)]);
        let parts = overlay.split(1, 1, 8);
        let expected = [
            Part::Segment(segment(1, 0, 1, Action::Restore)),
            Part::Walked(1, 2),
            Part::Segment(segment(1, 2, 4, Action::Redact)),
            Part::Walked(4, 8),
        ];
        assert_eq!(parts, expected);
        assert_eq!(overlay.pop_of_object(1), Some(segment(1, 8, 10, Action::Restore)));
        assert!(overlay.is_empty());
    }
}
