//! A data folder damaged file by file, and restarted from many states that are no damage.
//!
//! Whatever is damaged, a start is refused with one line, or each part of the data reads as it was acknowledged or as an
//! error: never other bytes, never fewer, and nobody's files deleted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of the test functions themselves"
)]

use bytes::Bytes;
use dhara_tests::server::{self, Server};
use dhara_tests::session::{Session, Shape, append};
use dhara_tests::truth::{Reading, Truth};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{Command, FlushToStorage};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A tool must end within this time.
const TOOL_WITHIN: Duration = Duration::from_secs(20);
/// Variables of every start.
const ENVIRONMENT: [(&str, &str); 2] = [("DHARA_LOG_BUDGET", "256MiB"), ("RUST_LOG", "off")];
/// Cases at one time.
const AT_ONCE: usize = 3;
/// Size of a reserved log file at that budget.
const RESERVED_BYTES: usize = 32 << 20;
/// Zeros are left out of copies in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;
const OBJECTS: &str = "tier/v1/c0000/objects";
const INDEX: &str = "tier/v1/c0000/index";

/// A kind of file in a data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A log file before the last.
    EarlierLog,
    LastLog,
    Reserved,
    Lock,
    Identity,
    Manifest,
    Compactions,
    Fence,
    Rows,
    Object,
    /// All files of the index.
    Index,
}

/// Where a bit is flipped, in the part of a file that is not zeros at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    Middle,
    /// The last byte before the last block.
    BeforeLast,
    Last,
}

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Flip(Place),
    /// Half of what is not zeros at its end is left.
    Half,
    /// The zeros at its end are gone.
    Trimmed,
    Empty,
    Deleted,
}

/// What a start makes of it.
#[derive(Clone, Debug)]
enum Outcome {
    Refused(String),
    Started(BTreeMap<String, Reading>),
}

struct Original {
    folder: TempDir,
    truth: Truth,
}

impl Original {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

async fn start(data: &Path, more: &[&str]) -> anyhow::Result<Server> {
    start_as(&server::binary().unwrap(), data, more).await
}

async fn start_as(binary: &Path, data: &Path, more: &[&str]) -> anyhow::Result<Server> {
    Server::start_with(binary, data, more, &ENVIRONMENT).await
}

/// A folder whose first log file and objects hold most, and whose second log file what came after a kill.
async fn original() -> Original {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = start(&data, &[]).await.unwrap();
    let mut truth = Truth::begin(&server).await.unwrap();
    until_proven(&data).await;
    server.kill().await.unwrap();
    let server = start(&data, &[]).await.unwrap();
    truth.go_on(&server).await.unwrap();
    until_proven(&data).await;
    server.kill().await.unwrap();
    Original { folder, truth }
}

/// Waits until the log has proven its last frame of data by an empty one, as it does when nothing is written for a moment.
async fn until_proven(data: &Path) {
    const BLOCK_BYTES: usize = 4096;
    loop {
        let bytes = fs::read(data.join(file_of(Kind::LastLog, data))).unwrap();
        let last = used(&bytes).saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
        if bytes[last..].starts_with(b"DFRM") && bytes[last + 28..last + 32] == [0; 4] {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Bytes up to the last one that is not zero.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Runs one of the tools on a folder; whether it found all well, and what it said.
async fn tool(data: &Path, words: &[&str]) -> (bool, String) {
    let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    arguments.extend(["--data".to_owned(), data.display().to_string()]);
    let ended = server::run_to_end(&server::binary().unwrap(), &arguments, TOOL_WITHIN).await.unwrap();
    assert!(!ended.printed.contains("panicked"), "{words:?}: {}", ended.printed);
    (ended.status.success(), ended.printed)
}

/// Copies a folder; zeros take no room, since most of a log file is zeros.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            write(&target, &fs::read(&path).unwrap());
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a stranger to the server prepares its files")]
fn write(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (at, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, (at * PIECE_BYTES) as u64).unwrap();
        }
    }
}

/// All files below `folder`, relative to it, in the order of their names.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_path_buf());
            }
        }
    }
    found.sort();
    found
}

/// The file of that kind that matters most: the newest, or of rows and objects the largest.
fn file_of(kind: Kind, data: &Path) -> PathBuf {
    let below = |prefix: &str, ending: &str| -> Vec<PathBuf> {
        let matches = |path: &PathBuf| path.starts_with(prefix) && path.to_string_lossy().ends_with(ending);
        files_below(data).into_iter().filter(matches).collect()
    };
    let largest = |paths: Vec<PathBuf>| {
        paths.into_iter().max_by_key(|path| fs::metadata(data.join(path)).unwrap().len()).unwrap()
    };
    let newest = |paths: Vec<PathBuf>| paths.last().unwrap().clone();
    match kind {
        Kind::EarlierLog => below("log", ".log")[0].clone(),
        Kind::LastLog => newest(below("log", ".log")),
        Kind::Reserved => "log/spare-0000000000000001".into(),
        Kind::Lock => "log/LOCK".into(),
        Kind::Identity => "store.identity".into(),
        Kind::Manifest => newest(below(&format!("{INDEX}/manifest"), ".manifest")),
        Kind::Compactions => newest(below(&format!("{INDEX}/compactions"), ".compactions")),
        Kind::Fence => newest(below(&format!("{INDEX}/wal"), ".sst")),
        Kind::Rows => largest(below(&format!("{INDEX}/compacted"), ".sst")),
        Kind::Object => largest(below(OBJECTS, "")),
        Kind::Index => INDEX.into(),
    }
}

fn harm(path: &Path, harm: Harm) {
    if path.is_dir() {
        return fs::remove_dir_all(path).unwrap();
    }
    let mut bytes = fs::read(path).unwrap();
    let used = used(&bytes);
    // Zeros may be padding, which means nothing.
    let not_zero = |end: usize| bytes[..end].iter().rposition(|byte| *byte != 0).unwrap();
    let at = match harm {
        Harm::Flip(Place::Start) => not_zero(20),
        Harm::Flip(Place::Middle) => not_zero(used / 2),
        Harm::Flip(Place::BeforeLast) => not_zero(used.saturating_sub(1) / 4096 * 4096),
        Harm::Flip(Place::Last) => used - 1,
        Harm::Half => {
            bytes.truncate(used / 2);
            return write(path, &bytes);
        }
        Harm::Trimmed => {
            bytes.truncate(used);
            return write(path, &bytes);
        }
        Harm::Empty => return write(path, &[]),
        Harm::Deleted => return fs::remove_file(path).unwrap(),
    };
    bytes[at] ^= 0x10;
    write(path, &bytes);
}

/// Starts on `data` and compares. What the server says goes to a file beside it.
async fn outcome(data: &Path, truth: &Truth) -> Outcome {
    let (script, said) = (data.with_extension("sh"), data.with_extension("said"));
    let text =
        format!("#!/bin/sh\nexec '{}' \"$@\" 2>'{}'\n", server::binary().unwrap().display(), said.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let outcome = match start_as(&script, data, &[]).await {
        Ok(server) => {
            let readings = truth.compare(&server).await.unwrap();
            server.kill().await.unwrap();
            Outcome::Started(readings)
        }
        Err(error) => {
            assert!(format!("{error:#}").contains("ended before it was ready"), "{error:#}");
            let said = fs::read_to_string(&said).unwrap();
            let lines: Vec<&str> = said.lines().collect();
            assert!(lines.len() == 1 && lines[0].starts_with("dhara: "), "one line in {said:?}");
            Outcome::Refused(lines[0].replace(&format!("{}/", data.display()), ""))
        }
    };
    assert!(!fs::read_to_string(&said).unwrap().contains("panicked"), "{}", said.display());
    outcome
}

/// What must come of a damage.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// A start is refused with a line that has these words.
    Refused(&'static str),
    /// Nothing is lost.
    Equal,
    /// Parts read as errors, all others as they were.
    Errors,
}

/// Every kind of file, every harm, and what is due. Why some do no harm:
///
/// - The last frame of the log is an empty one that proves the one before; damaged, it is a torn write of which nobody was
///   told.
/// - A reserved file, a lock and a fence of the engine's own log, which is off, hold nothing.
/// - The identity is written again; the log's header has the count of containers too.
/// - The last bytes of an index table are its version, of which there is one.
/// - The engine's list of merges is begun again.
/// - An object's header repeats what its trailer says; tools check it, reads need it not.
///
/// Flips in the engine's lists of tables and of merges are left out: they have no checksum, and some flips mean nothing. Without
/// its index a container would begin at an epoch below that of its log, which refuses it.
const MATRIX: &[(Kind, Harm, Due)] = &[
    (
        Kind::EarlierLog,
        Harm::Flip(Place::Start),
        Due::Refused("log/0000000000000001.log is damaged at byte 0"),
    ),
    (Kind::EarlierLog, Harm::Flip(Place::Middle), Due::Refused("log/0000000000000001.log is damaged")),
    (Kind::EarlierLog, Harm::Flip(Place::BeforeLast), Due::Refused("log/0000000000000001.log is damaged")),
    (Kind::EarlierLog, Harm::Flip(Place::Last), Due::Refused("log/0000000000000001.log is damaged")),
    (Kind::EarlierLog, Harm::Half, Due::Refused("log/0000000000000001.log is damaged")),
    (Kind::EarlierLog, Harm::Empty, Due::Refused("log/0000000000000001.log is damaged at byte 0")),
    (Kind::EarlierLog, Harm::Deleted, Due::Refused("log lost records of container 0: expected record 1")),
    (Kind::LastLog, Harm::Flip(Place::Start), Due::Refused("log/0000000000000002.log is damaged at byte 0")),
    (Kind::LastLog, Harm::Flip(Place::Middle), Due::Refused("frame that a later one proves")),
    (Kind::LastLog, Harm::Flip(Place::BeforeLast), Due::Refused("frame that a later one proves")),
    (Kind::LastLog, Harm::Flip(Place::Last), Due::Equal),
    (Kind::LastLog, Harm::Half, Due::Refused("log/0000000000000002.log is damaged")),
    (Kind::LastLog, Harm::Trimmed, Due::Refused("it is cut off there")),
    (Kind::LastLog, Harm::Empty, Due::Refused("log/0000000000000002.log is damaged at byte 0")),
    (Kind::LastLog, Harm::Deleted, Due::Refused("or the file after it is gone")),
    (Kind::Reserved, Harm::Flip(Place::Middle), Due::Equal),
    (Kind::Reserved, Harm::Half, Due::Equal),
    (Kind::Reserved, Harm::Empty, Due::Equal),
    (Kind::Reserved, Harm::Deleted, Due::Equal),
    (Kind::Lock, Harm::Deleted, Due::Equal),
    (Kind::Identity, Harm::Flip(Place::Start), Due::Refused("store.identity is not the identity")),
    (Kind::Identity, Harm::Flip(Place::Last), Due::Refused("store.identity is not the identity")),
    (Kind::Identity, Harm::Half, Due::Refused("store.identity is not the identity")),
    (Kind::Identity, Harm::Empty, Due::Refused("store.identity is not the identity")),
    (Kind::Identity, Harm::Deleted, Due::Equal),
    (Kind::Manifest, Harm::Half, Due::Refused("open the index of container 0")),
    (Kind::Manifest, Harm::Empty, Due::Refused("open the index of container 0")),
    (Kind::Manifest, Harm::Deleted, Due::Refused("open the index of container 0")),
    (Kind::Compactions, Harm::Half, Due::Refused("open the index of container 0")),
    (Kind::Compactions, Harm::Empty, Due::Refused("open the index of container 0")),
    (Kind::Compactions, Harm::Deleted, Due::Equal),
    (Kind::Fence, Harm::Deleted, Due::Equal),
    (Kind::Rows, Harm::Flip(Place::Start), Due::Refused(".sst")),
    (Kind::Rows, Harm::Flip(Place::Middle), Due::Refused(".sst")),
    (Kind::Rows, Harm::Flip(Place::BeforeLast), Due::Refused(".sst")),
    (Kind::Rows, Harm::Flip(Place::Last), Due::Equal),
    (Kind::Rows, Harm::Half, Due::Refused(".sst has")),
    (Kind::Rows, Harm::Empty, Due::Refused(".sst has 0 bytes")),
    (Kind::Rows, Harm::Deleted, Due::Refused(".sst not found")),
    (Kind::Index, Harm::Deleted, Due::Refused("index of container 0 is older than its log")),
    (Kind::Object, Harm::Flip(Place::Start), Due::Equal),
    (Kind::Object, Harm::Flip(Place::Middle), Due::Errors),
    (Kind::Object, Harm::Flip(Place::BeforeLast), Due::Errors),
    (Kind::Object, Harm::Flip(Place::Last), Due::Errors),
    (Kind::Object, Harm::Half, Due::Errors),
    (Kind::Object, Harm::Empty, Due::Errors),
    (Kind::Object, Harm::Deleted, Due::Errors),
];

/// Damages a copy of the folder, asks the tools, starts, and compares.
async fn damage(original: Arc<Original>, (kind, what, due): (Kind, Harm, Due)) {
    let case = format!("{kind:?}, {what:?}");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    copy_folder(&original.data(), &data);
    if kind == Kind::Reserved {
        let mut remains = vec![0; RESERVED_BYTES];
        remains[..4096].fill(7);
        write(&data.join(file_of(kind, &data)), &remains);
    }
    let harmed = file_of(kind, &data);
    harm(&data.join(&harmed), what);

    let in_log = matches!(kind, Kind::EarlierLog | Kind::LastLog);
    if in_log {
        let (sound, said) = tool(&data, &["store", "log", "check"]).await;
        assert_eq!(sound, !matches!(due, Due::Refused(_)), "{case}, judged as by a start: {said}");
    }
    if kind == Kind::Object {
        let (sound, said) = tool(&data, &["store", "objects", "verify"]).await;
        // That an object is gone only the index could tell.
        assert_eq!(sound, what == Harm::Deleted, "{case}: {said}");
    }

    let before = content(&data);
    let found = outcome(&data, &original.truth).await;
    judge(&found, due, &case);
    if matches!(found, Outcome::Refused(_)) && !in_log {
        // Tried again, it is refused again or loses nothing.
        match outcome(&data, &original.truth).await {
            Outcome::Refused(_) => {}
            Outcome::Started(readings) => assert_equal(&readings, &format!("{case}, again")),
        }
    }
    let after = content(&data);
    for (path, bytes) in before {
        // A log that opens shortens its last file; what is wrong elsewhere is found later.
        let may_change = path.starts_with("log/spare-") || (path.starts_with("log") && !in_log);
        let harmless = path.starts_with(&harmed) || may_change || matches!(due, Due::Equal) && in_log;
        assert!(harmless || after.get(&path) == Some(&bytes), "{case}: {} was changed", path.display());
    }
}

fn judge(found: &Outcome, due: Due, case: &str) {
    match (found, due) {
        (Outcome::Refused(line), Due::Refused(words)) => {
            assert!(line.contains(words), "{case}: {line}");
        }
        (Outcome::Started(readings), Due::Equal) => assert_equal(readings, case),
        (Outcome::Started(readings), Due::Errors) => {
            let errors = readings.values().filter(|reading| matches!(reading, Reading::Error(_))).count();
            let equal = readings.values().filter(|reading| **reading == Reading::Equal).count();
            assert!(errors > 0 && errors + equal == readings.len(), "{case}: {readings:?}");
        }
        _ => panic!("{case}: {found:?}, due {due:?}"),
    }
}

fn assert_equal(readings: &BTreeMap<String, Reading>, case: &str) {
    assert!(readings.values().all(|reading| *reading == Reading::Equal), "{case}: {readings:?}");
}

/// All files below `folder` with the checksums of what is in them.
fn content(folder: &Path) -> BTreeMap<PathBuf, u32> {
    let files = files_below(folder).into_iter();
    files.map(|path| (path.clone(), crc32fast::hash(&fs::read(folder.join(path)).unwrap()))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_refused_or_read_as_an_error() {
    let original = Arc::new(original().await);
    let (mut running, places) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    for case in MATRIX {
        let (original, places) = (Arc::clone(&original), Arc::clone(&places));
        running.spawn(async move {
            let _place = places.acquire().await.unwrap();
            damage(original, *case).await;
        });
    }
    finish(running).await;
}

/// Waits for all cases; the panics of those that failed have been printed.
async fn finish(mut running: JoinSet<()>) {
    let mut failed = 0;
    while let Some(ended) = running.join_next().await {
        failed += usize::from(ended.is_err());
    }
    assert_eq!(failed, 0, "cases failed");
}

/// A state that is no damage: a start finds everything that was acknowledged.
#[derive(Clone, Copy, Debug)]
enum State {
    FolderMissing,
    FolderEmpty,
    StoppedCleanly,
    KilledWhileIdle,
    KilledUnderLoad,
    KilledOnceReady,
    /// Twice in a row, as soon as the start had made a log file.
    KilledAmidStart,
    KilledAmidFlush,
    ForeignFiles,
    /// Those that a start only reads.
    ReadOnlyFiles,
    Leftovers,
    MovedElsewhere,
    BehindLink,
    LogBehindLink,
    ObjectsElsewhere,
    OtherBudget,
    LogLostAfterFlush,
}

const STATES: &[State] = &[
    State::FolderMissing,
    State::FolderEmpty,
    State::StoppedCleanly,
    State::KilledWhileIdle,
    State::KilledUnderLoad,
    State::KilledOnceReady,
    State::KilledAmidStart,
    State::KilledAmidFlush,
    State::ForeignFiles,
    State::ReadOnlyFiles,
    State::Leftovers,
    State::MovedElsewhere,
    State::BehindLink,
    State::LogBehindLink,
    State::ObjectsElsewhere,
    State::OtherBudget,
    State::LogLostAfterFlush,
];

/// A folder in some state, and what a start must find.
struct Prepared {
    data: PathBuf,
    more: Vec<String>,
    truth: Truth,
}

/// Brings `prepared`, a copy of the original, into a state that servers make.
async fn run_into(state: State, prepared: &mut Prepared) {
    let data = prepared.data.clone();
    match state {
        State::StoppedCleanly => {
            let (status, _) = start(&data, &[]).await.unwrap().stop().await.unwrap();
            assert!(status.success(), "{status}");
        }
        State::KilledUnderLoad => kill_under_load(&data).await,
        State::KilledOnceReady => start(&data, &[]).await.unwrap().kill().await.unwrap(),
        State::KilledAmidStart => {
            for _ in 0..2 {
                kill_amid_start(&data).await;
            }
        }
        State::KilledAmidFlush => kill_amid_flush(&data, &mut prepared.truth).await,
        State::LogLostAfterFlush => lose_log(&data).await,
        _ => {}
    }
}

/// Brings `prepared`, a copy of the original, into a state that people make. `beside` is a folder for what lies elsewhere.
fn rearrange(state: State, prepared: &mut Prepared, beside: &Path) {
    let data = prepared.data.clone();
    match state {
        State::FolderMissing | State::FolderEmpty => {
            fs::remove_dir_all(&data).unwrap();
            if matches!(state, State::FolderEmpty) {
                fs::create_dir(&data).unwrap();
            }
            prepared.truth = Truth::default();
        }
        State::ForeignFiles => {
            for folder in
                ["", "log", "tier", OBJECTS, &format!("{OBJECTS}/e00000001"), &format!("{INDEX}/manifest")]
            {
                fs::write(data.join(folder).join("notes.txt"), "not ours").unwrap();
            }
            fs::create_dir(data.join("lost+found")).unwrap();
        }
        State::ReadOnlyFiles => {
            for kind in [Kind::EarlierLog, Kind::Identity, Kind::Manifest, Kind::Rows, Kind::Object] {
                let path = data.join(file_of(kind, &data));
                fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
            }
        }
        State::Leftovers => {
            let leftovers = ["log/next.fresh", "log/spare.fresh", "store.identity.new"].map(str::to_owned);
            let staged = [
                format!("{OBJECTS}/e00000003/00000000#1"),
                format!("{INDEX}/manifest/00000000000000000007.manifest#1"),
            ];
            for path in leftovers.into_iter().chain(staged) {
                fs::create_dir_all(data.join(&path).parent().unwrap()).unwrap();
                fs::write(data.join(path), "half").unwrap();
            }
        }
        State::MovedElsewhere => prepared.data = relocate(&data, &beside.join("näher gelegen")),
        State::BehindLink => {
            let there = relocate(&data, &beside.join("there"));
            std::os::unix::fs::symlink(there, &data).unwrap();
        }
        State::LogBehindLink => {
            let there = relocate(&data.join("log"), &beside.join("log"));
            std::os::unix::fs::symlink(there, data.join("log")).unwrap();
        }
        State::ObjectsElsewhere => {
            let there = relocate(&data.join("tier"), &beside.join("objects"));
            prepared.more = vec!["--object-store".to_owned(), there.display().to_string()];
        }
        State::OtherBudget => prepared.more = vec!["--log-budget".to_owned(), "1GiB".to_owned()],
        _ => {}
    }
}

#[allow(clippy::disallowed_methods, reason = "a stranger to the server moves its files")]
fn relocate(from: &Path, to: &Path) -> PathBuf {
    fs::rename(from, to).unwrap();
    to.to_path_buf()
}

/// A connection on which a flush is asked for.
async fn ask_for_flush(server: &Server) -> Session {
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    let flush = FlushToStorage { container_id: 0, delegation_token: String::new(), request_id: 1 };
    session.send(flush).await.unwrap();
    session
}

/// Kills a server amid appends, starts it again, and looks for those that were acknowledged.
async fn kill_under_load(data: &Path) {
    const SEGMENT: &str = "load/stream/0.#epoch.0";
    const WRITER: Uuid = Uuid(9);
    const EVENT_BYTES: i64 = 1_000;
    let server = start(data, &[]).await.unwrap();
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    session.create(SEGMENT).await.unwrap();
    session.setup(SEGMENT, WRITER).await.unwrap();
    let event = Bytes::from(vec![5; usize::try_from(EVENT_BYTES).unwrap()]);
    for number in 1..=300 {
        for frame in append(Shape::Exact, WRITER, std::slice::from_ref(&event), number, number) {
            session.send(frame).await.unwrap();
        }
    }
    let Some(Command::DataAppended(ack)) = session.reply().await.unwrap() else { panic!("no ack") };
    server.kill().await.unwrap();

    let server = start(data, &[]).await.unwrap();
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    let last = session.setup(SEGMENT, WRITER).await.unwrap().unwrap();
    assert!(
        (ack.event_number..=300).contains(&last),
        "{} was acknowledged, {last} is there",
        ack.event_number
    );
    let read = session.read(SEGMENT, 0).await.unwrap();
    assert_eq!(i64::try_from(read.len()).unwrap(), last * EVENT_BYTES);
    assert!(read.iter().all(|byte| *byte == 5));
    server.kill().await.unwrap();
}

/// Kills a server as soon as it has put an object of a flush.
async fn kill_amid_flush(data: &Path, truth: &mut Truth) {
    let server = start(data, &[]).await.unwrap();
    truth.go_on(&server).await.unwrap();
    let objects = data.join(OBJECTS);
    let before = files_below(&objects).len();
    let _asking = ask_for_flush(&server).await;
    while files_below(&objects).len() == before {
        tokio::task::yield_now().await;
    }
    server.kill().await.unwrap();
}

/// Takes the log away after a flush, and goes on without it as a person would.
async fn lose_log(data: &Path) {
    let server = start(data, &[]).await.unwrap();
    let flushed = ask_for_flush(&server).await.reply().await.unwrap();
    assert!(matches!(flushed, Some(Command::StorageFlushed(_))), "{flushed:?}");
    server.kill().await.unwrap();
    fs::remove_dir_all(data.join("log")).unwrap();
    let (recovered, said) = tool(data, &["store", "recover", "--log-lost"]).await;
    assert!(recovered, "{said}");
}

/// Starts a server and kills it as soon as it has made a log file.
async fn kill_amid_start(data: &Path) {
    let before = fs::read_dir(data.join("log")).unwrap().count();
    let mut server = tokio::process::Command::new(server::binary().unwrap())
        .args(server::arguments(data))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    while fs::read_dir(data.join("log")).unwrap().count() == before {
        assert!(server.try_wait().unwrap().is_none(), "the server ended by itself");
        tokio::task::yield_now().await;
    }
    server.kill().await.unwrap();
}

async fn restart(original: Arc<Original>, state: State) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    copy_folder(&original.data(), &data);
    let mut prepared = Prepared { data, more: Vec::new(), truth: original.truth.clone() };
    rearrange(state, &mut prepared, folder.path());
    run_into(state, &mut prepared).await;
    let foreign = |path: &PathBuf| path.ends_with("notes.txt");
    let before = files_below(folder.path()).into_iter().filter(foreign).count();

    // In the state, and once more: what the first start made of it must be one too.
    for _ in 0..2 {
        let more: Vec<&str> = prepared.more.iter().map(String::as_str).collect();
        let server =
            start(&prepared.data, &more).await.unwrap_or_else(|error| panic!("{state:?}: {error:#}"));
        let readings = prepared.truth.compare(&server).await.unwrap();
        assert_equal(&readings, &format!("{state:?}"));
        if readings.is_empty() {
            prepared.truth = Truth::begin(&server).await.unwrap();
        } else {
            prepared.truth.go_on(&server).await.unwrap();
        }
        server.kill().await.unwrap();
    }
    let after = files_below(folder.path()).into_iter().filter(foreign).count();
    assert_eq!(before, after, "{state:?}: foreign files are gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_healthy_state_comes_up_with_everything() {
    let original = Arc::new(original().await);
    let (mut running, places) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    for state in STATES {
        let (original, places) = (Arc::clone(&original), Arc::clone(&places));
        running.spawn(async move {
            let _place = places.acquire().await.unwrap();
            restart(original, *state).await;
        });
    }
    finish(running).await;
}
