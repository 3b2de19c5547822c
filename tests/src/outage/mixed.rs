//! A table and transactions beside the writers, the crash harness's own.

use super::Options;
use crate::crash::streams::Stream;
use crate::crash::table::Table;
use crate::crash::transaction::Transactions;
use crate::ledger::chance::Chance;
use crate::server::Server;
use anyhow::{Context, Result};
use tokio::task::{JoinError, JoinHandle};

/// What is remembered of them over the kill.
pub(super) struct Mixed {
    working: Option<JoinHandle<Result<(Table, Transactions)>>>,
    done: Option<(Table, Transactions)>,
}

const SCOPE: &str = "outage-mixed";

impl Mixed {
    /// Creates what they need and lets them work, if the options say so.
    pub(super) async fn start(options: &Options, server: &Server, mut chance: Chance) -> Result<Self> {
        if !options.mixed {
            return Ok(Self { working: None, done: None });
        }
        let (mut table, mut transactions) = (Table::new(SCOPE), Transactions::default());
        table.create(&server.store).await?;
        let mut stream = Stream::at(&server.controller, SCOPE, "transactions")?;
        stream.create().await?;
        let store = server.store.clone();
        let working = tokio::spawn(async move {
            let (for_table, for_transactions) = (chance.fork(), chance.fork());
            tokio::try_join!(
                table.run(&store, for_table),
                transactions.run(stream, &store, for_transactions)
            )?;
            Ok((table, transactions))
        });
        Ok(Self { working: Some(working), done: None })
    }

    /// Ends if they end, which they do not before the server is killed unless something is wrong.
    pub(super) async fn broken(&mut self) -> Result<Result<()>, JoinError> {
        match &mut self.working {
            Some(working) => working.await.map(|done| done.map(drop)),
            None => std::future::pending().await,
        }
    }

    /// Takes them back from a server that was killed.
    pub(super) async fn killed(&mut self) -> Result<()> {
        if let Some(working) = self.working.take() {
            self.done = Some(working.await.context("the table's or transactions' worker panicked")??);
        }
        Ok(())
    }

    /// Compares with what the server has; how many transactions were committed.
    pub(super) async fn verify(&mut self, server: &Server) -> Result<usize> {
        let Some((table, transactions)) = &mut self.done else { return Ok(0) };
        table.verify(&server.store).await.context("table")?;
        let mut stream = Stream::at(&server.controller, SCOPE, "transactions")?;
        transactions.verify(&mut stream, &server.store).await.context("transactions")
    }
}
