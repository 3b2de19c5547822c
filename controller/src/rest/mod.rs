//! Health of the controller over HTTP, as Pravega's REST service tells it. Any other path is not found.

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

/// The health paths. Whoever answers is alive, and listens only once it is ready.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/health/readiness", get(async || Json(true)))
        .route("/v1/health/liveness", get(async || Json(true)))
        .route("/v1/health/status", get(async || Json("UP")))
        .route("/v1/health/details", get(async || Json(json!({}))))
}

async fn health() -> Json<Value> {
    Json(json!({
        "name": "", "status": "UP", "readiness": true, "liveness": true, "details": {}, "children": {},
    }))
}
