//! Bringing a container to long-term storage by the wire, as `dhara store flush` asks for it.

use bytes::Bytes;
use dhara_tests::server::{self, Server};
use dhara_tests::session::{Session, Shape, append};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{Command, FlushToStorage, ListStorageChunks};

const SEGMENT: &str = "flush/stream/0.#epoch.0";
const WRITER: Uuid = Uuid(7);

#[tokio::test]
async fn what_was_acknowledged_lies_in_objects_once_a_flush_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let binary = server::binary().unwrap();
    let server = Server::start(&binary, folder.path()).await.unwrap();
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    session.create(SEGMENT).await.unwrap();
    session.setup(SEGMENT, WRITER).await.unwrap();
    for frame in append(Shape::Alone, WRITER, &[Bytes::from_static(b"event")], 1, 1) {
        session.send(frame).await.unwrap();
    }
    assert!(matches!(session.reply().await.unwrap(), Some(Command::DataAppended(_))));
    let length = session.info(SEGMENT).await.unwrap().unwrap().write_offset;

    let delegation_token = String::new();
    let flush = FlushToStorage { container_id: 0, delegation_token, request_id: 2 };
    let flushed = session.ask(flush).await.unwrap();
    assert!(matches!(&flushed, Some(Command::StorageFlushed(reply)) if reply.request_id == 2), "{flushed:?}");

    let (segment, delegation_token) = (SEGMENT.to_owned(), String::new());
    let chunks = session.ask(ListStorageChunks { segment, delegation_token, request_id: 3 }).await.unwrap();
    let Some(Command::StorageChunksListed(listed)) = chunks else { panic!("{chunks:?}") };
    let stored: i64 = listed.chunks.iter().map(|chunk| chunk.length_in_metadata).sum();
    assert_eq!((stored, listed.request_id), (length, 3));
    server.kill().await.unwrap();
}
