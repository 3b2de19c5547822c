//! Regrouping objects: what was packed together because it came at one time is laid out by segment.
//!
//! Sixteen packed objects of one level become objects of the next, each segment's ranges joined; what has become large
//! enough gets objects of its own and is left alone from then on. Once nothing new was packed for a while all that is
//! left is regrouped, and so are objects of which little is live. A byte is rewritten at most once a level, in a quarter
//! of the time at most.

use super::task::{Event, Failure, Task};
use super::tiering::{Uploaded, put};
use crate::operation::Extent;
use crate::state::{Object, Phase, State};
use crate::tier::{
    BLOCK_BYTES, BuiltObject, Footer, OBJECT_RANGES_MAX, ObjectBuilder, Objects, TierError, Uploads, verify,
};
use crate::types::{ContainerId, ObjectId, SegmentId};
use bytes::Bytes;
use dhara_stdx::chain;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// Level of objects that are not regrouped for their level.
pub(super) const LEVEL_MAX: u8 = 3;
/// Objects of one level that are regrouped together.
const GROUP: usize = 16;
/// Objects regrouped together once nothing new comes.
const QUIET_GROUP_MAX: usize = 64;
/// How long nothing may be packed until all that is left is regrouped.
const QUIET: Duration = Duration::from_mins(10);
/// How often objects are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// Wait after a failure.
const BACK_OFF: Duration = Duration::from_mins(5);
/// An object with less than this share of live bytes, in percent, is rewritten.
const LIVE_PERCENT_MIN: u64 = 30;
/// Dead bytes of such objects that make it worth while.
const DEAD_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// Extents taken from memory in one turn.
const TURN_EXTENTS_MAX: usize = 2_048;
/// Other work gets this many times the time that a regrouped object took.
const REST_FACTOR: u32 = 3;
/// But rest has an end: an outage of the store counts as time that it took.
const REST_MAX: Duration = Duration::from_mins(5);
/// Bytes between two ranges that are read together with them.
const GAP_BYTES: u64 = 128 * 1024;
/// Bytes of one read, when they are more than one range.
const GET_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A new object: runs of segments, each of adjacent extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Output {
    level: u8,
    runs: Vec<Vec<Extent>>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// The extents of `sources` are being collected, a part each turn.
    Collecting { sources: BTreeSet<ObjectId>, left: VecDeque<ObjectId>, level: u8, extents: Vec<Extent> },
    /// The new objects are being made, one after the other.
    Making { sources: Arc<BTreeSet<ObjectId>>, outputs: VecDeque<Output>, under_way: bool, next: Instant },
}

/// Where the container stands with regrouping.
#[derive(Debug)]
pub(super) struct Regroup {
    stage: Stage,
    look: Instant,
    /// Objects of level 0 when last looked at, and since when that has not changed.
    newest: Option<ObjectId>,
    newest_since: Instant,
    /// Objects that are not what was put, or gone: no group that has one of them can be made.
    bad: BTreeSet<ObjectId>,
}

impl Default for Regroup {
    fn default() -> Self {
        let now = Instant::now();
        Self { stage: Stage::Idle, look: now, newest: None, newest_since: now, bad: BTreeSet::new() }
    }
}

impl Task {
    pub(super) fn regroup_if_due(&mut self, now: Instant) -> Result<(), Failure> {
        match std::mem::take(&mut self.regroup.stage) {
            Stage::Idle => self.look_for_groups(now),
            Stage::Collecting { sources, mut left, level, mut extents } => {
                let mut room = TURN_EXTENTS_MAX;
                while room > 0
                    && let Some(id) = left.pop_front()
                {
                    let before = extents.len();
                    extents.extend(self.state.extents_in(id));
                    room = room.saturating_sub(extents.len() - before);
                }
                self.regroup.stage = if left.is_empty() {
                    let rules = &self.tiering.tier.rules;
                    let outputs = plan(extents, level, rules.own_bytes, rules.object_bytes).into();
                    Stage::Making { sources: Arc::new(sources), outputs, under_way: false, next: now }
                } else {
                    Stage::Collecting { sources, left, level, extents }
                };
            }
            Stage::Making { sources, outputs, under_way, next } => {
                self.regroup.stage = Stage::Making { sources, outputs, under_way, next };
                return self.make_next(now);
            }
        }
        Ok(())
    }

    fn look_for_groups(&mut self, now: Instant) {
        if now < self.regroup.look {
            return;
        }
        self.regroup.look = now + LOOK;
        let newest =
            self.state.objects().filter(|(_, object)| is_packed(object)).map(|(id, _)| id).next_back();
        if newest != self.regroup.newest {
            (self.regroup.newest, self.regroup.newest_since) = (newest, now);
        }
        let quiet = now.duration_since(self.regroup.newest_since) >= QUIET;
        if let Some((sources, level)) = choose(&self.state, &self.regroup.bad, quiet) {
            let left = sources.iter().copied().collect();
            self.regroup.stage = Stage::Collecting { sources, left, level, extents: Vec::new() };
        }
    }

    fn make_next(&mut self, now: Instant) -> Result<(), Failure> {
        let Stage::Making { sources, outputs, under_way, next } = &mut self.regroup.stage else {
            return Ok(());
        };
        if *under_way || now < *next {
            return Ok(());
        }
        if outputs.is_empty() {
            self.regroup.stage = Stage::Idle;
            return Ok(());
        }
        let Some(name) = self.tiering.names.pop_front() else { return self.plan_names() };
        let Some(output) = outputs.pop_front() else { return Ok(()) };
        *under_way = true;
        let making = Making {
            container: self.id,
            object: name,
            created_ms: self.clock.wall_ms(),
            output,
            sources: Arc::clone(sources),
            objects: self.tiering.tier.objects.clone(),
            uploads: self.tiering.tier.uploads.clone(),
        };
        let (events, stop) = (self.event_sender.clone(), self.tiering.stop.clone());
        drop(self.tiering.work.spawn_on(
            async move {
                tokio::select! { biased;
                    // Final; nothing can starve behind it.
                    () = stop.cancelled() => {}
                    made = making.run() => {
                        let _ended = events.send(Event::Regrouped(made)).await;
                    }
                }
            },
            &self.storage,
        ));
        Ok(())
    }

    pub(super) fn regrouped(&mut self, made: Regrouped) -> Result<(), Failure> {
        let now = Instant::now();
        let Regrouped { uploaded, sources, took, failed, bad } = made;
        if let Stage::Making { under_way, next, .. } = &mut self.regroup.stage {
            *under_way = false;
            *next = now + (took * REST_FACTOR).min(REST_MAX);
        }
        if failed {
            self.regroup.stage = Stage::Idle;
            self.regroup.look = now + BACK_OFF;
        }
        self.regroup.bad.extend(bad);
        let mut records = std::mem::take(&mut self.work.records);
        let Uploaded { object, level, bytes, ranges, .. } = uploaded;
        // Only a regrouping replaces extents, and there is one at a time: what lies in the sources lies there as read.
        let moved: BTreeMap<(SegmentId, u64), u64> = ranges
            .iter()
            .flat_map(|range| self.state.extents_between(range.segment, range.offset, range.end()))
            .filter(|extent| sources.contains(&extent.stored.object))
            .map(|extent| ((extent.segment, extent.offset), extent.end()))
            .collect();
        let fits = |range: &Extent| {
            let first = moved.range(..=(range.segment, range.offset)).next_back();
            let from = first.map_or((range.segment, range.offset), |(at, _)| *at);
            let mut covered = range.offset;
            for ((_, offset), end) in moved.range(from..(range.segment, range.end())) {
                if from.0 == range.segment && *offset <= covered {
                    covered = covered.max(*end);
                }
            }
            covered >= range.end()
        };
        self.state.admit_extents((object, level, bytes), &ranges, fits, &mut records);
        self.stage_all(records);
        self.submit()
    }
}

/// Whether an object holds ranges of several segments that are still to be regrouped.
fn is_packed(object: &Object) -> bool {
    object.phase == Phase::Stored && object.level < LEVEL_MAX
}

/// Which objects to regroup now, and the level of what comes of it.
fn choose(state: &State, bad: &BTreeSet<ObjectId>, quiet: bool) -> Option<(BTreeSet<ObjectId>, u8)> {
    let good = || state.objects().filter(|(id, _)| !bad.contains(id));
    let packed = || good().filter(|(_, object)| is_packed(object));
    for level in 0..LEVEL_MAX {
        let group: BTreeSet<ObjectId> =
            packed().filter(|(_, object)| object.level == level).map(|(id, _)| id).take(GROUP).collect();
        if group.len() == GROUP {
            return Some((group, level + 1));
        }
    }
    if quiet && packed().nth(1).is_some() {
        return Some((packed().map(|(id, _)| id).take(QUIET_GROUP_MAX).collect(), LEVEL_MAX));
    }
    let sparse = |object: &Object| {
        object.phase == Phase::Stored
            && object.live > 0
            && object.live_bytes * 100 < u64::from(object.bytes) * LIVE_PERCENT_MIN
    };
    let dead_bytes = |object: &Object| u64::from(object.bytes) - object.live_bytes;
    let mut sparse: Vec<(ObjectId, Object)> =
        good().filter(|(_, object)| sparse(object)).map(|(id, object)| (id, *object)).collect();
    sparse.sort_by_key(|(_, object)| std::cmp::Reverse(dead_bytes(object)));
    sparse.truncate(GROUP);
    let dead: u64 = sparse.iter().map(|(_, object)| dead_bytes(object)).sum();
    let level = sparse.iter().map(|(_, object)| object.level).max()?;
    (dead >= DEAD_BYTES_MIN)
        .then(|| (sparse.into_iter().map(|(id, _)| id).collect(), (level + 1).min(LEVEL_MAX)))
}

/// Lays extents out by segment: large runs alone, the rest packed in order.
fn plan(mut extents: Vec<Extent>, level: u8, own_bytes: u64, object_bytes: u64) -> Vec<Output> {
    extents.sort_unstable_by_key(|extent| (extent.segment, extent.offset));
    let mut runs: Vec<Vec<Extent>> = Vec::new();
    let mut bytes = 0;
    for extent in extents {
        let length = u64::from(extent.length);
        match runs.last_mut() {
            Some(run)
                if bytes + length <= object_bytes
                    && run.last().is_some_and(|last| {
                        last.segment == extent.segment && last.end() == extent.offset
                    }) =>
            {
                run.push(extent);
                bytes += length;
            }
            _ => {
                runs.push(vec![extent]);
                bytes = length;
            }
        }
    }
    let (mut alone, mut packed) = (Vec::new(), vec![Output { level, runs: Vec::new() }]);
    let mut room = object_bytes;
    for run in runs {
        let bytes = run.iter().map(|extent| u64::from(extent.length)).sum::<u64>();
        if bytes >= own_bytes {
            alone.push(Output { level: LEVEL_MAX, runs: vec![run] });
            continue;
        }
        let is_full = packed.last().is_some_and(|last| last.runs.len() == OBJECT_RANGES_MAX);
        if bytes > room || is_full {
            packed.push(Output { level, runs: Vec::new() });
            room = object_bytes;
        }
        room -= bytes.min(room);
        if let Some(last) = packed.last_mut() {
            last.runs.push(run);
        }
    }
    alone.extend(packed.into_iter().filter(|output| !output.runs.is_empty()));
    alone
}

/// A regrouped object that is up, or could not be made.
pub(super) struct Regrouped {
    uploaded: Uploaded,
    sources: Arc<BTreeSet<ObjectId>>,
    took: Duration,
    failed: bool,
    /// An object that cannot be read, now or later.
    bad: Option<ObjectId>,
}

struct Making {
    container: ContainerId,
    object: ObjectId,
    created_ms: i64,
    output: Output,
    sources: Arc<BTreeSet<ObjectId>>,
    objects: Objects,
    uploads: Uploads,
}

impl Making {
    async fn run(self) -> Regrouped {
        let started = Instant::now();
        let Self { container, object, created_ms, output, sources, objects, uploads } = self;
        let level = output.level;
        let mut uploaded = Uploaded::none(object, level);
        let made = build(container, object, created_ms, &output, &objects).await;
        let mut bad = None;
        let failed = match made {
            Ok((built, ranges)) => {
                (uploaded.bytes, uploaded.ranges) = (u32::try_from(built.bytes).unwrap_or(u32::MAX), ranges);
                put(&objects, &built, &uploads, container).await;
                false
            }
            Err(error) => {
                warn!(container = container.0, %object, error = chain(&error), "objects cannot be regrouped");
                if let TierError::NotFound { id } | TierError::Malformed { id, .. } = error {
                    bad = Some(id);
                }
                true
            }
        };
        Regrouped { uploaded, sources, took: started.elapsed(), failed, bad }
    }
}

async fn build(
    container: ContainerId,
    object: ObjectId,
    created_ms: i64,
    output: &Output,
    objects: &Objects,
) -> Result<(BuiltObject, Vec<Extent>), TierError> {
    let mut read = read_all(output, objects).await?;
    let mut builder = ObjectBuilder::new(container, object, output.level, created_ms);
    let mut ranges = Vec::with_capacity(output.runs.len());
    for run in &output.runs {
        let (mut chunks, mut boundaries, mut at) = (Vec::new(), Vec::new(), 0);
        for extent in run {
            if at > 0 {
                boundaries.push(at);
            }
            let Some((bytes, inner)) = read.remove(&(extent.segment, extent.offset)) else {
                unreachable!("every extent was read")
            };
            boundaries.extend(inner.into_iter().map(|inner| at + inner));
            chunks.push(bytes);
            at += extent.length;
        }
        let Some(first) = run.first() else { continue };
        let stored = builder.range(first.segment, first.offset, chunks, boundaries);
        ranges.push(Extent { length: stored.length, skip: 0, stored, ..*first });
    }
    Ok((builder.finish(), ranges))
}

/// The bytes of an extent, and the append boundaries that its object knows within it.
type Part = (Bytes, Vec<u32>);

/// Reads the bytes of all extents of an output, object by object, near ones together.
async fn read_all(output: &Output, objects: &Objects) -> Result<HashMap<(SegmentId, u64), Part>, TierError> {
    let mut by_object: BTreeMap<ObjectId, Vec<&Extent>> = BTreeMap::new();
    for extent in output.runs.iter().flatten() {
        by_object.entry(extent.stored.object).or_default().push(extent);
    }
    let mut parts = HashMap::new();
    for (id, mut extents) in by_object {
        extents.sort_unstable_by_key(|extent| span(extent).0);
        let needs_footer = extents.iter().any(|extent| extent.stored.length > BLOCK_BYTES);
        let footer = if needs_footer { Some(objects.footer(id).await?) } else { None };
        for group in near(&extents) {
            let from = group.first().map_or(0, |first| span(first).0);
            let to = group.iter().map(|extent| span(extent).1).max().unwrap_or(from);
            let bytes = objects.range(id, from, to - from).await?;
            for extent in group {
                parts.insert((extent.segment, extent.offset), part(extent, footer.as_ref(), &bytes, from)?);
            }
        }
    }
    Ok(parts)
}

/// Where the blocks lie that hold an extent: first byte and end, in its object.
fn span(extent: &Extent) -> (u64, u64) {
    let (block, at) = (u64::from(BLOCK_BYTES), u64::from(extent.stored.at));
    let (from, to) = (u64::from(extent.skip), u64::from(extent.skip) + u64::from(extent.length));
    let end = (to.div_ceil(block) * block).min(extent.stored.length.into());
    (at + from / block * block, at + end)
}

/// Cuts extents, sorted by where they lie, into groups that are read together.
fn near<'a, 'b>(extents: &'b [&'a Extent]) -> Vec<&'b [&'a Extent]> {
    let (mut groups, mut first) = (Vec::new(), 0);
    for next in 1..=extents.len() {
        let cut = extents.get(next).is_none_or(|extent| {
            let (from, to) = span(extent);
            from > span(extents[next - 1]).1 + GAP_BYTES || to - span(extents[first]).0 > GET_BYTES_MAX
        });
        if cut {
            groups.push(&extents[first..next]);
            first = next;
        }
    }
    groups
}

/// Cuts an extent out of `bytes`, which begin at `from` in its object, and checks its blocks.
fn part(extent: &Extent, footer: Option<&Footer>, bytes: &Bytes, from: u64) -> Result<Part, TierError> {
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (begin, end) = span(extent);
    let blocks = bytes.slice(at(begin - from)..at(end - from));
    let skipped = begin - u64::from(extent.stored.at);
    let first_block = u32::try_from(skipped / u64::from(BLOCK_BYTES)).unwrap_or(u32::MAX);
    let wrong = |source| TierError::Malformed { id: extent.stored.object, source };
    verify(&extent.stored, footer, first_block, &blocks).map_err(wrong)?;
    let cut = at(u64::from(extent.skip) - skipped);
    let inner = footer.and_then(|footer| footer.range_of(&extent.stored)).map(|range| {
        let inside = range.boundaries.iter().filter_map(|at| at.checked_sub(extent.skip));
        inside.filter(|at| (1..extent.length).contains(at)).collect()
    });
    Ok((blocks.slice(cut..cut + at(extent.length.into())), inner.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Stored;

    #[test]
    fn no_object_has_more_ranges_than_it_may() {
        let object = ObjectId { epoch: 1, counter: 1 };
        let extents = (0..70_000).map(|number| {
            let stored = Stored { object, at: number * 8, length: 8, first_block: number, crc: 0 };
            Extent { segment: SegmentId(number.into()), offset: 0, length: 8, skip: 0, stored }
        });
        let outputs = plan(extents.collect(), LEVEL_MAX, 1 << 20, 64 << 20);
        let ranges: Vec<usize> = outputs.iter().map(|output| output.runs.len()).collect();
        assert_eq!(ranges, [OBJECT_RANGES_MAX, 70_000 - OBJECT_RANGES_MAX]);
    }
}
