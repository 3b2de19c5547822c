//! The rules of the house that no compiler checks: who may see whom, how large things may get, which words never stay.
//!
//! Reads sources as text. What is forbidden is written here in pieces, so that this file passes its own rules.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of the test functions themselves")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 800;
const ROOM_FILES_MAX: usize = 13;

/// Rooms of each crate by floor, lowest first; a room sees only lower floors and itself.
const FLOORS: &[(&str, &[&[&str]])] = &[
    (
        "segmentstore",
        &[
            &["types", "error", "config", "sim"],
            &["log", "load"],
            &["operation"],
            &["state"],
            &["index", "tier"],
            &["read"],
            &["upkeep"],
            &["container"],
            &["server"],
            &["store"],
            &["world"],
        ],
    ),
    (
        "controller",
        &[
            &["error"],
            &["stream"],
            &["config"],
            &["record", "segment_client"],
            &["store"],
            &["workflow"],
            &["background"],
            &["service"],
            &["rpc", "rest", "incoming"],
            &["server"],
        ],
    ),
    (
        "client",
        &[
            &["config"],
            &["controller"],
            &["segment"],
            &["core"],
            &["synchronizer"],
            &["event_writer", "byte_stream", "key_value_table", "batch", "reader_group"],
            &["event_reader", "admin"],
            &["client"],
        ],
    ),
];

/// Crates of the house that each crate may depend on, in tests too.
const CRATE_EDGES: &[(&str, &[&str])] = &[
    ("stdx", &[]),
    ("wire", &["dhara-stdx"]),
    ("segmentstore", &["dhara-stdx", "dhara-wire"]),
    ("controller", &["dhara-stdx", "dhara-wire"]),
    ("client", &["dhara-stdx", "dhara-wire"]),
];

/// The only files with `unsafe` code.
const UNSAFE_FILES: &[&str] = &["stdx/src/mmap.rs", "stdx/src/sched.rs"];

/// Folders that hold no text of ours.
const SKIPPED: &[&str] =
    &["target", ".git", "conformance", "node_modules", ".venv", "dhara-data", "__pycache__"];

const TEXT_ENDINGS: &[&str] = &["rs", "md", "toml", "sh", "py", "java", "xml", "proto", "txt", ""];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

struct Source {
    path: PathBuf,
    /// Relative to the root, with forward slashes.
    name: String,
    text: String,
}

impl Source {
    fn ending(&self) -> &str {
        self.path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
    }

    fn is_rust(&self) -> bool {
        self.ending() == "rs"
    }

    /// Lines that are not comments, with their numbers.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Where the tests of this file begin: its first line, if it holds nothing else.
    fn tests_from(&self) -> Option<usize> {
        let only_tests = self.name.contains("/tests/") && !self.name.starts_with("tests/src/");
        if only_tests || self.name.ends_with("/tests.rs") {
            return Some(0);
        }
        self.text.find("#[cfg(test)]\nmod ")
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    walk(&root(), &mut paths);
    let mut sources = Vec::new();
    for path in paths {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !TEXT_ENDINGS.contains(&ending) {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        sources.push(Source { path, name, text });
    }
    sources
}

fn report(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

fn word_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The first names after each `crate::`, groups in braces included.
fn rooms_used(text: &str) -> Vec<&str> {
    let mut rooms = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let after = &text[at + "crate::".len()..];
        let is_word =
            text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$');
        if is_word {
            continue;
        }
        if !after.starts_with('{') {
            rooms.push(word_at(after));
            continue;
        }
        let mut depth = 0_u32;
        let mut expects_name = false;
        for (at, character) in after.char_indices() {
            match character {
                '{' => {
                    depth += 1;
                    expects_name |= depth == 1;
                }
                '}' if depth == 1 => break,
                '}' => depth -= 1,
                ',' if depth == 1 => expects_name = true,
                _ if expects_name && (character.is_alphabetic() || character == '_') => {
                    rooms.push(word_at(&after[at..]));
                    expects_name = false;
                }
                _ => {}
            }
        }
    }
    rooms
}

#[test]
fn rooms_see_only_lower_floors() {
    let all = sources();
    let mut offences = Vec::new();
    for (name, floors) in FLOORS {
        let mut floor_of = BTreeMap::new();
        for (floor, rooms) in floors.iter().enumerate() {
            for room in *rooms {
                floor_of.insert(*room, floor);
            }
        }
        let prefix = format!("{name}/src/");
        for source in all.iter().filter(|source| source.is_rust() && source.name.starts_with(&prefix)) {
            let inside = &source.name[prefix.len()..];
            let room = inside.split('/').next().unwrap().trim_end_matches(".rs");
            if room == "lib" {
                continue;
            }
            let Some(floor) = floor_of.get(room) else {
                offences.push(format!("{}: the room {room} has no floor", source.name));
                continue;
            };
            let code: Vec<&str> = source.code().map(|(_, line)| line).collect();
            for used in rooms_used(&code.join("\n")) {
                match floor_of.get(used) {
                    Some(other) if used != room && other >= floor => {
                        offences.push(format!(
                            "{}: {room} (floor {floor}) uses {used} (floor {other})",
                            source.name
                        ));
                    }
                    _ => {}
                }
            }
        }
    }
    offences.sort();
    offences.dedup();
    report("a room sees only lower floors", &offences);
}

#[test]
fn crates_meet_only_in_bytes() {
    let mut offences = Vec::new();
    for (name, allowed) in CRATE_EDGES {
        let manifest = std::fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        for line in manifest.lines().filter(|line| line.starts_with("dhara-")) {
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            if !allowed.contains(&dependency) {
                offences.push(format!("{name} depends on {dependency}"));
            }
        }
    }
    report("a crate depends on lower floors only", &offences);
}

#[test]
fn files_and_rooms_stay_small() {
    let mut offences = Vec::new();
    let mut rooms: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            offences.push(format!("{} has {lines} lines, at most {FILE_LINES_MAX}", source.name));
        }
        *rooms.entry(source.path.parent().unwrap().to_path_buf()).or_default() += 1;
    }
    for (room, files) in rooms {
        if files > ROOM_FILES_MAX {
            offences.push(format!("{} has {files} files, at most {ROOM_FILES_MAX}", room.display()));
        }
    }
    report("files and rooms stay small", &offences);
}

#[test]
fn no_word_of_unfinished_work_stays() {
    let exact = [
        concat!("to", "do!"),
        concat!("unimple", "mented!"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("HA", "CK"),
    ];
    // In comments and pages only, in any case: one of them is a fair name for a variable.
    let spoken = [concat!("st", "ub"), concat!("for", " now"), concat!("place", "holder")];
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| matches!(source.ending(), "rs" | "md" | "sh" | "toml")) {
        for (at, line) in source.text.lines().enumerate() {
            let prose = match (source.ending(), line.split_once("//")) {
                ("md", _) => line.to_lowercase(),
                (_, Some((_, comment))) => comment.to_lowercase(),
                _ => String::new(),
            };
            let found = exact.iter().find(|word| has_word(line, word));
            if let Some(word) = found.or_else(|| spoken.iter().find(|word| has_word(&prose, word))) {
                offences.push(format!("{}:{}: {word}", source.name, at + 1));
            }
        }
    }
    report("no word of unfinished work stays", &offences);
}

fn has_word(line: &str, word: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !letter(line[..at].chars().next_back()) && !letter(line[at + word.len()..].chars().next())
    })
}

#[test]
fn every_select_is_biased() {
    let needle = concat!("select", "! {");
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        for (at, _) in source.text.match_indices(needle) {
            let line_start = source.text[..at].rfind('\n').map_or(0, |end| end + 1);
            if source.text[line_start..at].contains("//") {
                continue;
            }
            let body = source.text[at + needle.len()..].lines();
            let first = body.map(str::trim).find(|line| !line.is_empty() && !line.starts_with("//"));
            if !first.is_some_and(|line| line.starts_with("biased;")) {
                let line = source.text[..at].lines().count();
                offences.push(format!("{}:{line}", source.name));
            }
        }
    }
    report("every select is biased, or runs differ from time to time", &offences);
}

#[test]
fn unsafe_code_lives_in_two_files() {
    let word = concat!("un", "safe");
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        if UNSAFE_FILES.contains(&source.name.as_str()) {
            continue;
        }
        for (at, line) in source.code() {
            let code = line.split("//").next().unwrap_or_default();
            if has_word(code, word) && !code.contains('"') {
                offences.push(format!("{}:{at}", source.name));
            }
        }
    }
    report("unsafe code lives in two files", &offences);
}

#[test]
fn no_test_is_ignored_or_sleeps() {
    let ignored = concat!("#[ig", "nore");
    let sleeps = concat!("sle", "ep(");
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        if source.text.contains(ignored) {
            offences.push(format!("{}: an ignored test", source.name));
        }
        // The official clients' own suites wait for foreign code, which offers nothing better.
        let Some(from) = source.tests_from().filter(|_| !source.name.starts_with("tests/official-")) else {
            continue;
        };
        // On a paused clock a sleep takes no time and waits for no luck.
        if source.text[from..].contains(sleeps) && !source.text.contains("start_paused") {
            offences.push(format!("{}: a test that sleeps", source.name));
        }
    }
    report("no test is ignored, none sleeps", &offences);
}

#[test]
fn nothing_names_a_machine() {
    let paths = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut offences = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            if let Some(path) = paths.iter().find(|path| starts_there(line, path)) {
                offences.push(format!("{}:{}: {path}", source.name, at + 1));
            }
        }
    }
    report("nothing names a path of somebody's machine", &offences);
}

/// Whether a path that begins with `prefix` stands in `line`, not only a longer one that contains it.
fn starts_there(line: &str, prefix: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '/' | '*');
    line.match_indices(prefix).any(|(at, _)| !line[..at].chars().next_back().is_some_and(goes_on))
}

#[test]
fn imports_in_groups_are_seen() {
    let text = "use crate::{index::{Row, Rows}, state};\nuse crate::log;\nuse dhara_crate::no;";
    assert_eq!(rooms_used(text), ["index", "state", "log"]);
}
