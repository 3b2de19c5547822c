//! Conformance, end-to-end and crash tests; nothing depends on this package.
