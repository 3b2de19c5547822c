//! Transactions: all of it or nothing, over scalings too.

use std::time::Duration;

use pravega_client::event::transactional_writer::{Transaction, TransactionalEventWriter};
use pravega_client_shared::{ScopedStream, Timestamp, TransactionStatus, WriterId};

use crate::world::{by_key, in_time, write_numbered, World};

const NOW: Timestamp = Timestamp(1);

impl World {
    async fn transactions(&self, stream: &ScopedStream) -> TransactionalEventWriter {
        self.factory
            .create_transactional_event_writer(stream.clone(), WriterId(7))
            .await
    }
}

async fn write(transaction: &mut Transaction, name: &str, from: usize, to: usize) {
    for number in from..to {
        let event = format!("{name}:{number}").into_bytes();
        transaction.write_event(Some("key".to_owned()), event).await.unwrap();
    }
}

async fn reaches(transaction: &Transaction, status: TransactionStatus) {
    in_time(&status, async {
        while transaction.check_status().await.unwrap() != status {
            tokio::time::sleep(Duration::from_millis(20)).await; // between two questions
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_events_are_read_in_commit_order() {
    let world = World::new().await;
    let stream = world.stream("committed", 2).await;
    let mut writer = world.transactions(&stream).await;
    for round in 0..5 {
        let mut transaction = writer.begin().await.unwrap();
        assert_eq!(transaction.check_status().await.unwrap(), TransactionStatus::Open);
        write(&mut transaction, "key", round * 20, round * 20 + 20).await;
        transaction.commit(NOW).await.unwrap();
        if round % 2 == 0 {
            reaches(&transaction, TransactionStatus::Committed).await;
        }
    }
    let events = world.read_from_head("group", &stream, 100).await;
    assert_eq!(by_key(&events)["key"], (0..100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_events_are_never_read() {
    let world = World::new().await;
    let stream = world.stream("aborted", 2).await;
    let mut writer = world.transactions(&stream).await;
    let mut aborted = writer.begin().await.unwrap();
    write(&mut aborted, "aborted", 0, 10).await;
    aborted.abort().await.unwrap();
    reaches(&aborted, TransactionStatus::Aborted).await;
    let mut committed = writer.begin().await.unwrap();
    write(&mut committed, "committed", 0, 10).await;
    committed.commit(NOW).await.unwrap();
    reaches(&committed, TransactionStatus::Committed).await;
    let events = world.read_from_head("group", &stream, 10).await;
    assert_eq!(by_key(&events)["committed"], (0..10).collect::<Vec<_>>());
    assert_eq!(events.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_transaction_refuses_everything() {
    let world = World::new().await;
    let stream = world.stream("closed", 1).await;
    let mut writer = world.transactions(&stream).await;
    let mut transaction = writer.begin().await.unwrap();
    transaction.commit(NOW).await.unwrap();
    assert!(transaction.write_event(None, vec![1]).await.is_err());
    assert!(transaction.commit(NOW).await.is_err());
    assert!(transaction.abort().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transaction_is_found_by_its_id_and_a_closed_one_is_closed() {
    let world = World::new().await;
    let stream = world.stream("found", 1).await;
    let mut writer = world.transactions(&stream).await;
    let mut transaction = writer.begin().await.unwrap();
    let found = writer.get_txn(transaction.txn_id()).await.unwrap();
    assert_eq!(found.txn_id(), transaction.txn_id());
    assert_eq!(found.check_status().await.unwrap(), TransactionStatus::Open);
    transaction.abort().await.unwrap();
    reaches(&transaction, TransactionStatus::Aborted).await;
    let mut closed = writer.get_txn(transaction.txn_id()).await.unwrap();
    assert!(closed.commit(NOW).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_open_transactions_do_not_see_each_other() {
    let world = World::new().await;
    let stream = world.stream("two", 1).await;
    let mut writer = world.transactions(&stream).await;
    let (mut first, mut second) = (writer.begin().await.unwrap(), writer.begin().await.unwrap());
    for number in 0..20 {
        write(&mut first, "first", number, number + 1).await;
        write(&mut second, "second", number, number + 1).await;
    }
    second.commit(NOW).await.unwrap();
    reaches(&second, TransactionStatus::Committed).await;
    first.commit(NOW).await.unwrap();
    let events = world.read_from_head("group", &stream, 40).await;
    let names: Vec<_> = events.iter().map(|event| event.starts_with(b"second")).collect();
    assert_eq!(
        names,
        [vec![true; 20], vec![false; 20]].concat(),
        "each in one piece, in commit order"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_of_an_earlier_epoch_is_committed_after_scalings() {
    let world = World::new().await;
    let stream = world.stream("rolled", 1).await;
    let mut writer = world.transactions(&stream).await;
    let mut transaction = writer.begin().await.unwrap();
    write(&mut transaction, "txn", 0, 50).await;
    world.split(&stream, 0).await;
    write(&mut transaction, "txn", 50, 100).await;
    world.split(&stream, 1).await;
    transaction.commit(NOW).await.unwrap();
    reaches(&transaction, TransactionStatus::Committed).await;
    assert_eq!(world.segments(&stream).await.len(), 3, "the scaling is not undone");
    let mut plain = world.factory.create_event_writer(stream.clone());
    for number in 0..100 {
        write_numbered(&mut plain, number, 10).await;
    }
    plain.flush().await.unwrap();
    let numbers = by_key(&world.read_from_head("group", &stream, 200).await);
    assert_eq!(numbers["txn"], (0..100).collect::<Vec<_>>());
    assert_eq!(numbers["key-9"], (0..10).collect::<Vec<_>>());
}
