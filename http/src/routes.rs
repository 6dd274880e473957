//! From a method and a path to an answer. Handlers are ordinary async functions over [`App`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::error::Problem;
use crate::events;

/// How long one readiness check may take before it counts as a no.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

type CheckFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// A question asked at `/readyz`; "no" carries a reason that is logged, and never told to the client.
pub struct Check {
    name: &'static str,
    run: Box<dyn Fn() -> CheckFuture + Send + Sync>,
}

impl Check {
    /// A check under the name it has in the answer.
    pub fn new<F, Fut>(name: &'static str, run: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { name, run: Box::new(move || Box::pin(run())) }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

/// What the handlers work with; handed in by the binary, which chooses the metrics exporter and knows what is ready.
pub struct App {
    /// Renders all metrics in the Prometheus text format.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// All must say yes for `/readyz` to say 200.
    pub checks: Vec<Check>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("checks", &self.checks).finish_non_exhaustive()
    }
}

/// An answer with the name of its route for metrics.
type Routed = (&'static str, Response<Full<Bytes>>);

/// Answers one request. Modules are asked in turn; each answers for its own paths.
pub async fn route<B>(app: &App, request: Request<B>) -> Response<Full<Bytes>> {
    let started = Instant::now();
    let (name, response) = if !names_its_host(&request) {
        ("none", Problem::Host.response())
    } else if let Some(routed) = operations(app, &request).await {
        routed
    } else {
        ("none", Problem::NotFound.response())
    };
    events::answered(name, response.status().as_u16(), started.elapsed());
    response
}

/// RFC 9112 §3.2: exactly one Host field, which may be empty; HTTP/1.0 may leave it out. Whatever stands in the way may
/// have taken another one of several for true, so they are never chosen from.
fn names_its_host<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let (host, valid) = (host.as_bytes(), |_: Authority| true);
            host.is_empty() || (!host.contains(&b'@') && host.try_into().is_ok_and(valid))
        }
        (None, _) => request.version() < Version::HTTP_11,
        (Some(_), Some(_)) => false,
    }
}

/// `/metrics`, `/healthz`, `/readyz`; `None` when the path is not one of them.
pub async fn operations<B>(app: &App, request: &Request<B>) -> Option<Routed> {
    let name = match request.uri().path() {
        "/metrics" => "metrics",
        "/healthz" => "healthz",
        "/readyz" => "readyz",
        _ => return None,
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Some((name, Problem::MethodNotAllowed { allow: "GET, HEAD" }.response()));
    }
    let response = match name {
        "metrics" => text("text/plain; version=0.0.4; charset=utf-8", (app.metrics)()),
        "healthz" => text("text/plain; charset=utf-8", "ok\n".to_owned()),
        _ => ready(&app.checks).await,
    };
    Some((name, response))
}

async fn ready(checks: &[Check]) -> Response<Full<Bytes>> {
    let mut all = true;
    let mut lines = String::new();
    for check in checks {
        let answer = match tokio::time::timeout(CHECK_TIMEOUT, (check.run)()).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer in {CHECK_TIMEOUT:?}")),
        };
        if let Err(reason) = &answer {
            events::not_ready(check.name, reason);
            all = false;
        }
        lines.push_str(&format!("{} {}\n", check.name, if answer.is_ok() { "ok" } else { "not ready" }));
    }
    lines.push_str(if all { "ready\n" } else { "not ready\n" });
    let mut response = text("text/plain; charset=utf-8", lines);
    if !all {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

fn text(content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
