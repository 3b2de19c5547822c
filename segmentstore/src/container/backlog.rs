//! What is not in objects yet, and when it is due: pure.
//!
//! A segment with enough bytes gets objects of its own; the rest is packed together. Times are lower bounds of when the
//! oldest byte of a segment was appended, so that "nothing older than" is never said too early.

use crate::types::SegmentId;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// When bytes are due.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A segment with this many bytes gets an object of its own.
    pub own_bytes: u64,
    /// Bytes of segments that an object holds at most, when it is not a single larger append.
    pub object_bytes: u64,
    /// The rest is packed once it has this many bytes.
    pub packed_bytes: u64,
    /// Or once its oldest byte has this age.
    pub age: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            own_bytes: 8 * MIB,
            object_bytes: 64 * MIB,
            packed_bytes: 64 * MIB,
            age: Duration::from_mins(2),
        }
    }
}

/// An object to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Job {
    /// It is a large part of one segment.
    pub(super) alone: bool,
    /// Segments, each with how many of its oldest un-tiered bytes may go in.
    pub(super) parts: Vec<(SegmentId, u64)>,
}

#[derive(Debug)]
struct Upload {
    /// When the bytes were looked at.
    at: Instant,
    /// It takes all that the segment had then.
    whole: bool,
    /// Age of bytes that came by a merge since.
    late: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    since: Instant,
    upload: Option<Upload>,
}

/// Segments with bytes that lie in the log only.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: BTreeMap<SegmentId, Waiting>,
    /// When time was last told.
    now: Instant,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), now: Instant::now() }
    }
}

impl Backlog {
    /// Bytes were appended.
    pub(super) fn grow(&mut self, id: SegmentId, bytes: u64) {
        self.entry(id).bytes += bytes;
    }

    fn entry(&mut self, id: SegmentId) -> &mut Waiting {
        let since = self.now;
        self.waiting.entry(id).or_insert(Waiting { bytes: 0, since, upload: None })
    }

    /// A segment has this many bytes in the log now.
    pub(super) fn set(&mut self, id: SegmentId, bytes: u64) {
        if bytes == 0 {
            self.waiting.remove(&id);
        } else {
            self.entry(id).bytes = bytes;
        }
    }

    /// All bytes of `source`, `placed` of them in the log, are the target's.
    pub(super) fn adopt(&mut self, target: SegmentId, source: SegmentId, placed: u64) {
        let Some(source) = self.waiting.remove(&source) else { return };
        if placed == 0 {
            return;
        }
        let target = self.entry(target);
        target.bytes += placed;
        target.since = target.since.min(source.since);
        if let Some(upload) = &mut target.upload {
            upload.late = Some(upload.late.map_or(source.since, |late| late.min(source.since)));
        }
    }

    /// Whether a byte that was appended at or before `time` lies in the log only.
    pub(super) fn has_older(&self, time: Instant) -> bool {
        self.waiting.values().any(|waiting| waiting.since <= time)
    }

    /// Says what is due now and counts it as under way: at most `jobs_max` objects. `all` makes everything due.
    pub(super) fn take_due(&mut self, now: Instant, rules: &Rules, all: bool, jobs_max: usize) -> Vec<Job> {
        self.now = now;
        let mut jobs: Vec<Job> = Vec::new();
        let (mut rest, mut rest_bytes, mut oldest) = (Vec::new(), 0, now);
        for (id, waiting) in &self.waiting {
            if waiting.upload.is_some() || jobs.len() >= jobs_max {
                continue;
            }
            if waiting.bytes >= rules.own_bytes {
                jobs.push(Job { alone: true, parts: vec![(*id, rules.object_bytes)] });
            } else {
                rest.push((*id, waiting.bytes));
                rest_bytes += waiting.bytes;
                oldest = oldest.min(waiting.since);
            }
        }
        let due = all || rest_bytes >= rules.packed_bytes || now.duration_since(oldest) >= rules.age;
        if due && !rest.is_empty() {
            pack(&rest, rules.object_bytes, &mut jobs);
            jobs.truncate(jobs_max);
        }
        for (id, room) in jobs.iter().flat_map(|job| &job.parts) {
            if let Some(waiting) = self.waiting.get_mut(id) {
                waiting.upload = Some(Upload { at: now, whole: waiting.bytes <= *room, late: None });
            }
        }
        jobs
    }

    /// The objects that held these segments' bytes are stored, or given up (`stored` is false).
    pub(super) fn ended(&mut self, segments: impl IntoIterator<Item = SegmentId>, stored: bool) {
        for id in segments {
            let Some(waiting) = self.waiting.get_mut(&id) else { continue };
            let Some(upload) = waiting.upload.take() else { continue };
            if upload.whole && stored {
                waiting.since = upload.late.unwrap_or(upload.at).min(upload.at);
            }
        }
    }
}

/// Puts segments into as few objects as their order allows.
fn pack(rest: &[(SegmentId, u64)], object_bytes: u64, jobs: &mut Vec<Job>) {
    let (mut job, mut room) = (Job::default(), object_bytes);
    for (id, bytes) in rest {
        if *bytes > room && !job.parts.is_empty() {
            jobs.push(std::mem::take(&mut job));
            room = object_bytes;
        }
        room = room.saturating_sub(*bytes);
        job.parts.push((*id, object_bytes));
    }
    jobs.push(job);
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules =
        Rules { own_bytes: 100, object_bytes: 300, packed_bytes: 200, age: Duration::from_secs(10) };
    const SECOND: Duration = Duration::from_secs(1);

    fn id(number: u64) -> SegmentId {
        SegmentId(number)
    }

    fn segments(jobs: &[Job]) -> Vec<(bool, Vec<u64>)> {
        let ids = |job: &Job| job.parts.iter().map(|(id, _)| id.0).collect();
        jobs.iter().map(|job| (job.alone, ids(job))).collect()
    }

    #[test]
    fn large_segment_is_due_at_once_and_small_ones_by_sum_or_age() {
        let mut backlog = Backlog::default();
        let start = Instant::now();
        backlog.grow(id(1), 100);
        backlog.grow(id(2), 99);
        assert_eq!(segments(&backlog.take_due(start, &RULES, false, 4)), [(true, vec![1])]);
        assert_eq!(backlog.take_due(start + SECOND * 9, &RULES, false, 4), []);
        backlog.grow(id(3), 99);
        assert_eq!(backlog.take_due(start + SECOND * 9, &RULES, false, 4), [], "198 bytes, 9 seconds");
        let due = backlog.take_due(start + SECOND * 11, &RULES, false, 4);
        assert_eq!(segments(&due), [(false, vec![2, 3])], "what is younger goes along");
        backlog.grow(id(4), 99);
        backlog.grow(id(5), 99);
        backlog.grow(id(6), 2);
        let due = backlog.take_due(start + SECOND * 11, &RULES, false, 4);
        assert_eq!(segments(&due), [(false, vec![4, 5, 6])]);
    }

    #[test]
    fn segment_is_in_one_upload_at_a_time_and_jobs_are_bounded() {
        let mut backlog = Backlog::default();
        let now = Instant::now();
        (1..=5).for_each(|number| backlog.grow(id(number), 100));
        assert_eq!(backlog.take_due(now, &RULES, true, 0), []);
        let first = backlog.take_due(now, &RULES, true, 3);
        assert_eq!(segments(&first), [(true, vec![1]), (true, vec![2]), (true, vec![3])]);
        let second = backlog.take_due(now, &RULES, true, 4);
        assert_eq!(segments(&second), [(true, vec![4]), (true, vec![5])]);
        assert_eq!(backlog.take_due(now, &RULES, true, 4), []);
        backlog.ended([id(1)], false);
        assert_eq!(segments(&backlog.take_due(now, &RULES, true, 4)), [(true, vec![1])]);
    }

    #[test]
    fn bytes_are_as_old_as_what_was_not_stored_of_them() {
        let mut backlog = Backlog::default();
        let start = Instant::now();
        assert_eq!(backlog.take_due(start, &RULES, false, 4), []);
        backlog.grow(id(1), 50);
        let upload = start + SECOND * 5;
        assert_eq!(backlog.take_due(upload, &RULES, true, 4).len(), 1);
        backlog.grow(id(1), 1);
        assert!(backlog.has_older(start), "an upload under way stores nothing yet");
        backlog.ended([id(1)], false);
        assert!(backlog.has_older(start), "nor does one that was given up");
        assert_eq!(backlog.take_due(upload, &RULES, true, 4).len(), 1);
        backlog.ended([id(1)], true);
        backlog.set(id(1), 1);
        assert!(!backlog.has_older(upload - SECOND) && backlog.has_older(upload));
        backlog.set(id(1), 0);
        assert!(!backlog.has_older(upload + SECOND));
    }

    #[test]
    fn merged_bytes_keep_their_age_though_their_new_segment_is_being_uploaded() {
        let mut backlog = Backlog::default();
        let start = Instant::now();
        assert_eq!(backlog.take_due(start, &RULES, false, 4), []);
        backlog.grow(id(2), 10);
        assert_eq!(backlog.take_due(start + SECOND, &RULES, false, 4), []);
        backlog.grow(id(1), 100);
        assert_eq!(segments(&backlog.take_due(start + SECOND * 2, &RULES, false, 4)), [(true, vec![1])]);
        backlog.adopt(id(1), id(2), 10);
        backlog.ended([id(1)], true);
        backlog.set(id(1), 10);
        assert!(backlog.has_older(start));
    }

    #[test]
    fn packed_objects_hold_no_more_than_they_may() {
        let mut backlog = Backlog::default();
        (1..=7).for_each(|number| backlog.grow(id(number), 90));
        let due = backlog.take_due(Instant::now(), &RULES, true, 4);
        assert_eq!(segments(&due), [(false, vec![1, 2, 3]), (false, vec![4, 5, 6]), (false, vec![7])]);
    }
}
