//! The writer's state against a server in miniature.
