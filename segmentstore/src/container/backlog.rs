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
    /// Tells it from other jobs.
    pub(super) number: u64,
    /// It is a large part of one segment.
    pub(super) alone: bool,
    /// Segments, each with how many of its oldest un-tiered bytes may go in.
    pub(super) parts: Vec<(SegmentId, u64)>,
}

#[derive(Debug)]
struct Upload {
    /// Number of the job: one of an earlier life of the segment's bytes, before a truncation of them all, may end later.
    job: u64,
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
    /// When it last had its turn, or has waited for it since.
    turn: Instant,
    upload: Option<Upload>,
}

/// Segments with bytes that lie in the log only.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: BTreeMap<SegmentId, Waiting>,
    /// When time was last told.
    now: Instant,
    /// Number of the next job.
    next_job: u64,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), now: Instant::now(), next_job: 1 }
    }
}

impl Backlog {
    /// Bytes were appended.
    pub(super) fn grow(&mut self, id: SegmentId, bytes: u64) {
        self.entry(id).bytes += bytes;
    }

    fn entry(&mut self, id: SegmentId) -> &mut Waiting {
        let now = self.now;
        self.waiting.entry(id).or_insert(Waiting { bytes: 0, since: now, turn: now, upload: None })
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

    /// Says what is due now and counts it as under way: at most `jobs_max` objects. `all` makes everything due. Whoever
    /// has waited longest for a turn has the next one, so that large segments leave room for small ones and for each other.
    pub(super) fn take_due(&mut self, now: Instant, rules: &Rules, all: bool, jobs_max: usize) -> Vec<Job> {
        self.now = now;
        if jobs_max == 0 {
            return Vec::new();
        }
        let mut due: Vec<(Instant, Job)> = Vec::new();
        let (mut rest, mut rest_bytes, mut oldest) = (Vec::new(), 0, now);
        for (id, waiting) in self.waiting.iter().filter(|(_, waiting)| waiting.upload.is_none()) {
            if waiting.bytes >= rules.own_bytes {
                let parts = vec![(*id, rules.object_bytes)];
                due.push((waiting.turn, Job { number: 0, alone: true, parts }));
            } else {
                rest.push((*id, waiting.bytes));
                rest_bytes += waiting.bytes;
                oldest = oldest.min(waiting.since);
            }
        }
        let rest_is_due = all || rest_bytes >= rules.packed_bytes || now.duration_since(oldest) >= rules.age;
        if rest_is_due && !rest.is_empty() {
            let turn = |job: &Job| {
                job.parts.iter().filter_map(|(id, _)| self.waiting.get(id)).map(|waiting| waiting.turn).min()
            };
            due.extend(
                pack(&rest, rules.object_bytes).into_iter().map(|job| (turn(&job).unwrap_or(now), job)),
            );
        }
        due.sort_by_key(|(turn, _)| *turn);
        let mut jobs: Vec<Job> = due.into_iter().take(jobs_max).map(|(_, job)| job).collect();
        for job in &mut jobs {
            job.number = self.next_job;
            self.next_job += 1;
            for (id, room) in &job.parts {
                let Some(waiting) = self.waiting.get_mut(id) else { continue };
                let whole = waiting.bytes <= *room;
                waiting.turn = now;
                waiting.upload = Some(Upload { job: job.number, at: now, whole, late: None });
            }
        }
        jobs
    }

    /// What the object of job `job` held of these segments is stored, or given up (`stored` is false).
    pub(super) fn ended(&mut self, job: u64, segments: impl IntoIterator<Item = SegmentId>, stored: bool) {
        for id in segments {
            let Some(waiting) = self.waiting.get_mut(&id) else { continue };
            let Some(upload) = waiting.upload.take_if(|upload| upload.job == job) else { continue };
            if upload.whole && stored {
                waiting.since = upload.late.unwrap_or(upload.at).min(upload.at);
            }
        }
    }
}

/// Puts segments into as few objects as their order allows.
fn pack(rest: &[(SegmentId, u64)], object_bytes: u64) -> Vec<Job> {
    let (mut jobs, mut job, mut room) = (Vec::new(), Job::default(), object_bytes);
    for (id, bytes) in rest {
        if *bytes > room && !job.parts.is_empty() {
            jobs.push(std::mem::take(&mut job));
            room = object_bytes;
        }
        room = room.saturating_sub(*bytes);
        job.parts.push((*id, object_bytes));
    }
    jobs.push(job);
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

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
        backlog.ended(first[0].number, [id(1)], false);
        assert_eq!(segments(&backlog.take_due(now, &RULES, true, 4)), [(true, vec![1])]);
    }

    #[test]
    fn large_segments_leave_turns_to_small_ones_and_to_each_other() {
        let mut backlog = Backlog::default();
        let start = Instant::now();
        assert_eq!(backlog.take_due(start, &RULES, false, 4), []);
        backlog.grow(id(9), 1);
        (1..=6).for_each(|number| backlog.grow(id(number), 1_000));
        let mut under_way: VecDeque<Job> = backlog.take_due(start, &RULES, false, 4).into();
        let mut turns: BTreeMap<u64, u32> = BTreeMap::new();
        for second in 1..=60 {
            // One object is stored each second, and the large segments have grown by as much as it took.
            let job = under_way.pop_front().unwrap();
            for (segment, _) in &job.parts {
                *turns.entry(segment.0).or_default() += 1;
            }
            backlog.ended(job.number, job.parts.iter().map(|(segment, _)| *segment), true);
            backlog.set(id(9), 1);
            under_way.extend(backlog.take_due(start + SECOND * second, &RULES, false, 1));
        }
        assert!((1..=6).all(|number| (8..=11).contains(&turns[&number])), "{turns:?}");
        assert!((3..=6).contains(&turns[&9]), "{turns:?}: once in each ten seconds, and some wait");
    }

    #[test]
    fn upload_of_bytes_that_were_truncated_says_nothing_of_those_that_came_later() {
        let mut backlog = Backlog::default();
        let start = Instant::now();
        assert_eq!(backlog.take_due(start, &RULES, false, 4), []);
        backlog.grow(id(1), 10);
        let first = backlog.take_due(start + SECOND, &RULES, true, 4);
        backlog.set(id(1), 0);
        backlog.grow(id(1), 10);
        let second = backlog.take_due(start + SECOND * 2, &RULES, true, 4);
        assert_eq!((first.len(), second.len()), (1, 1));
        backlog.ended(first[0].number, [id(1)], true);
        assert!(backlog.has_older(start + SECOND));
        backlog.ended(second[0].number, [id(1)], true);
        assert!(!backlog.has_older(start + SECOND));
    }

    #[test]
    fn bytes_are_as_old_as_what_was_not_stored_of_them() {
        let mut backlog = Backlog::default();
        let start = Instant::now();
        assert_eq!(backlog.take_due(start, &RULES, false, 4), []);
        backlog.grow(id(1), 50);
        let upload = start + SECOND * 5;
        let job = backlog.take_due(upload, &RULES, true, 4).remove(0);
        backlog.grow(id(1), 1);
        assert!(backlog.has_older(start), "an upload under way stores nothing yet");
        backlog.ended(job.number, [id(1)], false);
        assert!(backlog.has_older(start), "nor does one that was given up");
        let job = backlog.take_due(upload, &RULES, true, 4).remove(0);
        backlog.ended(job.number, [id(1)], true);
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
        let jobs = backlog.take_due(start + SECOND * 2, &RULES, false, 4);
        assert_eq!(segments(&jobs), [(true, vec![1])]);
        backlog.adopt(id(1), id(2), 10);
        backlog.ended(jobs[0].number, [id(1)], true);
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
