//! Nothing but a home for `tests/suite`: Pravega's own Rust client, version 0.3.7, against the store that
//! `DHARA_CONTROLLER` names (for example `tcp://127.0.0.1:9090`).
