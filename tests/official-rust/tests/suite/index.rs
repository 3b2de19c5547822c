//! Index streams: fixed-size records that are searched by their fields.

use futures_util::{pin_mut, StreamExt};
use pravega_client_macros::Fields;

use crate::world::World;

#[derive(Fields, Debug, PartialOrd, PartialEq)]
struct Clock {
    id: u64,
    time: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_by_their_fields() {
    let world = World::new().await;
    let stream = world.stream("index", 1).await;
    let mut writer = world.factory.create_index_writer::<Clock>(stream.clone()).await;
    for number in 0..50 {
        let fields = Clock {
            id: number,
            time: number * 10,
        };
        writer.append(fields, number.to_be_bytes().to_vec()).await.unwrap();
    }
    writer.flush().await.unwrap();

    let reader = world.factory.create_index_reader(stream.clone()).await;
    assert_eq!(reader.first_record_data().await.unwrap(), 0u64.to_be_bytes());
    assert_eq!(reader.last_record_data().await.unwrap(), 49u64.to_be_bytes());
    let (start, end) = (
        reader.search_offset(("time", 95)).await.unwrap(),
        reader.tail_offset().await.unwrap(),
    );
    let records = reader.read(start, end).unwrap();
    pin_mut!(records);
    let mut found = Vec::new();
    while let Some(record) = records.next().await {
        found.push(u64::from_be_bytes(record.unwrap().try_into().unwrap()));
    }
    assert_eq!(found, (10..50).collect::<Vec<_>>());

    writer.truncate(start).await.unwrap();
    let reader = world.factory.create_index_reader(stream).await;
    assert_eq!(reader.head_offset().await.unwrap(), start);
    assert_eq!(reader.first_record_data().await.unwrap(), 10u64.to_be_bytes());
}
