//! Looking up writers and table keys among many, present and absent.
//!
//! Everything lies in the index in long-term storage, and the server was started anew, so that nothing is in its memory
//! but what the look-ups themselves bring there. The limit of one request in flight is a round trip on loopback.

use crate::world::{SCOPE, Stream, World, figure, line};
use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use clap::Args;
use dhara_benches::fill::put_event;
use dhara_benches::latency::Latencies;
use dhara_benches::limit::{measure_round_trip, per_second};
use dhara_benches::server::Server;
use dhara_benches::wire::{self, Heard, flush_to_storage};
use dhara_stdx::SeededEntropy;
use dhara_wire::codec::Uuid;
use dhara_wire::command::{
    Command, CreateTableSegment, ReadTable, SetupAppend, TableEntry, TableKey, UpdateTableEntries,
};
use dhara_wire::limits::{KEY_NO_VERSION, KEY_NOT_EXISTS};
use dhara_wire::peer::RawConnection;
use tokio::time::Instant;

/// Writers of one connection.
const ROUND: u64 = 10_000;
/// Entries of one update.
const BATCH: u64 = 1_000;
const LOOK_UPS: usize = 5_000;
const TABLE: &str = "keys";
/// Writers and keys from here up are absent.
const ABSENT: u64 = 1 << 40;

#[derive(Args, Debug)]
pub(crate) struct Writers {
    /// Writers, and table keys.
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// The server's log budget.
    #[arg(long, default_value = "2GiB")]
    log_budget: String,
}

impl Writers {
    pub(crate) async fn run(&self, world: &World) -> Result<()> {
        let server = world.start(&["--log-budget", &self.log_budget]).await?;
        let stream = Stream::create(&server, "writers", 1).await?;
        let segment = stream.segments().concat();
        line(&format!("{} writers of a segment, {} keys of a table", self.count, self.count))?;
        let started = Instant::now();
        self.write(&server, &segment).await?;
        figure("writers set up, each with one append", &rate(self.count, started))?;
        let started = Instant::now();
        self.put(&server).await?;
        figure("keys put, 1000 in one update", &rate(self.count, started))?;
        let started = Instant::now();
        flush_to_storage(&server.store).await?;
        figure("flush to long-term storage", &format!("{:.1} s", started.elapsed().as_secs_f64()))?;
        server.stop().await?;

        let server = world.start(&["--log-budget", &self.log_budget]).await?;
        let round_trip = measure_round_trip().await?.as_secs_f64() * 1e3;
        figure("limit: round trip on loopback", &format!("{round_trip:.3} ms"))?;
        figure("", "ms p50 / p99 / p99.9, one in flight, cold at first")?;
        let entropy = SeededEntropy::new(self.count);
        let connection = wire::requests(&server.store).await?;
        for what in ["first", "second"] {
            for (kind, from) in [("present", 0), ("absent", ABSENT)] {
                let numbers: Vec<u64> = (0..LOOK_UPS).map(|_nth| from + entropy.below(self.count)).collect();
                let mut writers = look_up_writers(&connection, &segment, &numbers, kind == "present").await?;
                figure(&format!("set-up of {kind} writers, {what} time"), &writers.describe())?;
                let mut keys = look_up_keys(&connection, &numbers, kind == "present").await?;
                figure(&format!("get of {kind} keys, {what} time"), &keys.describe())?;
            }
        }
        if let Some((now, most)) = server.resident_bytes() {
            figure("server's memory now, at most", &format!("{} MiB, {} MiB", now >> 20, most >> 20))?;
        }
        server.stop().await
    }

    /// Lets each writer append one event.
    async fn write(&self, server: &Server, segment: &str) -> Result<()> {
        let mut event = BytesMut::new();
        put_event(&mut event, b"one event of each writer");
        let event = event.freeze();
        let mut first = 0;
        while first < self.count {
            let end = self.count.min(first + ROUND);
            let (mut appends, mut acks) = wire::connect(&server.store).await?;
            for number in first..end {
                let writer = writer(number);
                appends.set_up(writer, segment);
                appends.append(writer, 1, 1, event.clone());
            }
            let mut acked = first;
            let hearing = async {
                while acked < end {
                    if let Heard::Acked { .. } = acks.next().await? {
                        acked += 1;
                    }
                }
                anyhow::Ok(())
            };
            tokio::try_join!(appends.flush(), hearing)?;
            first = end;
        }
        Ok(())
    }

    /// Puts all keys into a table.
    async fn put(&self, server: &Server) -> Result<()> {
        let connection = wire::requests(&server.store).await?;
        let create = CreateTableSegment {
            request_id: 0,
            segment: table(),
            delegation_token: String::new(),
            sorted_deprecated: false,
            key_length: 0,
            rollover_size_bytes: 0,
        };
        let Command::SegmentCreated(_) = connection.call(create).await? else { bail!("no table") };
        let mut first = 0;
        while first < self.count {
            let end = self.count.min(first + BATCH);
            let entries = (first..end).map(|number| TableEntry { key: key(number), value: value(number) });
            let update = UpdateTableEntries {
                request_id: 0,
                segment: table(),
                delegation_token: String::new(),
                entries: entries.collect(),
                table_segment_offset: -1,
            };
            match connection.call(update).await? {
                Command::TableEntriesUpdated(_) => first = end,
                other => bail!("put: {other:?}"),
            }
        }
        Ok(())
    }
}

async fn look_up_writers(
    connection: &RawConnection,
    segment: &str,
    numbers: &[u64],
    present: bool,
) -> Result<Latencies> {
    let expected = if present { 1 } else { i64::MIN };
    let mut latencies = Latencies::default();
    for &number in numbers {
        let (segment, delegation_token) = (segment.to_owned(), String::new());
        let asked = SetupAppend { request_id: 0, writer_id: writer(number), segment, delegation_token };
        let started = Instant::now();
        let answer = connection.call(asked).await?;
        latencies.push(started.elapsed());
        match answer {
            Command::AppendSetup(setup) if setup.last_event_number == expected => {}
            other => bail!("writer {number}: {other:?}"),
        }
    }
    Ok(latencies)
}

async fn look_up_keys(connection: &RawConnection, numbers: &[u64], present: bool) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    for &number in numbers {
        let (segment, delegation_token, keys) = (table(), String::new(), vec![key(number)]);
        let asked = ReadTable { request_id: 0, segment, delegation_token, keys };
        let started = Instant::now();
        let answer = connection.call(asked).await?;
        latencies.push(started.elapsed());
        let Command::TableRead(read) = answer else { bail!("key {number}: {answer:?}") };
        let entry = read.entries.first().context("a get without an entry")?;
        let right = if present { entry.value == value(number) } else { entry.key.version == KEY_NOT_EXISTS };
        if !right {
            bail!("key {number}: {entry:?}");
        }
    }
    Ok(latencies)
}

/// Spreads numbers over all ids, always in the same way.
fn writer(number: u64) -> Uuid {
    let spread = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Uuid(u128::from(spread) << 64 | u128::from(number))
}

fn key(number: u64) -> TableKey {
    TableKey { key: Bytes::copy_from_slice(&writer(number).0.to_be_bytes()), version: KEY_NO_VERSION }
}

fn value(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn table() -> String {
    format!("{SCOPE}/{}/0.#epoch.0", dhara_wire::name::table_stream(TABLE))
}

fn rate(count: u64, started: Instant) -> String {
    format!("{:.0} /s", per_second(count, started.elapsed()))
}
