//! Byte streams.

use std::io::SeekFrom;

use pravega_client::byte::reader::ByteReader;
use pravega_client::error::Error;

use crate::world::{in_time, World};

async fn read_exactly(reader: &mut ByteReader, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        filled += in_time("read", reader.read(&mut bytes[filled..])).await.unwrap();
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_read_back_at_any_offset() {
    let world = World::new().await;
    let stream = world.stream("bytes", 1).await;
    let mut writer = world.factory.create_byte_writer(stream.clone()).await;
    let bytes: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    let mut written = 0;
    while written < bytes.len() {
        let end = bytes.len().min(written + 700_001);
        written += writer.write(&bytes[written..end]).await.unwrap();
    }
    in_time("flush", writer.flush()).await.unwrap();
    assert_eq!(writer.current_offset(), bytes.len() as u64);

    let mut reader = world.factory.create_byte_reader(stream.clone()).await;
    assert!(read_exactly(&mut reader, bytes.len()).await == bytes);
    for offset in [0, 1, 250, 1_048_575, 4_999_000] {
        reader.seek(SeekFrom::Start(offset)).await.unwrap();
        assert_eq!(reader.current_offset(), offset);
        let offset = usize::try_from(offset).unwrap();
        assert_eq!(read_exactly(&mut reader, 1000).await, bytes[offset..offset + 1000]);
    }
    assert_eq!(reader.current_tail().await.unwrap(), bytes.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn truncation_moves_the_head_and_refuses_reads_before_it() {
    let world = World::new().await;
    let stream = world.stream("truncated", 1).await;
    let mut writer = world.factory.create_byte_writer(stream.clone()).await;
    writer.write(b"0123456789").await.unwrap();
    writer.flush().await.unwrap();
    writer.truncate_data_before(4).await.unwrap();
    let mut reader = world.factory.create_byte_reader(stream.clone()).await;
    assert_eq!(reader.current_head().await.unwrap(), 4);
    assert!(in_time("read", reader.read(&mut [0; 4])).await.is_err());
    reader.seek(SeekFrom::Start(4)).await.unwrap();
    assert_eq!(read_exactly(&mut reader, 6).await, b"456789");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_writer_is_refused_until_it_moves_to_the_tail() {
    let world = World::new().await;
    let stream = world.stream("contended", 1).await;
    let mut first = world.factory.create_byte_writer(stream.clone()).await;
    let mut second = world.factory.create_byte_writer(stream.clone()).await;
    first.write(b"first").await.unwrap();
    first.flush().await.unwrap();
    second.write(b"lost").await.unwrap();
    let refused = in_time("flush", second.flush()).await;
    assert!(
        matches!(refused, Err(Error::ConditionalCheckFailure { .. })),
        "{refused:?}"
    );
    second.reset().await.unwrap();
    second.seek_to_tail().await;
    second.write(b"second").await.unwrap();
    in_time("flush", second.flush()).await.unwrap();
    let mut reader = world.factory.create_byte_reader(stream.clone()).await;
    assert_eq!(read_exactly(&mut reader, 11).await, b"firstsecond");
    assert_eq!(reader.current_tail().await.unwrap(), 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_byte_stream_refuses_writes_and_ends() {
    let world = World::new().await;
    let stream = world.stream("sealed", 1).await;
    let mut writer = world.factory.create_byte_writer(stream.clone()).await;
    writer.write(b"all").await.unwrap();
    writer.seal().await.unwrap();
    let mut reader = world.factory.create_byte_reader(stream.clone()).await;
    assert_eq!(read_exactly(&mut reader, 3).await, b"all");
    assert_eq!(in_time("end", reader.read(&mut [0; 4])).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_byte_reader_is_woken_by_a_write() {
    let world = World::new().await;
    let stream = world.stream("waiting", 1).await;
    let mut writer = world.factory.create_byte_writer(stream.clone()).await;
    let mut reader = world.factory.create_byte_reader(stream.clone()).await;
    let write = async {
        writer.write(b"late").await.unwrap();
        writer.flush().await.unwrap();
    };
    let (found, ()) = tokio::join!(read_exactly(&mut reader, 4), write);
    assert_eq!(found, b"late");
}
