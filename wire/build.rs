//! Generates the controller's gRPC code from `proto/controller.proto`, without a `protoc` binary.

use std::error::Error;

const PROTO: &str = "proto/controller.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    if std::env::var_os("CARGO_FEATURE_GRPC").is_some() {
        let descriptors = protox::compile([PROTO], ["proto"])?;
        // Ordered maps: encodings must not differ from run to run.
        tonic_prost_build::configure().btree_map(".").compile_fds(descriptors)?;
    }
    Ok(())
}
