//! Bringing bytes from the log to objects, and deleting objects that nothing names any more.
//!
//! The task decides and records; what waits for the object store runs on the storage runtime and reports back. No
//! upload waits for another, an upload is repeated until it succeeds or the container ends, and only an admitted record
//! makes what it brought readable.

use super::backlog::{Job, Rules};
use super::regroup::LEVEL_MAX;
use super::task::{Event, Failure, Task};
use crate::log::Log;
use crate::operation::{Answer, Call, Extent, Refusal};
use crate::read::{ColdCache, Pins, log_chunks};
use crate::state::{Piece, Pieces};
use crate::tier::{BuiltObject, ObjectBuilder, Objects, TierError, Uploads};
use crate::types::{ContainerId, ObjectId, SegmentId, SequenceNumber};
use dhara_stdx::chain;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// Objects under way at one time.
pub(crate) const UPLOADS_MAX: usize = 4;
/// Names planned at one time.
const NAMES: u32 = 64;
/// First wait before an upload is repeated; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest such wait.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// An upload that takes too long gets twice as much time each time, up to so many times as much as the first.
const PATIENCE_MAX: u32 = 64;
/// Objects deleted in one step.
const DELETES_MAX: usize = 64;
/// Deletions in a row that may fail before it is taken for an outage.
const REFUSALS_MAX: u32 = 4;
/// A stored range keeps one append boundary for each of this many bytes.
const BOUNDARY_BYTES: u64 = 1024 * 1024;

/// What a container needs to have long-term storage.
#[derive(Clone, Debug)]
pub struct Tier {
    /// The container's objects.
    pub objects: Objects,
    /// What all containers share for writing objects.
    pub uploads: Uploads,
    /// What all containers share for reading objects.
    pub cache: ColdCache,
    /// When bytes are due.
    pub rules: Rules,
    /// How long an object stays after its last extent has gone; longer than any read takes.
    pub grace: Duration,
}

/// An object that is up.
pub(super) struct Uploaded {
    /// Number of the job.
    job: u64,
    pub(super) object: ObjectId,
    pub(super) level: u8,
    pub(super) bytes: u32,
    pub(super) ranges: Vec<Extent>,
    segments: Vec<SegmentId>,
    /// Segments of which something did not go in.
    left_out: Vec<SegmentId>,
}

impl Uploaded {
    /// Nothing of this object is up.
    pub(super) fn none(object: ObjectId, level: u8) -> Self {
        let (ranges, segments, left_out) = (Vec::new(), Vec::new(), Vec::new());
        Self { job: 0, object, level, bytes: 0, ranges, segments, left_out }
    }
}

/// Somebody waits until the log is not needed.
struct Asked {
    call: Call,
    at: Instant,
    after: SequenceNumber,
    /// Known once everything older than `at` lies in objects.
    index_upto: Option<SequenceNumber>,
}

/// Where the container stands with its objects.
pub(super) struct Tiering {
    pub(super) tier: Tier,
    /// Objects that are being read.
    pins: Pins,
    /// Names that may be used.
    pub(super) names: VecDeque<ObjectId>,
    /// Names whose record is not applied yet.
    planned: Option<(SequenceNumber, ObjectId)>,
    ready: VecDeque<Job>,
    uploads: usize,
    /// Segments whose bytes are in the object of a job once the record is applied.
    settling: VecDeque<(SequenceNumber, u64, Vec<SegmentId>)>,
    asked: Vec<Asked>,
    /// Dead objects, and since when this owner knows.
    dead: BTreeMap<ObjectId, Instant>,
    deleting: bool,
    pub(super) work: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Tiering {
    pub(super) fn new(tier: Tier, pins: Pins) -> Self {
        Self {
            tier,
            pins,
            names: VecDeque::new(),
            planned: None,
            ready: VecDeque::new(),
            uploads: 0,
            settling: VecDeque::new(),
            asked: Vec::new(),
            dead: BTreeMap::new(),
            deleting: false,
            work: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Ends everything under way; who waits for a flush hears that it did not come to pass.
    pub(super) async fn end(&mut self) {
        self.stop.cancel();
        self.work.close();
        self.work.wait().await;
        self.refuse_all();
    }

    fn refuse_all(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            (asked.call)(Err(Refusal::Unavailable));
        }
    }
}

/// However the container's task ends, by a panic too: what a later owner has given up must not be put again.
impl Drop for Tiering {
    fn drop(&mut self) {
        self.stop.cancel();
        self.refuse_all();
    }
}

impl Task {
    /// Starts what is due.
    pub(super) fn tier_if_due(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        // Under pressure everything is due, so that the log's floor can rise.
        let all = !self.tiering.asked.is_empty()
            || self.log.room().is_pressed()
            || self.work.pressure.wants_tiering(self.publisher.marks.places());
        let jobs_max = UPLOADS_MAX.saturating_sub(self.tiering.uploads + self.tiering.ready.len());
        let rules = self.tiering.tier.rules;
        let jobs = self.publisher.backlog.take_due(now, &rules, all, jobs_max);
        self.tiering.ready.extend(jobs);
        self.start_uploads()?;
        self.regroup_if_due(now)?;
        self.collect(now)
    }

    fn start_uploads(&mut self) -> Result<(), Failure> {
        while !self.tiering.ready.is_empty() {
            let Some(name) = self.tiering.names.pop_front() else { return self.plan_names() };
            if let Some(job) = self.tiering.ready.pop_front() {
                self.start_upload(name, &job);
            }
        }
        Ok(())
    }

    pub(super) fn plan_names(&mut self) -> Result<(), Failure> {
        if self.tiering.planned.is_some() {
            return Ok(());
        }
        let mut records = std::mem::take(&mut self.work.records);
        let first = self.state.admit_plan(NAMES, &mut records);
        self.stage_all(records);
        let staged = SequenceNumber(self.state.next_sequence().0 - 1);
        self.tiering.planned = Some((staged, first));
        self.submit()
    }

    fn start_upload(&mut self, object: ObjectId, job: &Job) {
        let mut runs = Vec::new();
        for (segment, room) in &job.parts {
            if let Some(view) = self.publisher.view(*segment) {
                runs.extend(
                    view.pieces(|pieces| places(pieces, *room)).into_iter().map(|run| (*segment, run)),
                );
            }
        }
        let upload = Upload {
            container: self.id,
            job: job.number,
            object,
            level: if job.alone { LEVEL_MAX } else { 0 },
            created_ms: self.clock.wall_ms(),
            runs,
            segments: job.parts.iter().map(|(segment, _)| *segment).collect(),
            log: Arc::clone(&self.log),
            objects: self.tiering.tier.objects.clone(),
            uploads: self.tiering.tier.uploads.clone(),
        };
        self.tiering.uploads += 1;
        let (events, stop) = (self.event_sender.clone(), self.tiering.stop.clone());
        drop(self.tiering.work.spawn_on(
            async move {
                tokio::select! { biased;
                    // Final; nothing can starve behind it.
                    () = stop.cancelled() => {}
                    uploaded = upload.run() => {
                        let _ended = events.send(Event::Uploaded(uploaded)).await;
                    }
                }
            },
            &self.storage,
        ));
    }

    pub(super) fn uploaded(&mut self, uploaded: Uploaded) -> Result<(), Failure> {
        let Uploaded { job, object, level, bytes, ranges, mut segments, left_out } = uploaded;
        self.tiering.uploads -= 1;
        // They may go into another object before this one's record is applied, and that must not end with it.
        let incomplete: BTreeSet<SegmentId> = left_out.iter().copied().collect();
        segments.retain(|segment| !incomplete.contains(segment));
        self.publisher.backlog.ended(job, left_out, false);
        let mut records = std::mem::take(&mut self.work.records);
        let publisher = &self.publisher;
        let fits = |extent: &Extent| {
            publisher
                .view(extent.segment)
                .is_some_and(|view| view.pieces(|pieces| pieces.are_places(extent.offset, extent.end())))
        };
        self.state.admit_extents((object, level, bytes), &ranges, fits, &mut records);
        self.stage_all(records);
        let staged = SequenceNumber(self.state.next_sequence().0 - 1);
        self.tiering.settling.push_back((staged, job, segments));
        self.submit()?;
        self.start_uploads()
    }

    /// Goes on with what waited for records to be applied.
    pub(super) fn tiering_applied(&mut self) -> Result<(), Failure> {
        let applied = self.state.applied_upto();
        let mut settled = false;
        while let Some((_, job, segments)) =
            self.tiering.settling.pop_front_if(|(after, _, _)| *after <= applied)
        {
            self.publisher.backlog.ended(job, segments, true);
            settled = true;
        }
        if settled {
            self.raise_floor();
        }
        if let Some((_, first)) = self.tiering.planned.take_if(|(after, _)| *after <= applied) {
            let names = (first.counter..first.counter + NAMES).map(|counter| ObjectId { counter, ..first });
            self.tiering.names.extend(names);
            self.start_uploads()?;
        }
        if self.tiering.asked.is_empty() { Ok(()) } else { self.answer_asked() }
    }

    /// Somebody asks that the log be not needed for anything acknowledged so far.
    pub(super) fn flush_all(&mut self, call: Call) -> Result<(), Failure> {
        let after = SequenceNumber(self.state.next_sequence().0 - 1);
        self.tiering.asked.push(Asked { call, at: Instant::now(), after, index_upto: None });
        self.tier_if_due()?;
        self.answer_asked()
    }

    pub(super) fn answer_asked(&mut self) -> Result<(), Failure> {
        let applied = self.state.applied_upto();
        let mut waiting = Vec::new();
        for mut asked in std::mem::take(&mut self.tiering.asked) {
            let stored = applied >= asked.after && !self.publisher.backlog.has_older(asked.at);
            if stored && asked.index_upto.is_none() {
                asked.index_upto = Some(applied);
            }
            match asked.index_upto {
                Some(upto) if upto <= self.index.applied() => (asked.call)(Ok(Answer::Done)),
                _ => waiting.push(asked),
            }
        }
        let flush = waiting.iter().any(|asked| asked.index_upto.is_some());
        let more = waiting.iter().any(|asked| asked.index_upto.is_none());
        self.tiering.asked = waiting;
        if flush {
            self.start_flush();
        }
        if more { self.tier_if_due() } else { Ok(()) }
    }

    /// Gives up objects that nothing names, and deletes those that were given up long enough ago.
    fn collect(&mut self, now: Instant) -> Result<(), Failure> {
        if self.state.has_unused_objects() {
            let mut records = std::mem::take(&mut self.work.records);
            self.state.admit_dead(&mut records);
            self.stage_all(records);
            self.submit()?;
        }
        for id in self.state.dead_objects() {
            self.tiering.dead.entry(id).or_insert(now);
        }
        if self.tiering.deleting {
            return Ok(());
        }
        let Tiering { dead, pins, tier, .. } = &self.tiering;
        let due = dead
            .iter()
            .filter(|(id, since)| now.duration_since(**since) >= tier.grace && !pins.is_pinned(**id));
        let due: Vec<ObjectId> = due.map(|(id, _)| *id).take(DELETES_MAX).collect();
        if due.is_empty() {
            return Ok(());
        }
        self.tiering.deleting = true;
        let (events, stop) = (self.event_sender.clone(), self.tiering.stop.clone());
        let objects = self.tiering.tier.objects.clone();
        drop(self.tiering.work.spawn_on(
            async move {
                tokio::select! { biased;
                    // Final; nothing can starve behind it.
                    () = stop.cancelled() => {}
                    deleted = delete(&objects, due) => {
                        let _ended = events.send(Event::ObjectsDeleted(deleted)).await;
                    }
                }
            },
            &self.storage,
        ));
        Ok(())
    }

    pub(super) fn objects_deleted(&mut self, deleted: Deleted) -> Result<(), Failure> {
        let Deleted { gone, refused } = deleted;
        self.tiering.deleting = false;
        let now = Instant::now();
        for id in refused {
            self.tiering.dead.insert(id, now);
        }
        if gone.is_empty() {
            return Ok(());
        }
        for id in &gone {
            self.tiering.dead.remove(id);
        }
        let mut records = std::mem::take(&mut self.work.records);
        self.state.admit_gone(gone, &mut records);
        self.stage_all(records);
        self.submit()
    }
}

/// The oldest places of a segment, run by run: at most `room` bytes, but one piece whatever its size.
fn places(pieces: &Pieces, room: u64) -> Vec<Vec<Piece>> {
    let mut runs: Vec<Vec<Piece>> = Vec::new();
    let mut taken = 0;
    for piece in pieces.iter().filter(|piece| piece.is_place()) {
        if taken > 0 && taken + piece.length > room {
            break;
        }
        taken += piece.length;
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| last.end() == piece.offset) => run.push(*piece),
            _ => runs.push(vec![*piece]),
        }
    }
    runs
}

/// Offsets in a run where appends begin, one per MiB.
fn boundaries(run: &[Piece]) -> Vec<u32> {
    let mut kept = Vec::new();
    let Some(first) = run.first() else { return kept };
    let mut next = BOUNDARY_BYTES;
    for piece in run {
        let at = piece.offset - first.offset;
        if at >= next {
            kept.push(u32::try_from(at).unwrap_or(u32::MAX));
            next = at + BOUNDARY_BYTES;
        }
    }
    kept
}

struct Upload {
    container: ContainerId,
    job: u64,
    object: ObjectId,
    level: u8,
    created_ms: i64,
    runs: Vec<(SegmentId, Vec<Piece>)>,
    segments: Vec<SegmentId>,
    log: Arc<dyn Log>,
    objects: Objects,
    uploads: Uploads,
}

impl Upload {
    async fn run(self) -> Uploaded {
        let Self { container, job, object, level, created_ms, runs, segments, log, objects, uploads } = self;
        let (builder, ranges, left_out) =
            build(ObjectBuilder::new(container, object, level, created_ms), &runs, &*log);
        if ranges.is_empty() {
            return Uploaded { job, segments, left_out, ..Uploaded::none(object, level) };
        }
        let built = builder.finish();
        let bytes = u32::try_from(built.bytes).unwrap_or(u32::MAX);
        put(&objects, &built, &uploads, container).await;
        Uploaded { job, object, level, bytes, ranges, segments, left_out }
    }
}

/// Lays out an object. What has no room is left out, and what is not in the log any more: it was truncated or deleted.
fn build(
    mut builder: ObjectBuilder,
    runs: &[(SegmentId, Vec<Piece>)],
    log: &dyn Log,
) -> (ObjectBuilder, Vec<Extent>, Vec<SegmentId>) {
    let (mut ranges, mut left_out) = (Vec::with_capacity(runs.len()), Vec::new());
    for (segment, run) in runs {
        let Some(first) = run.first() else { continue };
        let chunks = log_chunks(log, run);
        let (true, Ok(chunks)) = (builder.fits(run.iter().map(|piece| piece.length).sum()), chunks) else {
            left_out.push(*segment);
            continue;
        };
        let stored = builder.range(*segment, first.offset, chunks, boundaries(run));
        ranges.push(Extent {
            segment: *segment,
            offset: first.offset,
            length: stored.length,
            skip: 0,
            stored,
        });
    }
    (builder, ranges, left_out)
}

/// Puts an object, again and again until it is there.
pub(super) async fn put(objects: &Objects, built: &BuiltObject, uploads: &Uploads, container: ContainerId) {
    let (mut wait, mut patience) = (RETRY_MIN, 1);
    let mut failed = false;
    while let Err(error) = put_once(objects, built, uploads, patience).await {
        if !failed {
            warn!(container = container.0, object = %built.id, error = chain(&error), "upload failed, it is repeated");
        }
        failed = true;
        patience = patience_after(&error, patience);
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_MAX);
    }
    if failed {
        info!(container = container.0, object = %built.id, "upload succeeded in the end");
    }
}

fn patience_after(error: &TierError, patience: u32) -> u32 {
    match error {
        TierError::TimedOut { .. } => (patience * 2).min(PATIENCE_MAX),
        _ => patience,
    }
}

async fn put_once(
    objects: &Objects,
    built: &BuiltObject,
    uploads: &Uploads,
    patience: u32,
) -> Result<(), TierError> {
    let turn = uploads.turn().await;
    let put = objects.put_patiently(built, patience).await;
    turn.end(put.is_ok());
    put
}

/// What came of deletions; those in neither list were not tried.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    gone: Vec<ObjectId>,
    /// They come again after a while, so that others have their turn.
    refused: Vec<ObjectId>,
}

/// Deletes objects, until several in a row cannot be: then the store is away.
async fn delete(objects: &Objects, due: Vec<ObjectId>) -> Deleted {
    let (mut deleted, mut in_a_row) = (Deleted::default(), 0);
    for id in due {
        match objects.delete(id).await {
            Ok(()) => {
                in_a_row = 0;
                deleted.gone.push(id);
            }
            Err(error) => {
                in_a_row += 1;
                warn!(object = %id, error = chain(&error), "delete failed, it is repeated");
                deleted.refused.push(id);
            }
        }
        if in_a_row == REFUSALS_MAX {
            tokio::time::sleep(RETRY_MAX).await;
            break;
        }
    }
    deleted
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};

    /// Slower than the time that an upload has at first, as a narrow line is.
    #[tokio::test(start_paused = true)]
    async fn store_that_is_slow_gets_each_object_in_the_end() {
        const TAKES: Duration = Duration::from_mins(3);
        let config = ThrottleConfig { wait_put_per_call: TAKES, ..ThrottleConfig::default() };
        let store = ThrottledStore::new(InMemory::new(), config);
        let (container, uploads) = (ContainerId(0), Uploads::new(UPLOADS_MAX));
        let objects = Objects::new(Arc::new(store), container);
        let object = |counter| {
            let mut builder = ObjectBuilder::new(container, ObjectId { epoch: 1, counter }, 0, 1);
            builder.range(SegmentId(1), 0, vec![Bytes::from_static(b"ten bytes!")], Vec::new());
            builder.finish()
        };
        let objects_to_put: Vec<BuiltObject> = (1..=3).map(object).collect();
        futures_util::future::join_all(
            objects_to_put.iter().map(|object| put(&objects, object, &uploads, container)),
        )
        .await;
        for object in &objects_to_put {
            objects.footer(object.id).await.unwrap();
        }
        assert_eq!(uploads.allowed(), UPLOADS_MAX, "each that succeeds allows one more");
    }

    #[tokio::test]
    async fn object_that_cannot_be_deleted_holds_up_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::new(crate::tier::local_store(folder.path()).unwrap(), ContainerId(0));
        let id = |counter| ObjectId { epoch: 1, counter };
        // What is in the way of a deletion for good: a folder.
        let refused = [1, 5].map(id);
        for id in &refused {
            std::fs::create_dir_all(folder.path().join(objects.path(*id).to_string()).join("full")).unwrap();
        }
        let deleted = delete(&objects, (1..=10).map(id).collect()).await;
        assert_eq!(deleted.refused, refused);
        assert_eq!(deleted.gone.len(), 8, "to delete what is not there is no failure");
    }
}
