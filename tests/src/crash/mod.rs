//! Kills a server again and again and compares what it promised with what it kept.
//!
//! A round: start on the same folder, verify everything acked so far, write from all sides, `kill -9` at a random
//! time; if power is cut as well, the folder then loses everything that was not flushed. All choices follow from the
//! seed; what the server had done when it was hit does not.

mod appender;
mod keyed;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod transaction;

use crate::ledger::chance::Chance;
use crate::power_cut::PowerCut;
use crate::server::Server;
use anyhow::{Context, Result, ensure};
use appender::Appenders;
use keyed::KeyedWriters;
use std::path::PathBuf;
use std::time::Duration;
use streams::Stream;
use table::Table;
use tokio::task::JoinSet;
use tokio::time::sleep;
use transaction::Transactions;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub binary: PathBuf,
    /// Its data; empty at first.
    pub data: PathBuf,
    /// Further arguments of the server.
    pub arguments: Vec<String>,
    /// Cuts the power with each kill; the data must lie in the folder that it watches.
    pub power_cut: Option<PowerCut>,
    /// How many kills.
    pub rounds: u32,
    /// Where all choices come from.
    pub seed: u64,
    /// Segments and tables only, without streams and transactions.
    pub store_only: bool,
    /// Bounds of the time that a server may work before it is killed, ms.
    pub life_ms: (u64, u64),
}

/// How a round went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// From exec to ready.
    pub ready_after: Duration,
    /// Events of the ledger found by now.
    pub events: i64,
    /// Transactions found by now.
    pub transactions: usize,
    /// How long the server worked before it was killed.
    pub life: Duration,
}

/// Everything that is remembered over crashes.
struct World {
    scope: String,
    options: Options,
    appenders: Appenders,
    table: Table,
    keyed: KeyedWriters,
    transactions: Transactions,
}

/// Runs all rounds, telling `each` how they went.
///
/// # Errors
/// At the first broken promise.
pub async fn run(options: &Options, mut each: impl FnMut(u32, Round)) -> Result<()> {
    let mut chance = Chance::new(options.seed);
    let scope = format!("crash-{}", options.seed);
    let mut world = World {
        options: options.clone(),
        appenders: Appenders::new(&scope),
        table: Table::new(&scope),
        scope,
        keyed: KeyedWriters::new(),
        transactions: Transactions::default(),
    };
    for round in 1..=options.rounds {
        let mut chance = chance.fork();
        let told = world.round(round == 1, &mut chance).await;
        each(round, told.with_context(|| format!("round {round}, seed {}", options.seed))?);
    }
    // After the last kill everything is read from its first byte, and once more after a graceful stop.
    for stop in ["kill", "stop"] {
        let server = options.start().await?;
        world
            .verify(&server, true)
            .await
            .with_context(|| format!("after the last {stop}, seed {}", options.seed))?;
        let (status, _) = server.stop().await?;
        ensure!(status.success(), "stopped with {status}");
        options.cut_power()?;
    }
    Ok(())
}

impl Options {
    async fn start(&self) -> Result<Server> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let environment = self.power_cut.as_ref().map(PowerCut::environment).unwrap_or_default();
        Server::start_with(&self.binary, &self.data, &arguments, &environment).await
    }

    fn cut_power(&self) -> Result<()> {
        self.power_cut.as_ref().map_or(Ok(()), PowerCut::strike).context("cutting the power")
    }
}

impl World {
    async fn round(&mut self, first: bool, chance: &mut Chance) -> Result<Round> {
        let server = self.options.start().await?;
        let mut told = Round { ready_after: server.ready_after, ..Round::default() };
        if first {
            self.create(&server).await?;
        } else {
            (told.events, told.transactions) = self.verify(&server, false).await?;
        }
        told.life = Duration::from_millis(chance.within(self.options.life_ms.0..self.options.life_ms.1));
        self.work(server, told.life, chance).await?;
        Ok(told)
    }

    async fn create(&self, server: &Server) -> Result<()> {
        self.appenders.create(&server.store).await?;
        self.table.create(&server.store).await?;
        if !self.options.store_only {
            Stream::at(&server.controller, &self.scope, "scaled")?.create().await?;
            Stream::at(&server.controller, &self.scope, "transactions")?.create().await?;
        }
        Ok(())
    }

    async fn verify(&mut self, server: &Server, everything: bool) -> Result<(i64, usize)> {
        let mut events = self.appenders.verify(&server.store, everything).await.context("plain segments")?;
        self.table.verify(&server.store).await.context("table")?;
        if self.options.store_only {
            return Ok((events, 0));
        }
        let mut scaled = Stream::at(&server.controller, &self.scope, "scaled")?;
        events += self.keyed.verify(&mut scaled, &server.store, everything).await.context("scaled stream")?;
        let mut stream = Stream::at(&server.controller, &self.scope, "transactions")?;
        let found = self.transactions.verify(&mut stream, &server.store).await.context("transactions")?;
        Ok((events, found))
    }

    /// Works from all sides until the server has lived for `life`, kills it, and takes the workers back.
    async fn work(&mut self, server: Server, life: Duration, chance: &mut Chance) -> Result<()> {
        let mut workers = JoinSet::new();
        // Pipelined writers take all the time there is; now and then streams and transactions have the server alone.
        if self.options.store_only || !chance.once_in(3) {
            for writer in std::mem::take(&mut self.appenders.writers) {
                let (store, chance) = (server.store.clone(), chance.fork());
                workers.spawn(appends(writer, store, chance));
            }
        }
        let (table, table_chance) = (std::mem::take(&mut self.table), chance.fork());
        workers.spawn(tables(table, server.store.clone(), table_chance));
        if !self.options.store_only {
            let scaled = Stream::at(&server.controller, &self.scope, "scaled")?;
            for writer in std::mem::take(&mut self.keyed.writers) {
                let (stream, store, chance) = (scaled.clone(), server.store.clone(), chance.fork());
                workers.spawn(keys(writer, stream, store, chance));
            }
            workers.spawn(scales(scaled, chance.fork()));
            let stream = Stream::at(&server.controller, &self.scope, "transactions")?;
            let (all, store, chance) =
                (std::mem::take(&mut self.transactions), server.store.clone(), chance.fork());
            workers.spawn(transactions(all, stream, store, chance));
        }
        sleep(life).await;
        server.kill().await?;
        self.options.cut_power()?;
        while let Some(worker) = workers.join_next().await {
            match worker.context("a worker panicked")?? {
                Worker::Appender(writer) => self.appenders.writers.push(writer),
                Worker::Table(table) => self.table = table,
                Worker::Keyed(writer) => self.keyed.writers.push(writer),
                Worker::Transactions(all) => self.transactions = all,
                Worker::Scaler => {}
            }
        }
        self.appenders.writers.sort_by_key(|writer| writer.writer);
        self.keyed.writers.sort_by_key(keyed::Keyed::writer);
        Ok(())
    }
}

/// A worker that has seen its server die, with what it remembers.
enum Worker {
    Appender(appender::Appender),
    Table(Table),
    Keyed(keyed::Keyed),
    Transactions(Transactions),
    Scaler,
}

async fn appends(mut writer: appender::Appender, store: String, chance: Chance) -> Result<Worker> {
    writer.run(&store, chance).await?;
    Ok(Worker::Appender(writer))
}

async fn tables(mut table: Table, store: String, chance: Chance) -> Result<Worker> {
    table.run(&store, chance).await?;
    Ok(Worker::Table(table))
}

async fn keys(mut writer: keyed::Keyed, stream: Stream, store: String, chance: Chance) -> Result<Worker> {
    writer.run(stream, &store, chance).await?;
    Ok(Worker::Keyed(writer))
}

async fn scales(stream: Stream, chance: Chance) -> Result<Worker> {
    keyed::scale(stream, chance).await?;
    Ok(Worker::Scaler)
}

async fn transactions(
    mut all: Transactions,
    stream: Stream,
    store: String,
    chance: Chance,
) -> Result<Worker> {
    all.run(stream, &store, chance).await?;
    Ok(Worker::Transactions(all))
}
