//! What every test starts from: a client, a scope of its own, and readers that collect.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pravega_client::client_factory::ClientFactoryAsync;
use pravega_client::event::reader::EventReader;
use pravega_client::event::writer::EventWriter;
use pravega_client_config::ClientConfigBuilder;
use pravega_client_shared::{
    Retention, ScaleType, Scaling, Scope, ScopedSegment, ScopedStream, Segment, Stream, StreamConfiguration,
};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Longer than the client's own 30 s for a read without an answer.
const STUCK: Duration = Duration::from_secs(40);

pub struct World {
    pub factory: ClientFactoryAsync,
    pub scope: Scope,
}

impl World {
    /// Connects, and creates a scope that no other test has.
    pub async fn new() -> Self {
        let uri = env::var("DHARA_CONTROLLER").expect("DHARA_CONTROLLER names the controller");
        let config = ClientConfigBuilder::default()
            .controller_uri(uri.as_str())
            .build()
            .unwrap();
        let factory = ClientFactoryAsync::new(config, Handle::current());
        let scope = Scope::from(unique("rust"));
        assert!(factory.controller_client().create_scope(&scope).await.unwrap());
        Self { factory, scope }
    }

    pub fn name(&self, stream: &str) -> ScopedStream {
        ScopedStream {
            scope: self.scope.clone(),
            stream: Stream::from(stream.to_owned()),
        }
    }

    /// Creates a stream of `segments` equal segments.
    pub async fn stream(&self, name: &str, segments: i32) -> ScopedStream {
        let stream = self.name(name);
        let controller = self.factory.controller_client();
        assert!(controller.create_stream(&fixed(&stream, segments, None)).await.unwrap());
        stream
    }

    /// The current segments from the lowest key on.
    pub async fn segments(&self, stream: &ScopedStream) -> Vec<(f64, f64, ScopedSegment)> {
        let current = self
            .factory
            .controller_client()
            .get_current_segments(stream)
            .await
            .unwrap();
        let mut segments: Vec<_> = current
            .key_segment_map
            .values()
            .map(|s| (s.min_key.into_inner(), s.max_key.into_inner(), s.scoped_segment.clone()))
            .collect();
        segments.sort_by(|left, right| left.0.total_cmp(&right.0));
        segments
    }

    /// Replaces the segment at `index` by two halves of its range, and waits for the new epoch.
    pub async fn split(&self, stream: &ScopedStream, index: usize) {
        let (low, high, segment) = self.segments(stream).await.swap_remove(index);
        let middle = (low + high) / 2.0;
        self.scale(stream, &[segment.segment], &[(low, middle), (middle, high)])
            .await;
    }

    /// Joins the segments at `index` and `index + 1`, and waits for the new epoch.
    pub async fn merge(&self, stream: &ScopedStream, index: usize) {
        let segments = self.segments(stream).await;
        let (left, right) = (&segments[index], &segments[index + 1]);
        let sealed = [left.2.segment.clone(), right.2.segment.clone()];
        self.scale(stream, &sealed, &[(left.0, right.1)]).await;
    }

    async fn scale(&self, stream: &ScopedStream, sealed: &[Segment], ranges: &[(f64, f64)]) {
        let controller = self.factory.controller_client();
        controller.scale_stream(stream, sealed, ranges).await.unwrap();
    }

    pub async fn seal(&self, stream: &ScopedStream) {
        assert!(self.factory.controller_client().seal_stream(stream).await.unwrap());
    }

    /// Reads `count` events with a new group's only reader, which goes offline afterwards.
    pub async fn read_from_head(&self, group: &str, stream: &ScopedStream, count: usize) -> Vec<Vec<u8>> {
        let group = self.factory.create_reader_group(group.to_owned(), stream.clone()).await;
        let mut reader = group.create_reader("reader".to_owned()).await;
        let events = read(&mut reader, count).await;
        reader.reader_offline().await.unwrap();
        events
    }
}

pub fn fixed(stream: &ScopedStream, segments: i32, tags: Option<Vec<String>>) -> StreamConfiguration {
    let scaling = Scaling {
        scale_type: ScaleType::FixedNumSegments,
        min_num_segments: segments,
        ..Scaling::default()
    };
    StreamConfiguration::new(stream.clone(), scaling, Retention::default(), tags)
}

fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    format!("{prefix}{now}x{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Fails the test if `deed` takes longer than anything healthy does.
pub async fn in_time<T>(what: impl Debug, deed: impl Future<Output = T>) -> T {
    timeout(STUCK, deed).await.unwrap_or_else(|_| panic!("stuck: {what:?}"))
}

/// Gives the events of the next slice, which may be none, to `take` before another reader can get what follows them.
pub async fn take_events(reader: &mut EventReader, take: impl FnOnce(Vec<Vec<u8>>)) {
    if let Some(mut slice) = in_time("read", reader.acquire_segment()).await.unwrap() {
        take(slice.by_ref().map(|event| event.value).collect());
        reader.release_segment(slice).await.unwrap();
    }
}

/// The events of the next slice, which may be none.
pub async fn next_events(reader: &mut EventReader) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    take_events(reader, |found| events = found).await;
    events
}

/// At least `count` events; more only if the last slice had more.
pub async fn read(reader: &mut EventReader, count: usize) -> Vec<Vec<u8>> {
    in_time("reading", async {
        let mut events = Vec::new();
        while events.len() < count {
            events.extend(next_events(reader).await);
        }
        events
    })
    .await
}

/// What is left of a sealed stream: two slices in a row have nothing.
pub async fn drain(reader: &mut EventReader) -> Vec<Vec<u8>> {
    let (mut events, mut empty) = (Vec::new(), 0);
    while empty < 2 {
        let found = next_events(reader).await;
        empty = if found.is_empty() { empty + 1 } else { 0 };
        events.extend(found);
    }
    events
}

/// Writes event `number / keys` of key `number % keys` as "key:number".
pub async fn write_numbered(writer: &mut EventWriter, number: usize, keys: usize) {
    let key = format!("key-{}", number % keys);
    let event = format!("{key}:{}", number / keys).into_bytes();
    let _acknowledged = writer.write_event_by_routing_key(key, event).await;
}

/// Events "key:number" as the numbers of each key, in the order read.
pub fn by_key(events: &[Vec<u8>]) -> BTreeMap<String, Vec<usize>> {
    let mut numbers: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for event in events {
        let text = std::str::from_utf8(event).unwrap();
        let (key, number) = text.rsplit_once(':').unwrap();
        numbers.entry(key.to_owned()).or_default().push(number.parse().unwrap());
    }
    numbers
}

/// Each of `total` numbered events is there once, and the events of a key are in the order written.
pub fn assert_once_and_in_order(events: &[Vec<u8>], keys: usize, total: usize) {
    let numbers = by_key(events);
    for index in 0..keys.min(total) {
        let expected: Vec<usize> = (0..(total - index).div_ceil(keys)).collect();
        assert_eq!(numbers[&format!("key-{index}")], expected, "key-{index}");
    }
    assert_eq!(events.len(), total);
}
