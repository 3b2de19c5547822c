//! The bytes that clients, controller and segment stores exchange.
