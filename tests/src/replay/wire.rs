//! Runs the steps of a wire transcript against a segment store.

use super::Failure;
use super::connection::{Connection, Event};
use super::layout::{Kind, Reply, decode, encode};
use super::value::{Scope, Value, hex};
use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long an expectation waits for its frame.
const REPLY_WAIT: Duration = Duration::from_secs(30);
/// Pages after which an iteration counts as endless.
const PAGES_MAX: u32 = 10_000;

type Step = Map<String, Json>;

/// One run of the steps of a scenario.
pub struct WireRun {
    address: String,
    connections: BTreeMap<String, Connection>,
    /// The variables.
    pub scope: Scope,
}

/// How a scenario ended.
#[derive(Debug)]
pub enum Outcome {
    /// Every step held.
    Passed,
    /// It does not concern this server.
    Skipped(String),
    /// A step did not hold.
    Failed(String),
}

/// Runs one scenario against the store at `address`.
pub async fn run_scenario(address: &str, run: String, scenario: &Json) -> Outcome {
    let mut wire = WireRun::new(address, Scope::new(run));
    match wire.run(&scenario["steps"]).await {
        Ok(None) => Outcome::Passed,
        Ok(Some(reason)) => Outcome::Skipped(reason),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

impl WireRun {
    /// A run with the given variables and no connection yet.
    pub fn new(address: &str, scope: Scope) -> Self {
        Self { address: address.to_owned(), connections: BTreeMap::new(), scope }
    }

    /// Runs `steps`; returns why the scenario does not concern this server, if so.
    ///
    /// # Errors
    /// The first step that does not hold, or that is no step.
    pub async fn run(&mut self, steps: &Json) -> Result<Option<String>> {
        for (at, step) in steps.as_array().context("steps are a list")?.iter().enumerate() {
            let object = step.as_object().context("a step is an object")?;
            if let Some(needed) = object.get("needs_version") {
                let announced = self.scope.int(&json!("$serverHighVersion"))?;
                if announced < self.scope.int(needed)? {
                    return Ok(Some(format!(
                        "needs wire version {needed}, the server announces {announced}"
                    )));
                }
                continue;
            }
            self.step(object).await.with_context(|| format!("step {} {}", at + 1, brief(step)))?;
        }
        Ok(None)
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        if let Some(ms) = step.get("sleep_ms") {
            tokio::time::sleep(Duration::from_millis(ms.as_u64().context("sleep_ms")?)).await;
            return Ok(());
        }
        if let Some(name) = step.get("open").or_else(|| step.get("reconnect")) {
            let name = name.as_str().context("a connection has a name")?;
            self.connections.remove(name);
            let mut connection = Connection::open(&self.address).await?;
            if let Some(versions) = step.get("hello") {
                self.hello(&mut connection, versions).await?;
            }
            self.connections.insert(name.to_owned(), connection);
            return Ok(());
        }
        if let Some(name) = step.get("close") {
            let closed = self.connections.remove(name.as_str().context("a connection has a name")?);
            return closed.map(drop).context("closes an unknown connection");
        }
        let name = step.get("conn").and_then(Json::as_str).context("a step names its connection")?;
        let mut connection = self.connections.remove(name).context("the connection is not open")?;
        let result = self.act_repeated(&mut connection, step).await;
        self.connections.insert(name.to_owned(), connection);
        result
    }

    async fn hello(&mut self, connection: &mut Connection, versions: &Json) -> Result<()> {
        let hello = json!({"type": "Hello", "highVersion": versions[0], "lowVersion": versions[1]});
        let frame = self.scope.frame(hello.as_object().context("hello")?)?;
        connection.send(&frame).await?;
        let (reply, event) = need(connection).await?;
        if reply.command != "Hello" {
            return Err(unexpected("first reply is not Hello", Some(&event)));
        }
        let high = reply.field("highVersion")?.clone();
        self.scope.variables.insert("serverHighVersion".to_owned(), high);
        Ok(())
    }

    async fn act_repeated(&mut self, connection: &mut Connection, step: &Step) -> Result<()> {
        let Some(repeat) = step.get("repeat") else { return self.act(connection, step).await };
        let mut frames = BytesMut::new();
        for (name, n) in self.scope.repeat(repeat)? {
            self.scope.variables.insert(name, Value::Int(n));
            match step.get("send") {
                Some(messages) => frames.extend_from_slice(&self.frames(messages)?),
                None => self.act(connection, step).await?,
            }
        }
        connection.send(&frames).await
    }

    fn frames(&mut self, messages: &Json) -> Result<BytesMut> {
        let mut frames = BytesMut::new();
        for message in messages.as_array().map_or(std::slice::from_ref(messages), Vec::as_slice) {
            let message = message.as_object().context("a message is an object")?;
            frames.extend_from_slice(&self.scope.frame(message)?);
        }
        Ok(frames)
    }

    async fn act(&mut self, connection: &mut Connection, step: &Step) -> Result<()> {
        if let Some(messages) = step.get("send") {
            let frames = self.frames(messages)?;
            connection.send(&frames).await
        } else if let Some(raw) = step.get("raw") {
            let raw = self.scope.bytes(raw)?;
            connection.send(&raw).await
        } else if let Some(options) = step.get("any_of") {
            self.any_of(connection, options.as_array().context("any_of is a list")?).await
        } else if let Some(read) = step.get("read_back") {
            self.read_back(connection, read).await
        } else if let Some(iterate) = step.get("iterate") {
            self.iterate(connection, iterate).await
        } else {
            self.expect(connection, step).await
        }
    }

    async fn expect(&mut self, connection: &mut Connection, step: &Step) -> Result<()> {
        if let Some(want) = step.get("expect") {
            let (reply, event) = need(connection).await?;
            return match self.scope.match_reply(want, &reply)? {
                Some(why) => Err(unexpected(&why, Some(&event))),
                None => Ok(()),
            };
        }
        if let Some(wants) = step.get("expect_unordered") {
            return self.expect_unordered(connection, wants.as_array().context("a list")?).await;
        }
        if let Some(acks) = step.get("expect_acks") {
            return self.acks(connection, acks).await;
        }
        if step.contains_key("expect_close") {
            return match connection.next(REPLY_WAIT).await {
                Some(Event::Close) => {
                    connection.position -= 1;
                    Ok(())
                }
                other => Err(unexpected("the server had to close the connection", other.as_ref())),
            };
        }
        let silence = step.get("expect_silence_ms").and_then(Json::as_u64).context("unknown step")?;
        match connection.next(Duration::from_millis(silence)).await {
            Some(event) => Err(unexpected("nothing was expected", Some(&event))),
            None => Ok(()),
        }
    }

    async fn expect_unordered(&mut self, connection: &mut Connection, wants: &[Json]) -> Result<()> {
        let mut left: Vec<&Json> = wants.iter().collect();
        while !left.is_empty() {
            let (reply, event) = need(connection).await?;
            let mut whys = Vec::new();
            for want in &left {
                match self.scope.match_reply(want, &reply)? {
                    Some(why) => whys.push(why),
                    None => break,
                }
            }
            if whys.len() == left.len() {
                let why = format!("reply fits none that is outstanding: {}", whys.join("; "));
                return Err(unexpected(&why, Some(&event)));
            }
            left.remove(whys.len());
        }
        Ok(())
    }

    async fn any_of(&mut self, connection: &mut Connection, options: &[Json]) -> Result<()> {
        let start = connection.position;
        let mut whys = Vec::new();
        for option in options {
            connection.position = start;
            let saved = self.scope.clone();
            let steps = option.as_array().map_or(std::slice::from_ref(option), Vec::as_slice);
            match self.all_of(connection, steps).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is::<Failure>() => whys.push(format!("{error:#}")),
                Err(error) => return Err(error),
            }
            self.scope = saved;
        }
        connection.position = start;
        Err(Failure(format!("none of the alternatives: {}", whys.join(" | "))).into())
    }

    async fn all_of(&mut self, connection: &mut Connection, steps: &[Json]) -> Result<()> {
        for step in steps {
            let step = step.as_object().context("an alternative is a step")?;
            Box::pin(self.act(connection, step)).await?;
        }
        Ok(())
    }

    async fn read_back(&mut self, connection: &mut Connection, read: &Json) -> Result<()> {
        let want = self.scope.bytes(&read["data"])?;
        let start = read.get("offset").map(|offset| self.scope.int(offset)).transpose()?.unwrap_or(0);
        let end = start + i64::try_from(want.len())?;
        let mut at = start;
        let mut got = BytesMut::new();
        while at < end {
            let request = json!({"type": "ReadSegment", "segment": read["segment"], "offset": at,
                "suggestedLength": (end - at).max(8), "delegationToken": "", "requestId": 77});
            let frame = self.scope.frame(request.as_object().context("request")?)?;
            connection.send(&frame).await?;
            let (reply, event) = need(connection).await?;
            let starts_here = reply.command == "SegmentRead" && reply.field("offset")?.int()? == at;
            if !starts_here || reply.field("data")?.bytes()?.is_empty() {
                return Err(unexpected(&format!("read at {at} was not answered with data"), Some(&event)));
            }
            let data = reply.field("data")?.bytes()?;
            got.extend_from_slice(data);
            at += i64::try_from(data.len())?;
        }
        // A server may send up to 8 bytes when fewer are asked.
        got.truncate(want.len());
        if got != want {
            let same = got.iter().zip(&want).take_while(|(a, b)| a == b).count();
            let why = format!(
                "bytes differ {same} after offset {start}: {}, expected {}",
                hex(&got[same..]),
                hex(&want[same..])
            );
            return Err(Failure(why).into());
        }
        Ok(())
    }

    /// Takes acks of one or more writers until each has reached its `upTo`.
    async fn acks(&mut self, connection: &mut Connection, specs: &Json) -> Result<()> {
        let mut writers = BTreeMap::new();
        for spec in specs.as_array().map_or(std::slice::from_ref(specs), Vec::as_slice) {
            let id = self.scope.text(spec["writerId"].as_str().context("writerId")?)?;
            let previous = self.scope.int(&spec["previous"])?;
            let up_to = self.scope.int(&spec["upTo"])?;
            writers.insert(id, Acked { spec, previous, up_to, offset: i64::MIN, count: 0 });
        }
        while writers.values().any(|writer| writer.previous != writer.up_to) {
            let (reply, event) = need(connection).await?;
            let why = match reply.command {
                "DataAppended" => self.ack(&mut writers, &reply)?,
                _ => Some("not an ack".to_owned()),
            };
            if let Some(why) = why {
                return Err(unexpected(&why, Some(&event)));
            }
        }
        for writer in writers.values() {
            let Some(want) = writer.spec.get("count") else { continue };
            if let Some(why) = self.scope.match_value(Kind::I64, want, &Value::Int(writer.count))? {
                return Err(Failure(format!("number of acks: {why}")).into());
            }
        }
        Ok(())
    }

    fn ack(&mut self, writers: &mut BTreeMap<String, Acked<'_>>, reply: &Reply) -> Result<Option<String>> {
        let number = reply.field("eventNumber")?.int()?;
        let previous = reply.field("previousEventNumber")?.int()?;
        let offset = reply.field("currentSegmentWriteOffset")?;
        let Some(writer) = writers.get_mut(reply.field("writerId")?.text()?) else {
            return Ok(Some("ack of another writer".to_owned()));
        };
        self.scope.variables.insert("eventNumber".to_owned(), Value::Int(number));
        if previous != writer.previous {
            return Ok(Some(format!(
                "previous number is {previous}, the ack before was {}",
                writer.previous
            )));
        }
        if number <= writer.previous || number > writer.up_to {
            return Ok(Some("event number out of order".to_owned()));
        }
        if offset.int()? < writer.offset {
            return Ok(Some("write offset goes back".to_owned()));
        }
        writer.previous = number;
        writer.offset = offset.int()?;
        writer.count += 1;
        let why = self.scope.match_value(Kind::I64, &writer.spec["requestId"], reply.field("requestId")?)?;
        if let Some(why) = why {
            return Ok(Some(format!("requestId: {why}")));
        }
        match writer.spec.get("writeOffset") {
            Some(want) => self.scope.match_value(Kind::I64, want, offset),
            None => Ok(None),
        }
    }

    /// Follows continuation tokens up to an empty page and compares the set of items.
    async fn iterate(&mut self, connection: &mut Connection, iterate: &Json) -> Result<()> {
        let (request, count, items, answer, kind) = match iterate["type"].as_str() {
            Some("ReadTableKeys") => {
                ("ReadTableKeys", "suggestedKeyCount", "keys", "TableKeysRead", Kind::Keys)
            }
            Some("ReadTableEntries") => {
                ("ReadTableEntries", "suggestedEntryCount", "entries", "TableEntriesRead", Kind::Entries)
            }
            _ => bail!("cannot iterate {iterate}"),
        };
        let segment = self.scope.value(Kind::Text, &iterate["segment"])?;
        let count_value = Value::Int(self.scope.int(&iterate["count"])?);
        let mut token = Value::Bytes(bytes::Bytes::new());
        let mut got = Vec::new();
        let mut pages = 0_u32;
        loop {
            let mut fields = BTreeMap::from([
                ("requestId".to_owned(), Value::Int(78)),
                ("segment".to_owned(), segment.clone()),
                (count.to_owned(), count_value.clone()),
                ("continuationToken".to_owned(), token),
            ]);
            for empty in ["prefixFilter", "fromKey", "toKey"] {
                fields.insert(empty.to_owned(), Value::Bytes(bytes::Bytes::new()));
            }
            connection.send(&encode(request, &fields, &[])?).await?;
            let (reply, event) = need(connection).await?;
            if reply.command != answer {
                return Err(unexpected("not an iteration reply", Some(&event)));
            }
            let page = reply.field(items)?.list()?;
            if page.is_empty() {
                break;
            }
            got.extend_from_slice(page);
            token = reply.field("continuationToken")?.clone();
            pages += 1;
            ensure!(pages <= PAGES_MAX, Failure("the iteration does not end".to_owned()));
        }
        let want = json!({"unordered": iterate["items"]});
        let mut why = self.scope.match_value(kind, &want, &Value::List(got))?;
        if let (None, Some(want)) = (&why, iterate.get("pages")) {
            why = self.scope.match_value(Kind::I64, want, &Value::Int(pages.into()))?;
        }
        why.map_or(Ok(()), |why| Err(Failure(format!("iteration: {why}")).into()))
    }
}

struct Acked<'a> {
    spec: &'a Json,
    previous: i64,
    up_to: i64,
    offset: i64,
    count: i64,
}

/// The next frame, decoded.
async fn need(connection: &mut Connection) -> Result<(Reply, Event)> {
    let event = connection.next(REPLY_WAIT).await;
    let Some(Event::Frame(code, payload)) = &event else {
        return Err(unexpected("no frame", event.as_ref()));
    };
    match decode(*code, payload) {
        Ok(reply) => Ok((reply, Event::Frame(*code, payload.clone()))),
        Err(error) => Err(unexpected(&format!("{error:#}"), event.as_ref())),
    }
}

fn unexpected(why: &str, got: Option<&Event>) -> anyhow::Error {
    match got {
        Some(event) => Failure(format!("{why}\n      got {event}")).into(),
        None => Failure(format!("{why}: nothing came")).into(),
    }
}

fn brief(step: &Json) -> String {
    let mut text = step.to_string();
    if let Some((cut, _)) = text.char_indices().nth(400) {
        text.truncate(cut);
        text.push('…');
    }
    text
}
