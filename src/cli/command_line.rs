//! The binary as a shell sees it: exit status, standard output and one line of error.
#![allow(clippy::expect_used, reason = "a test program")]

use std::process::{Command, Output};

fn dhara(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dhara")).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn help_names_every_command_and_succeeds() {
    let help = dhara(&["help"]);
    assert!(help.status.success());
    for command in ["standalone", "scope", "stream", "write", "read"] {
        assert!(text(&help.stdout).contains(command), "{command}");
    }
}

#[test]
fn a_controller_that_is_not_there_is_one_line_of_error() {
    // Nothing listens on port 1 of the loopback interface.
    let failed = dhara(&["scope", "list", "--controller", "tcp://127.0.0.1:1"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(failed.stdout.is_empty());
    let error = text(&failed.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("dhara: "), "{error}");
}

#[test]
fn a_setting_out_of_range_is_refused_before_anything_is_made() {
    let folder = std::env::temp_dir().join(format!("dhara-command-line-{}", std::process::id()));
    let data = folder.to_str().expect("text");
    let failed = dhara(&["standalone", "--data", data, "--containers", "0"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("containers"), "{}", text(&failed.stderr));
    assert!(!folder.exists());
}
