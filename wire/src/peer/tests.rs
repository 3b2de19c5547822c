use super::*;
use crate::codec::{Blob, Rest, Uuid};
use crate::command::{
    AppendBlock, AppendBlockEnd, Command, ConditionalBlockEnd, DataAppended, GetStreamSegmentInfo, Hello,
    KeepAlive, NoSuchSegment, SegmentRead,
};
use bytes::{Bytes, BytesMut};
use dhara_stdx::budget::ByteBudget;
use dhara_stdx::retry::Retry;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const KIB: usize = 1024;

fn block(bytes: usize) -> Command {
    AppendBlock { writer_id: Uuid(1), data: Rest(Bytes::from(vec![7; bytes])) }.into()
}

fn block_end(bytes: usize) -> Command {
    AppendBlockEnd {
        writer_id: Uuid(1),
        size_of_whole_events: 0,
        data: Blob(Bytes::from(vec![9; bytes])),
        num_events: 1,
        last_event_number: 1,
        request_id: 5,
    }
    .into()
}

fn info(segment: &str) -> GetStreamSegmentInfo {
    GetStreamSegmentInfo { request_id: 0, segment: segment.to_owned(), delegation_token: String::new() }
}

fn encoded(commands: &[Command]) -> Vec<u8> {
    let mut out = BytesMut::new();
    for command in commands {
        command.encode(&mut out);
    }
    out.to_vec()
}

fn reader(source: DuplexStream, budget: Option<ByteBudget>) -> FrameReader<DuplexStream> {
    FrameReader::new(source, ReaderConfig { budget, ..ReaderConfig::default() })
}

/// Reads frames to the end.
async fn read_all(reader: &mut FrameReader<DuplexStream>) -> Result<Vec<Command>, ReadError> {
    let mut commands = Vec::new();
    loop {
        let next = reader.next().await?;
        let Some(frame) = next else { return Ok(commands) };
        commands.push(frame.command().unwrap());
    }
}

/// A server's side of the handshake.
async fn greeted(
    client: DuplexStream,
    mut server: DuplexStream,
) -> (RawConnection, FrameReader<DuplexStream>) {
    let hello = encoded(&[Hello { high_version: 15, low_version: 5 }.into()]);
    server.write_all(&hello).await.unwrap();
    let (connection, serve) = RawConnection::over(client, ConnectionConfig::default()).await.unwrap();
    drop(tokio::spawn(serve));
    let mut reader = reader(server, None);
    let hello = reader.next().await.unwrap().unwrap().command().unwrap();
    assert_eq!(hello, Hello { high_version: 17, low_version: 5 }.into());
    (connection, reader)
}

#[tokio::test]
async fn frames_come_out_as_they_went_in_however_the_stream_is_cut() {
    let commands =
        [block(0), block(64 * KIB), KeepAlive {}.into(), block(300 * KIB), block_end(3), block(100)];
    let bytes = encoded(&commands);
    for piece in [1000, 4096, 65_536 + 24, 1 << 20] {
        let (mut near, far) = duplex(piece);
        let sent = bytes.clone();
        let writing = tokio::spawn(async move { near.write_all(&sent).await.unwrap() });
        assert_eq!(read_all(&mut reader(far, None)).await.unwrap(), commands);
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn end_inside_a_frame_is_an_error() {
    let bytes = encoded(&[block(10)]);
    for cut in 1..bytes.len() {
        let (mut near, far) = duplex(KIB);
        near.write_all(&bytes[..cut]).await.unwrap();
        drop(near);
        assert!(matches!(read_all(&mut reader(far, None)).await, Err(ReadError::Cut)), "{cut}");
    }
}

#[tokio::test]
async fn illegal_length_is_an_error_before_anything_is_reserved() {
    for length in [-1, i32::MIN, 0x00ff_fff8, i32::MAX] {
        let (mut near, far) = duplex(KIB);
        near.write_i32(3).await.unwrap();
        near.write_i32(length).await.unwrap();
        assert!(matches!(reader(far, None).next().await, Err(ReadError::Header(_))), "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn frame_begun_must_end_but_silence_between_frames_may_last() {
    for cut in [1, 9, 200 * KIB] {
        let bytes = encoded(&[block(300 * KIB)]);
        let (mut near, far) = duplex(1 << 20);
        let mut reader = reader(far, None);
        let day = Duration::from_hours(24);
        assert!(tokio::time::timeout(day, reader.next()).await.is_err());
        near.write_all(&bytes[..cut]).await.unwrap();
        assert!(matches!(reader.next().await, Err(ReadError::Slow { .. })));
    }
}

#[tokio::test]
async fn large_frame_waits_for_its_permit_and_a_small_one_does_not() {
    let budget = ByteBudget::new(100 * KIB as u64);
    let held = budget.acquire(1).await;
    let (mut near, far) = duplex(1 << 20);
    let mut reader = reader(far, Some(budget.clone()));
    near.write_all(&encoded(&[block(10), block(200 * KIB)])).await.unwrap();
    assert!(reader.next().await.unwrap().unwrap().permit.is_none());
    let mut waiting = poll_a_while(&mut reader).await;
    assert!(waiting.is_none());
    // Dropping `next` has not lost the place in line.
    assert!(budget.try_acquire(1).is_none());
    drop(held);
    waiting = reader.next().await.unwrap();
    assert_eq!(waiting.unwrap().permit.unwrap().bytes(), budget.held());
}

/// Polls `next` for a while; `None` if no frame came.
async fn poll_a_while(reader: &mut FrameReader<DuplexStream>) -> Option<Frame> {
    for _ in 0..10 {
        let mut next = std::pin::pin!(reader.next());
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(next.as_mut().poll(context))).await;
        if let std::task::Poll::Ready(frame) = polled {
            return frame.unwrap();
        }
        tokio::task::yield_now().await;
    }
    None
}

#[tokio::test]
async fn end_of_a_block_never_waits_for_the_permit_its_block_holds() {
    let budget = ByteBudget::new(100 * KIB as u64);
    let (mut near, far) = duplex(1 << 20);
    let mut reader = reader(far, Some(budget.clone()));
    // Whatever comes between the two.
    let frames = [block(100 * KIB), KeepAlive {}.into(), block_end(100 * KIB)];
    near.write_all(&encoded(&frames)).await.unwrap();
    let first = reader.next().await.unwrap().unwrap();
    assert!(first.permit.is_some() && budget.free() == 0);
    assert_eq!(reader.next().await.unwrap().unwrap().code, KeepAlive::CODE);
    assert!(reader.next().await.unwrap().unwrap().permit.is_none());
}

#[tokio::test(start_paused = true)]
async fn block_that_holds_memory_must_get_its_end() {
    let (mut near, far) = duplex(1 << 20);
    let mut reader = reader(far, Some(ByteBudget::new(1 << 20)));
    near.write_all(&encoded(&[block(100 * KIB), block_end(1)])).await.unwrap();
    let _held = reader.next().await.unwrap().unwrap();
    reader.next().await.unwrap().unwrap();
    let day = Duration::from_hours(24);
    assert!(tokio::time::timeout(day, reader.next()).await.is_err(), "idle behind the end");
    near.write_all(&encoded(&[block(100 * KIB)])).await.unwrap();
    let _held = reader.next().await.unwrap().unwrap();
    assert!(matches!(reader.next().await, Err(ReadError::Slow { .. })));
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_do_not_keep_a_block_open() {
    let (mut near, far) = duplex(1 << 20);
    let mut reader = reader(far, Some(ByteBudget::new(1 << 20)));
    near.write_all(&encoded(&[block(100 * KIB)])).await.unwrap();
    let _held = reader.next().await.unwrap().unwrap();
    let alive = async {
        loop {
            tokio::time::sleep(Duration::from_secs(20)).await;
            near.write_all(&encoded(&[KeepAlive {}.into()])).await.unwrap();
        }
    };
    let ended = async {
        loop {
            match reader.next().await {
                Ok(frame) => assert_eq!(frame.unwrap().code, KeepAlive::CODE),
                Err(error) => return error,
            }
        }
    };
    let ended =
        tokio::select! { biased; ended = ended => ended, () = alive => unreachable!("it never ends") };
    assert!(matches!(ended, ReadError::Slow { .. }), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn large_frame_has_time_for_a_slow_line_and_no_more() {
    let bytes = encoded(&[block(8 << 20)]);
    for (rate, comes) in [(80 * KIB, true), (30 * KIB, false)] {
        let (mut near, far) = duplex(1 << 20);
        let (bytes, mut reader) = (&bytes, reader(far, None));
        let sent = async move {
            for second in bytes.chunks(rate) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if near.write_all(second).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let read = tokio::select! { biased; read = reader.next() => read, () = sent => unreachable!("it never ends") };
        assert_eq!(read.is_ok(), comes, "{rate} bytes a second");
    }
}

#[tokio::test]
async fn payload_of_a_large_frame_shares_memory_with_no_other_frame() {
    let (mut near, far) = duplex(1 << 20);
    let mut reader = reader(far, None);
    near.write_all(&encoded(&[block(10), block(100 * KIB), block(10)])).await.unwrap();
    drop(near);
    let mut frames = Vec::new();
    while let Some(frame) = reader.next().await.unwrap() {
        frames.push(frame.payload);
    }
    assert!(frames.remove(1).is_unique());
}

#[tokio::test]
async fn writer_sends_the_same_bytes_with_and_without_copying() {
    let read = |bytes| -> Command {
        SegmentRead {
            segment: "sc/st/0.#epoch.0".to_owned(),
            offset: 3,
            at_tail: true,
            end_of_segment: false,
            data: Blob(Bytes::from(vec![1; bytes])),
            request_id: 8,
        }
        .into()
    };
    let conditional: Command = ConditionalBlockEnd {
        writer_id: Uuid(2),
        event_number: 1,
        expected_offset: 2,
        data: Blob(Bytes::from(vec![2; 5000])),
        request_id: 3,
    }
    .into();
    let commands = [
        read(10),
        read(5000),
        KeepAlive {}.into(),
        block_end(5000),
        block(5000),
        conditional,
        read(4097),
        read(0),
    ];
    let expected = encoded(&commands);
    let (near, mut far) = duplex(777);
    let writing = tokio::spawn(async move {
        let mut writer = FrameWriter::new(near);
        for command in &commands {
            writer.push(command);
        }
        writer.push_bytes(Bytes::from(vec![4; 5000]));
        writer.push_bytes(Bytes::from_static(&[5]));
        let queued = writer.queued_bytes();
        writer.flush().await.unwrap();
        assert_eq!(writer.queued_bytes(), 0);
        queued
    });
    let mut sent = Vec::new();
    far.read_to_end(&mut sent).await.unwrap();
    assert_eq!(writing.await.unwrap(), sent.len());
    assert_eq!(sent[..expected.len()], expected);
    assert_eq!(sent[expected.len()..], [vec![4; 5000], vec![5]].concat());
}

#[tokio::test(start_paused = true)]
async fn peer_that_takes_nothing_is_given_up() {
    let (near, _far) = duplex(10);
    let mut writer = FrameWriter::new(near);
    writer.push(&block(100));
    assert!(matches!(writer.flush().await, Err(WriteError::Slow { .. })));
}

#[tokio::test]
async fn each_caller_gets_the_reply_to_its_own_request() {
    let (client, server) = duplex(1 << 16);
    let (connection, mut requests) = greeted(client, server).await;
    assert_eq!(connection.version(), 15);
    let calls = ["a", "b", "c"].map(|segment| {
        let connection = connection.clone();
        tokio::spawn(async move { connection.call(info(segment)).await })
    });
    let mut replies = Vec::new();
    for _ in 0..calls.len() {
        let Ok(Command::GetStreamSegmentInfo(request)) = requests.next().await.unwrap().unwrap().command()
        else {
            panic!("another request")
        };
        let (request_id, segment) = (request.request_id, request.segment);
        replies.push(
            NoSuchSegment { request_id, segment, server_stack_trace: String::new(), offset: -1 }.into(),
        );
    }
    replies.reverse();
    replies.insert(0, KeepAlive {}.into());
    requests.source_mut().write_all(&encoded(&replies)).await.unwrap();
    for (call, expected) in calls.into_iter().zip(["a", "b", "c"]) {
        let Ok(Command::NoSuchSegment(reply)) = call.await.unwrap() else { panic!("another reply") };
        assert_eq!(reply.segment, expected);
    }
}

#[tokio::test]
async fn caller_that_has_gone_leaves_its_place_to_the_next() {
    let (client, server) = duplex(1 << 16);
    let (connection, mut requests) = greeted(client, server).await;
    let places = ConnectionConfig::default().outstanding_max;
    let call = || {
        let connection = connection.clone();
        tokio::spawn(async move { connection.call(info("a")).await })
    };
    let calls: Vec<_> = (0..places).map(|_| call()).collect();
    for _ in 0..places {
        requests.next().await.unwrap().unwrap();
    }
    let late = call();
    assert!(poll_a_while(&mut requests).await.is_none(), "as many as may be under way");
    for call in calls {
        call.abort();
    }
    requests.next().await.unwrap().unwrap();
    late.abort();
}

#[tokio::test]
async fn closed_connection_says_which_requests_may_be_sent_again() {
    let (client, server) = duplex(1 << 16);
    let (connection, mut requests) = greeted(client, server).await;
    let calling = tokio::spawn({
        let connection = connection.clone();
        async move { connection.call(info("a")).await.unwrap_err() }
    });
    requests.next().await.unwrap().unwrap();
    drop(requests);
    let error = calling.await.unwrap();
    assert!(matches!(error, CallError::Unanswered { cause: CloseCause::Peer }));
    assert_eq!(error.retry(), Retry::Unknown);
    assert_eq!(connection.call(info("a")).await.unwrap_err().retry(), Retry::Safe);
    assert_eq!(connection.call(KeepAlive {}).await.unwrap_err().retry(), Retry::Never);
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_asked_for_a_sign_of_life_and_then_given_up() {
    let (client, server) = duplex(1 << 16);
    let (connection, mut requests) = greeted(client, server).await;
    for _ in 0..8 {
        assert_eq!(requests.next().await.unwrap().unwrap().command().unwrap(), KeepAlive {}.into());
    }
    assert!(requests.next().await.unwrap().is_none());
    assert!(connection.is_closed());
}

#[tokio::test]
async fn connection_ends_with_its_last_handle() {
    let (client, server) = duplex(1 << 16);
    let (connection, mut requests) = greeted(client, server).await;
    drop(connection);
    assert!(requests.next().await.unwrap().is_none());
}

#[tokio::test]
async fn peer_of_another_version_is_refused() {
    for (high, low) in [(4, 1), (20, 18)] {
        let (client, mut server) = duplex(KIB);
        let hello = encoded(&[Hello { high_version: high, low_version: low }.into()]);
        server.write_all(&hello).await.unwrap();
        let refused = RawConnection::over(client, ConnectionConfig::default()).await;
        assert!(matches!(refused.err(), Some(ConnectError::Version { .. })));
    }
}

#[tokio::test]
async fn first_frame_must_be_hello() {
    let appended = DataAppended {
        writer_id: Uuid(1),
        event_number: 1,
        previous_event_number: 0,
        request_id: 1,
        current_segment_write_offset: 1,
    };
    for bytes in [encoded(&[appended.into()]), Vec::new()] {
        let (client, mut server) = duplex(KIB);
        server.write_all(&bytes).await.unwrap();
        server.shutdown().await.unwrap();
        let refused = RawConnection::over(client, ConnectionConfig::default()).await;
        assert!(matches!(refused.err(), Some(ConnectError::NoHello)));
    }
}

proptest! {
    #[test]
    fn any_split_of_the_stream_gives_the_same_frames(sizes in prop::collection::vec(0_usize..70_000, 1..12), pieces in prop::collection::vec(1_usize..90_000, 1..40)) {
        let commands: Vec<_> = sizes.into_iter().map(block).collect();
        let bytes = encoded(&commands);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let read = runtime.block_on(async {
            let (mut near, far) = duplex(1 << 20);
            let writing = tokio::spawn(async move {
                let mut rest = bytes.as_slice();
                for piece in pieces.into_iter().cycle() {
                    if rest.is_empty() { break }
                    let (now, later) = rest.split_at(piece.min(rest.len()));
                    near.write_all(now).await.unwrap();
                    tokio::task::yield_now().await;
                    rest = later;
                }
            });
            let read = read_all(&mut reader(far, None)).await.unwrap();
            writing.await.unwrap();
            read
        });
        prop_assert_eq!(read, commands);
    }
}
