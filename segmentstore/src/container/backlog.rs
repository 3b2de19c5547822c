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
