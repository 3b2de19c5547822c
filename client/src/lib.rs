//! A Rust client for Dhara and every Pravega-compatible server.
