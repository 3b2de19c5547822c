//! [`SegmentClient`] over the segment store protocol: a few shared connections to each store, and repetition of calls
//! whose connection broke, until a deadline.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dhara_wire::codec::Blob;
use dhara_wire::command::{
    Command, CreateSegment, CreateTableSegment, DeleteSegment, DeleteTableSegment, GetStreamSegmentInfo,
    IteratorArgs, MergeSegmentsBatch, ReadTable, ReadTableEntries, ReadTableKeys, RemoveTableKeys,
    SealSegment, TableEntry, TableKey, TruncateSegment, UpdateSegmentPolicy, UpdateTableEntries,
};
use dhara_wire::hash::container_of;
use dhara_wire::limits::{KEY_NO_VERSION, KEY_NOT_EXISTS, NULL_TABLE_SEGMENT_OFFSET};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::Connection;
use super::{Bounds, Entry, Expect, Page, SegmentClient, SegmentError, SegmentInfo, SegmentShape, Write};

/// Connections to each store.
const CONNECTIONS: usize = 4;
/// Time within which a call must be answered, repetitions included.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Pause before the first repetition; doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Longest pause between repetitions.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Goal for the entries of a page of an unsorted table.
const PAGE_ENTRIES: i32 = 500;

/// Segment stores reached over TCP.
pub(crate) struct WireSegmentClient {
    stores: Vec<Store>,
    container_count: u16,
    next_request: AtomicI64,
}

/// One store with its connections.
struct Store {
    host: String,
    slots: Vec<Slot>,
    turn: AtomicUsize,
}

/// Place of one connection; the cell is replaced when its connection has ended.
type Slot = Mutex<Arc<OnceCell<Connection>>>;

impl fmt::Debug for WireSegmentClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<&str> = self.stores.iter().map(|store| store.host.as_str()).collect();
        f.debug_struct("WireSegmentClient").field("stores", &hosts).finish_non_exhaustive()
    }
}

impl WireSegmentClient {
    /// A client of the stores at `hosts`, among which the containers are spread in turn.
    pub(crate) fn new(hosts: impl IntoIterator<Item = String>, container_count: u16) -> Self {
        let slots = || (0..CONNECTIONS).map(|_index| Slot::default()).collect();
        let stores = hosts.into_iter().map(|host| Store { host, slots: slots(), turn: AtomicUsize::new(0) });
        Self { stores: stores.collect(), container_count, next_request: AtomicI64::new(1) }
    }

    fn store_of(&self, segment: &str) -> Result<&Store, SegmentError> {
        let container = container_of(segment, u32::from(self.container_count.max(1)));
        let container = usize::try_from(container).unwrap_or_default();
        let nowhere = || SegmentError::Unavailable {
            operation: "finding the store",
            segment: segment.to_owned(),
            host: String::from("none"),
            source: io::ErrorKind::NotConnected.into(),
        };
        self.stores.get(container % self.stores.len().max(1)).ok_or_else(nowhere)
    }

    /// Asks until there is a reply. `build` makes the request for an id. The flag returned says whether an earlier try
    /// may have been carried out.
    async fn call(
        &self,
        operation: &'static str,
        segment: &str,
        build: impl Fn(i64) -> Command + Send + Sync,
    ) -> Result<(Command, bool), SegmentError> {
        let store = self.store_of(segment)?;
        let deadline = Instant::now() + CALL_TIME_MAX;
        let mut pause = PAUSE_MIN;
        let mut repeated = false;
        loop {
            let request = build(self.next_request.fetch_add(1, Ordering::Relaxed));
            let source = match timeout_at(deadline, store.call(&request)).await {
                Ok(Ok(Command::WrongHost(_))) => io::Error::other("the store does not own the container"),
                Ok(Ok(reply)) => return Ok((reply, repeated)),
                Ok(Err(error)) => error,
                Err(_elapsed) => io::ErrorKind::TimedOut.into(),
            };
            repeated = true;
            if Instant::now() + pause >= deadline {
                let segment = segment.to_owned();
                return Err(SegmentError::Unavailable {
                    operation,
                    segment,
                    host: store.host.clone(),
                    source,
                });
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Reads the keys of a failed update and returns their versions if all hold what the update would have written:
    /// then an earlier try of it was carried out and only its reply was lost.
    async fn versions_if_written(
        &self,
        table: &str,
        writes: &[Write],
    ) -> Result<Option<Vec<i64>>, SegmentError> {
        let keys = writes.iter().map(|write| write.key.clone()).collect();
        let found = self.read(table, keys).await?;
        let version = |(write, found): (&Write, Option<Entry>)| {
            found.filter(|entry| entry.value == write.value).map(|entry| entry.version)
        };
        Ok(writes.iter().zip(found).map(version).collect())
    }
}

impl Store {
    async fn call(&self, request: &Command) -> io::Result<Command> {
        self.connection().await?.call(request).await
    }

    async fn connection(&self) -> io::Result<Connection> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
        let cell = {
            let mut slot = self.slots[turn].lock();
            if slot.get().is_some_and(Connection::is_over) {
                *slot = Arc::default();
            }
            slot.clone()
        };
        cell.get_or_try_init(|| Connection::open(&self.host)).await.cloned()
    }
}

/// Turns a reply that is not the success of the operation into its error.
fn refusal(operation: &'static str, segment: &str, reply: &Command) -> SegmentError {
    let segment = segment.to_owned();
    match reply {
        Command::NoSuchSegment(_) => SegmentError::Missing { operation, segment },
        Command::SegmentIsSealed(_) => SegmentError::Sealed { operation, segment },
        Command::TableKeyBadVersion(_) | Command::TableKeyDoesNotExist(_) => {
            SegmentError::Condition { table: segment }
        }
        Command::ErrorMessage(error) => {
            SegmentError::Refused { operation, segment, answer: format!("error: {}", error.message) }
        }
        other => SegmentError::Refused { operation, segment, answer: other.name().to_owned() },
    }
}

impl From<Expect> for i64 {
    fn from(expect: Expect) -> Self {
        match expect {
            Expect::Any => KEY_NO_VERSION,
            Expect::Absent => KEY_NOT_EXISTS,
            Expect::Version(version) => version,
        }
    }
}

fn found(entry: TableEntry) -> Entry {
    Entry { key: entry.key.key, value: entry.value, version: entry.key.version }
}

fn scale_byte(scale_type: u8) -> i8 {
    i8::try_from(scale_type).unwrap_or_default()
}

#[async_trait]
impl SegmentClient for WireSegmentClient {
    async fn create_segment(&self, segment: &str, shape: SegmentShape) -> Result<(), SegmentError> {
        const OPERATION: &str = "creating a segment";
        let build = |request_id| {
            let create = CreateSegment {
                request_id,
                segment: segment.to_owned(),
                target_rate: shape.rate,
                scale_type: scale_byte(shape.scale_type),
                delegation_token: String::new(),
                rollover_size_bytes: shape.rollover_bytes,
            };
            create.into()
        };
        match self.call(OPERATION, segment, build).await?.0 {
            Command::SegmentCreated(_) | Command::SegmentAlreadyExists(_) => Ok(()),
            other => Err(refusal(OPERATION, segment, &other)),
        }
    }

    async fn seal_segment(&self, segment: &str) -> Result<(), SegmentError> {
        const OPERATION: &str = "sealing a segment";
        let build = |request_id| {
            SealSegment { request_id, segment: segment.to_owned(), delegation_token: String::new() }.into()
        };
        match self.call(OPERATION, segment, build).await?.0 {
            Command::SegmentSealed(_) | Command::SegmentIsSealed(_) => Ok(()),
            other => Err(refusal(OPERATION, segment, &other)),
        }
    }

    async fn delete_segment(&self, segment: &str) -> Result<(), SegmentError> {
        const OPERATION: &str = "deleting a segment";
        let build = |request_id| {
            DeleteSegment { request_id, segment: segment.to_owned(), delegation_token: String::new() }.into()
        };
        match self.call(OPERATION, segment, build).await?.0 {
            Command::SegmentDeleted(_) | Command::NoSuchSegment(_) => Ok(()),
            other => Err(refusal(OPERATION, segment, &other)),
        }
    }

    async fn truncate_segment(&self, segment: &str, offset: i64) -> Result<(), SegmentError> {
        const OPERATION: &str = "truncating a segment";
        let build = |request_id| {
            let truncate = TruncateSegment {
                request_id,
                segment: segment.to_owned(),
                truncation_offset: offset,
                delegation_token: String::new(),
            };
            truncate.into()
        };
        match self.call(OPERATION, segment, build).await?.0 {
            Command::SegmentTruncated(_) => Ok(()),
            Command::SegmentIsTruncated(reply) if reply.start_offset >= offset => Ok(()),
            other => Err(refusal(OPERATION, segment, &other)),
        }
    }

    async fn update_policy(&self, segment: &str, shape: SegmentShape) -> Result<(), SegmentError> {
        const OPERATION: &str = "changing a segment's policy";
        let build = |request_id| {
            let update = UpdateSegmentPolicy {
                request_id,
                segment: segment.to_owned(),
                target_rate: shape.rate,
                scale_type: scale_byte(shape.scale_type),
                delegation_token: String::new(),
            };
            update.into()
        };
        match self.call(OPERATION, segment, build).await?.0 {
            Command::SegmentPolicyUpdated(_) => Ok(()),
            other => Err(refusal(OPERATION, segment, &other)),
        }
    }

    async fn segment_info(&self, segment: &str) -> Result<SegmentInfo, SegmentError> {
        const OPERATION: &str = "asking for a segment's length";
        let build = |request_id| {
            GetStreamSegmentInfo { request_id, segment: segment.to_owned(), delegation_token: String::new() }
                .into()
        };
        match self.call(OPERATION, segment, build).await?.0 {
            Command::StreamSegmentInfo(info) if info.exists => {
                Ok(SegmentInfo { start: info.start_offset, length: info.write_offset })
            }
            Command::StreamSegmentInfo(_) => {
                Err(SegmentError::Missing { operation: OPERATION, segment: segment.to_owned() })
            }
            other => Err(refusal(OPERATION, segment, &other)),
        }
    }

    async fn merge(&self, target: &str, sources: Vec<String>) -> Result<Vec<i64>, SegmentError> {
        const OPERATION: &str = "merging segments";
        let build = |request_id| {
            let merge = MergeSegmentsBatch {
                request_id,
                target: target.to_owned(),
                sources: sources.clone(),
                delegation_token: String::new(),
            };
            merge.into()
        };
        match self.call(OPERATION, target, build).await?.0 {
            Command::SegmentsBatchMerged(reply) => {
                Ok(reply.merged.iter().map(|merged| merged.new_target_write_offset).collect())
            }
            other => Err(refusal(OPERATION, target, &other)),
        }
    }

    async fn create_table(
        &self,
        table: &str,
        key_bytes: i32,
        rollover_bytes: i64,
    ) -> Result<(), SegmentError> {
        const OPERATION: &str = "creating a table";
        let build = |request_id| {
            let create = CreateTableSegment {
                request_id,
                segment: table.to_owned(),
                delegation_token: String::new(),
                sorted_deprecated: false,
                key_length: key_bytes,
                rollover_size_bytes: rollover_bytes,
            };
            create.into()
        };
        match self.call(OPERATION, table, build).await?.0 {
            Command::SegmentCreated(_) | Command::SegmentAlreadyExists(_) => Ok(()),
            other => Err(refusal(OPERATION, table, &other)),
        }
    }

    async fn delete_table(&self, table: &str) -> Result<(), SegmentError> {
        const OPERATION: &str = "deleting a table";
        let build = |request_id| {
            let delete = DeleteTableSegment {
                request_id,
                segment: table.to_owned(),
                must_be_empty: false,
                delegation_token: String::new(),
            };
            delete.into()
        };
        match self.call(OPERATION, table, build).await?.0 {
            Command::SegmentDeleted(_) | Command::NoSuchSegment(_) => Ok(()),
            other => Err(refusal(OPERATION, table, &other)),
        }
    }

    async fn update(&self, table: &str, writes: Vec<Write>) -> Result<Vec<i64>, SegmentError> {
        const OPERATION: &str = "updating a table";
        let entry = |write: &Write| TableEntry {
            key: TableKey { key: write.key.clone(), version: write.expect.into() },
            value: write.value.clone(),
        };
        let build = |request_id| {
            let update = UpdateTableEntries {
                request_id,
                segment: table.to_owned(),
                delegation_token: String::new(),
                entries: writes.iter().map(entry).collect(),
                table_segment_offset: NULL_TABLE_SEGMENT_OFFSET,
            };
            update.into()
        };
        let (reply, repeated) = self.call(OPERATION, table, build).await?;
        let error = match reply {
            Command::TableEntriesUpdated(reply) => return Ok(reply.updated_versions),
            other => refusal(OPERATION, table, &other),
        };
        if repeated
            && error.is_condition()
            && let Some(versions) = self.versions_if_written(table, &writes).await?
        {
            return Ok(versions);
        }
        Err(error)
    }

    async fn remove(&self, table: &str, keys: Vec<(Bytes, Expect)>) -> Result<(), SegmentError> {
        const OPERATION: &str = "removing table keys";
        let key = |(key, expect): &(Bytes, Expect)| TableKey { key: key.clone(), version: (*expect).into() };
        let build = |request_id| {
            let remove = RemoveTableKeys {
                request_id,
                segment: table.to_owned(),
                delegation_token: String::new(),
                keys: keys.iter().map(key).collect(),
                table_segment_offset: NULL_TABLE_SEGMENT_OFFSET,
            };
            remove.into()
        };
        let (reply, repeated) = self.call(OPERATION, table, build).await?;
        match reply {
            Command::TableKeysRemoved(_) => Ok(()),
            // An earlier try removed them and its reply was lost.
            Command::TableKeyDoesNotExist(_) if repeated => Ok(()),
            other => Err(refusal(OPERATION, table, &other)),
        }
    }

    async fn read(&self, table: &str, keys: Vec<Bytes>) -> Result<Vec<Option<Entry>>, SegmentError> {
        const OPERATION: &str = "reading a table";
        let build = |request_id| {
            let key = |key: &Bytes| TableKey { key: key.clone(), version: KEY_NO_VERSION };
            let read = ReadTable {
                request_id,
                segment: table.to_owned(),
                delegation_token: String::new(),
                keys: keys.iter().map(key).collect(),
            };
            read.into()
        };
        match self.call(OPERATION, table, build).await?.0 {
            Command::TableRead(reply) if reply.entries.len() == keys.len() => {
                // The version alone says whether a key is there: Pravega may alter the bytes of one that is not.
                let found = |(key, entry): (&Bytes, TableEntry)| {
                    let version = entry.key.version;
                    (version >= 0).then_some(Entry { key: key.clone(), value: entry.value, version })
                };
                Ok(keys.iter().zip(reply.entries).map(found).collect())
            }
            other => Err(refusal(OPERATION, table, &other)),
        }
    }

    async fn read_page(&self, table: &str, token: Bytes) -> Result<Page, SegmentError> {
        const OPERATION: &str = "iterating a table";
        let build = |request_id| {
            let args = IteratorArgs { continuation_token: token.clone(), ..IteratorArgs::default() };
            read_entries(request_id, table, PAGE_ENTRIES, args)
        };
        match self.call(OPERATION, table, build).await?.0 {
            Command::TableEntriesRead(reply) => {
                let Blob(token) = reply.continuation_token;
                Ok(Page { entries: reply.entries.into_iter().map(found).collect(), token })
            }
            other => Err(refusal(OPERATION, table, &other)),
        }
    }

    async fn read_range(&self, table: &str, bounds: Bounds) -> Result<Vec<Entry>, SegmentError> {
        const OPERATION: &str = "reading a range of a table";
        let build = |request_id| read_entries(request_id, table, bounds.count, range_args(&bounds));
        match self.call(OPERATION, table, build).await?.0 {
            Command::TableEntriesRead(reply) => Ok(reply.entries.into_iter().map(found).collect()),
            other => Err(refusal(OPERATION, table, &other)),
        }
    }

    async fn read_key_range(&self, table: &str, bounds: Bounds) -> Result<Vec<Bytes>, SegmentError> {
        const OPERATION: &str = "reading a range of a table's keys";
        let build = |request_id| {
            let read = ReadTableKeys {
                request_id,
                segment: table.to_owned(),
                delegation_token: String::new(),
                suggested_key_count: bounds.count,
                args: range_args(&bounds),
            };
            read.into()
        };
        match self.call(OPERATION, table, build).await?.0 {
            Command::TableKeysRead(reply) => Ok(reply.keys.into_iter().map(|key| key.key).collect()),
            other => Err(refusal(OPERATION, table, &other)),
        }
    }
}

fn read_entries(request_id: i64, table: &str, count: i32, args: IteratorArgs) -> Command {
    let read = ReadTableEntries {
        request_id,
        segment: table.to_owned(),
        delegation_token: String::new(),
        suggested_entry_count: count,
        args,
    };
    read.into()
}

fn range_args(bounds: &Bounds) -> IteratorArgs {
    IteratorArgs { from_key: bounds.from.clone(), to_key: bounds.to.clone(), ..IteratorArgs::default() }
}
