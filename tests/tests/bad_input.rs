//! Whatever a stranger sends or a disk holds: one clear line or a closed connection, no panic, nothing lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of the test functions themselves"
)]

use bytes::{Bytes, BytesMut};
use dhara_tests::replay::connection::{Connection, Event};
use dhara_tests::server::{self, Ended, Server};
use dhara_tests::session::{Session, Shape, append};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{
    Command, DataAppended, Hello, KeepAlive, ReadSegment, SealSegment, SetupAppend, TABLE,
};
use dhara_wire::limits::{FRAME_BYTES_MAX, OLDEST_WIRE_VERSION, WIRE_VERSION};
use noise::Mixer;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SEGMENT: &str = "bad/input/0.#epoch.0";
const GOOD_WRITER: Uuid = Uuid(1);
/// A refused start must end within this time.
const REFUSAL_WITHIN: Duration = Duration::from_secs(20);
/// How long an answer to bad bytes may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Damaged frames sent to one server.
const DAMAGED_FRAMES: u32 = 3_000;

mod noise {
    /// Repeatable noise.
    pub(crate) struct Mixer(pub u64);

    impl Mixer {
        pub(crate) fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap_or(0) % end
        }

        pub(crate) fn byte(&mut self) -> u8 {
            u8::try_from(self.below(256)).unwrap_or(0)
        }
    }
}

/// A client that writes all the time and must not notice anything.
struct Good {
    session: Session,
    written: i64,
}

impl Good {
    async fn start(server: &Server) -> Self {
        let mut session = Session::open(&server.store).await.unwrap().unwrap();
        session.create(SEGMENT).await.unwrap();
        session.setup(SEGMENT, GOOD_WRITER).await.unwrap();
        Self { session, written: 0 }
    }

    async fn write(&mut self) {
        self.written += 1;
        let data = Bytes::from(format!("event {:08}", self.written));
        for frame in append(Shape::Exact, GOOD_WRITER, &[data], self.written, 5) {
            self.session.send(frame).await.unwrap();
        }
        match self.session.reply().await.unwrap() {
            Some(Command::DataAppended(ack)) => assert_eq!(ack.event_number, self.written),
            other => panic!("the good client got {other:?}"),
        }
    }

    async fn check(&mut self) {
        check_events(&mut self.session, self.written).await;
    }
}

async fn check_events(session: &mut Session, written: i64) {
    let want: String = (1..=written).map(|number| format!("event {number:08}")).collect::<Vec<_>>().concat();
    assert_eq!(session.read(SEGMENT, 0).await.unwrap(), want);
}

/// A refusal: an exit status, one line that says why, no panic.
fn assert_clear_refusal(ended: &Ended, what: &str) {
    assert!(!ended.status.success(), "{what}: started anyway: {}", ended.printed);
    assert!(!ended.printed.contains("panicked"), "{what}: {}", ended.printed);
    let errors: Vec<&str> = ended.printed.lines().filter(|line| line.starts_with("dhara: ")).collect();
    assert_eq!(errors.len(), 1, "{what}: one line with the error in {:?}", ended.printed);
}

async fn refused(arguments: &[String], what: &str) -> Ended {
    let ended = server::run_to_end(&server::binary().unwrap(), arguments, REFUSAL_WITHIN).await.unwrap();
    assert_clear_refusal(&ended, what);
    ended
}

async fn start(data: &Path) -> Server {
    Server::start(&server::binary().unwrap(), data).await.unwrap()
}

#[tokio::test]
async fn second_process_on_the_same_folder_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let mut good = Good::start(&server).await;
    good.write().await;
    refused(&server::arguments(data.path()), "a second process").await;
    good.write().await;
    good.check().await;
    server.kill().await.unwrap();

    let server = start(data.path()).await;
    check_events(&mut Session::open(&server.store).await.unwrap().unwrap(), 2).await;
}

#[tokio::test]
async fn occupied_port_is_refused() {
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied.local_addr().unwrap().to_string();
    for listener in ["--listen-controller", "--listen-store", "--listen-rest"] {
        let data = tempfile::tempdir().unwrap();
        let mut arguments = server::arguments(data.path());
        let at = arguments.iter().position(|argument| argument == listener).unwrap();
        arguments[at + 1].clone_from(&address);
        let ended = refused(&arguments, listener).await;
        assert!(ended.printed.contains(&address), "{listener}: the address is named in {:?}", ended.printed);
    }
}

#[tokio::test]
async fn folder_that_cannot_be_made_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    refused(&server::arguments(&file), "a file as folder").await;
    refused(&server::arguments(&file.join("below")), "a folder below a file").await;
}

#[tokio::test]
async fn full_disk_is_refused_and_loses_nothing() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let mut good = Good::start(&server).await;
    good.write().await;
    server.stop().await.unwrap();

    // Files cannot grow at all; the signal that comes with the limit is ignored, so that writes fail as on a full disk.
    let binary = server::binary().unwrap();
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let mut arguments = vec!["-c".to_owned(), script.to_owned(), binary.display().to_string()];
    arguments.extend(server::arguments(data.path()));
    // The error cannot reach a file either, but standard output and error are pipes.
    let ended = server::run_to_end(Path::new("bash"), &arguments, REFUSAL_WITHIN).await;
    if let Ok(ended) = ended {
        assert_clear_refusal(&ended, "a full disk");
    }
    let server = start(data.path()).await;
    check_events(&mut Session::open(&server.store).await.unwrap().unwrap(), 1).await;
}

/// A file system in memory of a size that can be changed; unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this user may not mount.
    fn mount(mib: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        Self::run("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"], folder.path())
            .then_some(Self(folder))
    }

    fn resize(&self, mib: u32) {
        let options = format!("remount,size={mib}m");
        assert!(Self::run("mount", &["-o", &options], self.0.path()), "remounting");
    }

    fn run(program: &str, arguments: &[&str], folder: &Path) -> bool {
        let mut command = std::process::Command::new(program);
        command.args(arguments).arg(folder).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Self::run("umount", &["-l"], self.0.path());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_that_fills_up_loses_nothing_acked() {
    const EVENT_BYTES: usize = 1 << 20;
    let Some(disk) = SmallDisk::mount(340) else {
        println!("no file system can be mounted here");
        return;
    };
    let data = disk.0.path().join("data");
    let server = start(&data).await;
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    session.create(SEGMENT).await.unwrap();
    session.setup(SEGMENT, GOOD_WRITER).await.unwrap();
    let event = |number: i64| Bytes::from(vec![u8::try_from(number % 251).unwrap(); EVENT_BYTES]);
    let mut acked = 0;
    loop {
        for frame in append(Shape::Alone, GOOD_WRITER, &[event(acked + 1)], acked + 1, 1) {
            session.send(frame).await.unwrap();
        }
        match session.reply().await {
            Ok(Some(Command::DataAppended(ack))) => acked = ack.event_number,
            // A refusal, a closed connection, or waiting for room: only an ack would be a lie.
            _refused => break,
        }
        assert!(acked < 400, "more was acked than the disk holds");
    }
    assert!(acked > 0, "the first event has room");
    server.kill().await.unwrap();

    disk.resize(2_000);
    let server = start(&data).await;
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    let stored = session.setup(SEGMENT, GOOD_WRITER).await.unwrap().unwrap();
    assert!(stored == acked || stored == acked + 1, "{acked} were acked, {stored} are stored");
    let bytes = i64::try_from(EVENT_BYTES).unwrap();
    for number in 1..=stored {
        let info = session.info(SEGMENT).await.unwrap().unwrap();
        assert_eq!(info.write_offset, stored * bytes);
        let got = session.read_range(SEGMENT, (number - 1) * bytes, number * bytes).await.unwrap();
        assert!(got == event(number), "event {number} has other bytes");
    }
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn foreign_bytes_on_disk_are_refused_or_do_no_harm() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let mut good = Good::start(&server).await;
    for _ in 0..5 {
        good.write().await;
    }
    server.stop().await.unwrap();
    let mut files = Vec::new();
    files_below(data.path(), &mut files);
    files.sort();
    for file in files {
        let before = std::fs::read(&file).unwrap();
        if before.is_empty() {
            continue;
        }
        let mut foreign = before.clone();
        let magic = b"FOREIGN MAGIC, version 99";
        let end = magic.len().min(foreign.len());
        foreign[..end].copy_from_slice(&magic[..end]);
        std::fs::write(&file, &foreign).unwrap();
        let what = format!("foreign bytes in {}", file.strip_prefix(data.path()).unwrap().display());
        let copy = tempfile::tempdir().unwrap();
        copy_folder(data.path(), copy.path());
        let arguments = server::arguments(copy.path());
        match server::run_to_end(&server::binary().unwrap(), &arguments, Duration::from_secs(3)).await {
            Ok(ended) => assert_clear_refusal(&ended, &what),
            Err(_still_running) => {
                let server = start(copy.path()).await;
                check_events(&mut Session::open(&server.store).await.unwrap().unwrap(), 5).await;
            }
        }
        std::fs::write(&file, &before).unwrap();
    }
    let server = start(data.path()).await;
    check_events(&mut Session::open(&server.store).await.unwrap().unwrap(), 5).await;
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Opens a connection and greets, without waiting for the answer.
async fn greeted(server: &Server) -> Connection {
    let mut connection = Connection::open(&server.store).await.unwrap();
    let mut hello = BytesMut::new();
    Hello { high_version: WIRE_VERSION, low_version: OLDEST_WIRE_VERSION }.encode(&mut hello);
    connection.send(&hello).await.unwrap();
    assert!(matches!(connection.next(ANSWER_WITHIN).await, Some(Event::Frame(-127, _))));
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_and_unknown_frames_close_only_their_connection() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let mut good = Good::start(&server).await;
    let longest = i32::try_from(FRAME_BYTES_MAX).unwrap();
    let known = |code: i32| TABLE.iter().any(|row| row.0 == code);
    let unknown = (0..200).find(|code| !known(*code)).unwrap();
    for (code, length) in
        [(9, longest), (9, i32::MAX), (9, -1), (9, i32::MIN), (unknown, 0), (i32::MIN, 4), (9, 3)]
    {
        let mut bad = greeted(&server).await;
        let mut frame = BytesMut::new();
        frame.extend_from_slice(&code.to_be_bytes());
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&[0; 64]);
        bad.send(&frame).await.unwrap();
        loop {
            match bad.next(ANSWER_WITHIN).await {
                Some(Event::Close) => break,
                Some(Event::Frame(..)) => {}
                Some(Event::Broken(why)) => panic!("code {code}, length {length}: {why}"),
                None => panic!("code {code}, length {length}: the connection stays open"),
            }
        }
        good.write().await;
    }
    good.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_frames_hold_no_memory_and_disturb_nobody() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let mut good = Good::start(&server).await;
    good.write().await;
    let before = server.resident_kib().unwrap();
    let mut halves = Vec::new();
    for _ in 0..200 {
        let mut half = greeted(&server).await;
        // A read whose header promises 8 MiB of which a few bytes come.
        half.send(&[0, 0, 0, 9, 0, 0x80, 0, 0, 0, 20, b'x']).await.unwrap();
        halves.push(half);
        good.write().await;
    }
    let after = server.resident_kib().unwrap();
    assert!(after < before + 64 * 1024, "resident memory grew from {before} to {after} KiB");
    drop(halves);
    // One byte at a time is slow, not wrong.
    let mut slow = greeted(&server).await;
    let mut frame = BytesMut::new();
    KeepAlive {}.encode(&mut frame);
    for byte in frame {
        slow.send(&[byte]).await.unwrap();
        good.write().await;
    }
    assert!(matches!(slow.next(ANSWER_WITHIN).await, Some(Event::Frame(100, _))));
    good.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_frames_disturb_nobody() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let mut good = Good::start(&server).await;
    let before = server.resident_kib().unwrap();
    let mut noise = Mixer(1);
    for round in 0..DAMAGED_FRAMES {
        let mut frame = BytesMut::new();
        let segment = format!("bad/noise/{}.#epoch.0", noise.below(3));
        SealSegment { request_id: round.into(), segment, delegation_token: String::new() }.encode(&mut frame);
        let code = TABLE[noise.below(TABLE.len())].0;
        frame[..4].copy_from_slice(&code.to_be_bytes());
        for _ in 0..=noise.below(4) {
            let at = noise.below(frame.len());
            frame[at] = noise.byte();
        }
        frame.truncate(1 + noise.below(frame.len()));
        let mut bad = Connection::open(&server.store).await.unwrap();
        bad.send(&frame).await.unwrap();
        if round % 16 == 0 {
            good.write().await;
        }
    }
    good.write().await;
    good.check().await;
    let after = server.resident_kib().unwrap();
    assert!(after < before + 64 * 1024, "resident memory grew from {before} to {after} KiB");
    let (status, _) = server.stop().await.unwrap();
    assert!(status.success(), "stopped with {status}");
}

fn is_ack_of(payload: &Bytes, number: i64) -> bool {
    Command::decode(DataAppended::CODE, payload.clone()).is_ok_and(
        |ack| matches!(ack, Command::DataAppended(DataAppended { event_number, .. }) if event_number == number),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_wait_at_a_tail_take_no_memory_for_a_client_that_takes_nothing() {
    const READS: i64 = 2_000;
    const APPENDS: i64 = 1_024;
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let mut other = Session::open(&server.store).await.unwrap().unwrap();
    other.create(SEGMENT).await.unwrap();
    let mut deaf = greeted(&server).await;
    let mut reads = BytesMut::new();
    for request_id in 0..READS {
        let (segment, delegation_token) = (SEGMENT.to_owned(), String::new());
        ReadSegment { segment, offset: 0, suggested_length: 1 << 20, delegation_token, request_id }
            .encode(&mut reads);
    }
    KeepAlive {}.encode(&mut reads);
    deaf.send(&reads).await.unwrap();
    assert!(matches!(deaf.next(ANSWER_WITHIN).await, Some(Event::Frame(100, _))), "all of them wait");
    let before = server.resident_kib().unwrap();
    let mut writer = greeted(&server).await;
    let (segment, delegation_token) = (SEGMENT.to_owned(), String::new());
    let mut appends = BytesMut::new();
    SetupAppend { request_id: 1, writer_id: GOOD_WRITER, segment, delegation_token }.encode(&mut appends);
    for number in 1..=APPENDS {
        for frame in append(Shape::Exact, GOOD_WRITER, &[Bytes::from(vec![7; 4000])], number, number) {
            frame.encode(&mut appends);
        }
    }
    writer.send(&appends).await.unwrap();
    // Much of it is acknowledged at once, so the answers may be fewer.
    while !matches!(writer.next(ANSWER_WITHIN).await.unwrap(), Event::Frame(_, payload) if is_ack_of(&payload, APPENDS))
    {
    }
    for _turn in 0..2_000 {
        other.info(SEGMENT).await.unwrap().unwrap();
    }
    let after = server.resident_kib().unwrap();
    assert!(after < before + 256 * 1024, "resident memory grew from {before} to {after} KiB");
    drop(deaf);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_takes_nothing_does_not_hold_up_a_stop() {
    const MIB: usize = 1 << 20;
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path()).await;
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    session.create(SEGMENT).await.unwrap();
    session.setup(SEGMENT, GOOD_WRITER).await.unwrap();
    for frame in append(Shape::Exact, GOOD_WRITER, &[Bytes::from(vec![7; MIB])], 1, 1) {
        session.send(frame).await.unwrap();
    }
    assert!(matches!(session.reply().await.unwrap(), Some(Command::DataAppended(_))));
    // More than the buffers between the two hold.
    for request_id in 0..64 {
        let (segment, suggested_length) = (SEGMENT.to_owned(), i32::try_from(MIB).unwrap());
        let read =
            ReadSegment { segment, offset: 0, suggested_length, delegation_token: String::new(), request_id };
        session.send(read).await.unwrap();
    }
    let mut other = Session::open(&server.store).await.unwrap().unwrap();
    for _turn in 0..100 {
        other.info(SEGMENT).await.unwrap().unwrap();
    }
    // Nor one that says nothing.
    let silent = dhara_stdx::net::connect(&server.controller).await.unwrap();
    let (status, _) = server.stop().await.unwrap();
    assert!(status.success(), "stopped with {status}");
    drop((session, silent));
}
