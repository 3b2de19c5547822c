//! All segments of a stream, merged.
//!
//! A task per segment reads ahead within one budget of bytes. A segment's end comes through the same queue after its
//! last event, and a successor is begun only when the ends of all its predecessors have come, so events of one key are
//! always in order.

use super::frame::{EventBuffer, NoEvent};
use super::{ReadError, SegmentRead, SegmentReader};
use crate::core::Core;
use crate::segment::SegmentClient;
use bytes::Bytes;
use dhara_stdx::{ByteBudget, BytePermit};
use dhara_wire::name::{SegmentId, SegmentName, StreamName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::debug;

/// Deliveries that may wait for the caller; their bytes are bounded by the budget.
const DELIVERIES_MAX: usize = 64;

/// Where reading begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The oldest event that is still there.
    Head,
    /// After the newest event that is there now.
    Tail,
    /// An offset in each segment of a whole cover of the key space; −1 for a segment whose predecessors come first.
    Cut(BTreeMap<SegmentId, i64>),
}

/// Where reading ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadUntil {
    /// At the end of what each segment holds when reading comes to it.
    Tail,
    /// When the stream is sealed and all of it is read.
    Sealed,
}

/// An event as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The segment that holds it.
    pub segment: SegmentId,
    /// Where it begins in the segment.
    pub offset: i64,
    /// Where the next event of the segment begins.
    pub end: i64,
    /// The event's bytes: a slice of what was read, which it keeps alive.
    pub data: Bytes,
}

/// Reads all events of a stream: each once, and in order among events of one key.
#[derive(Debug)]
pub struct StreamReader {
    core: Arc<Core>,
    source: Source,
    deliveries: mpsc::Receiver<Delivery>,
    tasks: JoinSet<()>,
    /// What was delivered last, and the room it takes.
    events: std::vec::IntoIter<Event>,
    permit: Option<BytePermit>,
    reading: BTreeSet<SegmentId>,
    /// Successors with the predecessors that are still to end.
    waiting: BTreeMap<SegmentId, BTreeSet<SegmentId>>,
    done: BTreeSet<SegmentId>,
    /// Segments that the start names with −1, and those it names with an offset: only these come before them.
    started_partly: BTreeSet<SegmentId>,
    started: BTreeSet<SegmentId>,
    /// A segment whose end is being dealt with.
    ending: Option<SegmentId>,
}

/// What the tasks of a reader share.
#[derive(Clone, Debug)]
struct Source {
    stream: StreamName,
    until: ReadUntil,
    segments: Arc<SegmentClient>,
    budget: ByteBudget,
    queue: mpsc::Sender<Delivery>,
}

#[derive(Debug)]
enum Delivery {
    Events(Vec<Event>, BytePermit),
    /// The segment is read to its end, and reading goes on with its successors.
    Ended(SegmentId),
    /// The segment is read as far as was asked.
    Reached(SegmentId),
    Failed(ReadError),
}

impl StreamReader {
    pub(crate) async fn open(
        core: Arc<Core>,
        stream: StreamName,
        from: ReadFrom,
        until: ReadUntil,
    ) -> Result<Self, ReadError> {
        let segments = Arc::new(SegmentClient::new(core.controller.clone(), core.config.clone()));
        let budget = ByteBudget::new(core.config.prefetch_bytes_max as u64);
        let (queue, deliveries) = mpsc::channel(DELIVERIES_MAX);
        let source = Source { stream, until, segments, budget, queue };
        let start = match from {
            ReadFrom::Head => core.controller.head_cut(&source.stream).await?,
            ReadFrom::Tail => tail_cut(&core, &source).await?,
            ReadFrom::Cut(cut) => cut,
        };
        let (started_partly, started): (BTreeSet<_>, _) =
            start.keys().partition(|id| start.get(id).is_some_and(|offset| *offset < 0));
        let mut reader = Self {
            core,
            source,
            deliveries,
            tasks: JoinSet::new(),
            events: Vec::new().into_iter(),
            permit: None,
            reading: BTreeSet::new(),
            waiting: BTreeMap::new(),
            done: BTreeSet::new(),
            started_partly,
            started,
            ending: None,
        };
        for id in reader.started.clone() {
            reader.begin(id, start.get(&id).copied().unwrap_or_default());
        }
        Ok(reader)
    }

    /// Waits for the next event; `None` when reading has come to its end.
    ///
    /// # Errors
    /// [`ReadError`]; events read ahead from other segments may be had by calling again.
    /// # Cancel safety
    /// Dropped early: no event is lost.
    pub async fn next(&mut self) -> Result<Option<Event>, ReadError> {
        loop {
            if let Some(event) = self.events.next() {
                return Ok(Some(event));
            }
            self.permit = None;
            self.follow().await?;
            if self.reading.is_empty() && !self.begin_waiting() {
                return Ok(None);
            }
            match self.deliveries.recv().await {
                Some(Delivery::Events(events, permit)) => {
                    self.events = events.into_iter();
                    self.permit = Some(permit);
                }
                Some(Delivery::Ended(id)) => self.ending = Some(id),
                Some(Delivery::Reached(id)) => {
                    self.reading.remove(&id);
                }
                Some(Delivery::Failed(error)) => return Err(error),
                None => return Ok(None),
            }
        }
    }

    /// The next event if it has been read ahead already.
    pub fn next_ready(&mut self) -> Option<Event> {
        self.events.next()
    }

    /// Goes on with the successors of a segment that has ended, as far as their predecessors have.
    async fn follow(&mut self) -> Result<(), ReadError> {
        let Some(ended) = self.ending else { return Ok(()) };
        let segment = self.source.stream.segment(ended);
        let successors = self.core.controller.successors(&segment).await?;
        debug!(%segment, successors = successors.len(), "segment is read to its end");
        self.ending = None;
        self.reading.remove(&ended);
        self.done.insert(ended);
        for successor in successors {
            let id = successor.segment.id;
            let known = self.done.contains(&id) || self.reading.contains(&id);
            if !known && !self.waiting.contains_key(&id) {
                let partly = self.started_partly.contains(&id);
                let before = successor.predecessors.into_iter();
                let before = before.filter(|id| !partly || self.started.contains(id)).collect();
                self.waiting.insert(id, before);
            }
        }
        let mut free = Vec::new();
        for (id, before) in &mut self.waiting {
            before.retain(|predecessor| !self.done.contains(predecessor));
            if before.is_empty() {
                free.push(*id);
            }
        }
        for id in free {
            self.waiting.remove(&id);
            self.begin(id, 0);
        }
        Ok(())
    }

    /// Nothing is being read any more: a predecessor that never came lies before the start, so nothing waits for it.
    fn begin_waiting(&mut self) -> bool {
        let waiting = std::mem::take(&mut self.waiting);
        if self.source.until == ReadUntil::Tail || waiting.is_empty() {
            return false;
        }
        for id in waiting.into_keys() {
            self.begin(id, 0);
        }
        true
    }

    fn begin(&mut self, id: SegmentId, offset: i64) {
        self.reading.insert(id);
        let segment = self.source.stream.segment(id);
        self.tasks.spawn(read(self.source.clone(), segment, offset));
        // Finished tasks have nothing to say; taking them keeps the set small.
        while self.tasks.try_join_next().is_some() {}
    }
}

async fn tail_cut(core: &Core, source: &Source) -> Result<BTreeMap<SegmentId, i64>, ReadError> {
    let mut cut = BTreeMap::new();
    for segment in core.controller.current_segments(&source.stream).await? {
        let name = source.stream.segment(segment.id);
        let state = source.segments.state(&name).await.map_err(|error| ReadError::of(&name, error))?;
        cut.insert(segment.id, state.map_or(0, |state| state.length));
    }
    Ok(cut)
}

/// Reads one segment into the queue until it ends, or the reader has gone.
async fn read(source: Source, segment: SegmentName, offset: i64) {
    let queue = source.queue.clone();
    let last = match read_events(source, &segment, offset).await {
        Ok(Some(last)) => last,
        Ok(None) => return,
        Err(error) => Delivery::Failed(error),
    };
    // A reader that has gone wants nothing.
    drop(queue.send(last).await);
}

async fn read_events(
    source: Source,
    segment: &SegmentName,
    offset: i64,
) -> Result<Option<Delivery>, ReadError> {
    let limit = limit(&source, segment).await?;
    let reached = |offset| limit.is_some_and(|limit| offset >= limit);
    let mut reader = SegmentReader::new(Arc::clone(&source.segments), segment.clone(), offset);
    let mut buffer = EventBuffer::default();
    let mut at = offset;
    while !reached(at) {
        let read = reader.next().await?;
        let data = match read {
            SegmentRead::Data { data, .. } => data,
            SegmentRead::Truncated { offset } => {
                debug!(%segment, from = at, to = offset, "events were given up before they were read");
                buffer.clear();
                at = offset;
                continue;
            }
            SegmentRead::End => return Ok(Some(Delivery::Ended(segment.id))),
        };
        let permit = source.budget.acquire(data.len() as u64).await;
        buffer.push(data);
        let mut events = Vec::new();
        loop {
            let taken = buffer.take().map_err(|NoEvent| malformed(segment, at))?;
            let Some((data, length)) = taken else { break };
            let end = at + i64::try_from(length).unwrap_or(i64::MAX);
            if reached(at) {
                break;
            }
            events.push(Event { segment: segment.id, offset: at, end, data });
            at = end;
        }
        if !events.is_empty() && source.queue.send(Delivery::Events(events, permit)).await.is_err() {
            return Ok(None);
        }
    }
    Ok(Some(Delivery::Reached(segment.id)))
}

/// The offset to stop at, if reading is to stop before the segment's end.
async fn limit(source: &Source, segment: &SegmentName) -> Result<Option<i64>, ReadError> {
    if source.until == ReadUntil::Sealed {
        return Ok(None);
    }
    let state = source.segments.state(segment).await.map_err(|error| ReadError::of(segment, error))?;
    Ok(state.filter(|state| !state.sealed).map(|state| state.length))
}

fn malformed(segment: &SegmentName, offset: i64) -> ReadError {
    ReadError::Malformed { segment: segment.to_string(), offset }
}
