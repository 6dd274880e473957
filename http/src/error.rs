//! What a client is told when a request cannot be served: problem details (RFC 9457), one generic line each.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

/// Why a request was not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// HTTP/1.1 asks for exactly one Host field (RFC 9112 §3.2).
    #[error("a request names its host in exactly one valid Host field")]
    Host,
    /// Nothing lives at this path.
    #[error("there is nothing at this address")]
    NotFound,
    /// The path exists, the method does not.
    #[error("this address answers {allow} only")]
    MethodNotAllowed {
        /// Value of the Allow field.
        allow: &'static str,
    },
}

impl Problem {
    /// The status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    /// The whole response.
    pub fn response(self) -> Response<Full<Bytes>> {
        let status = self.status();
        // Every text here is our own and needs no JSON escapes.
        let body = format!(
            "{{\"type\":\"about:blank\",\"title\":\"{}\",\"status\":{},\"detail\":\"{self}\"}}\n",
            status.canonical_reason().unwrap_or("Error"),
            status.as_u16(),
        );
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self {
            Self::MethodNotAllowed { allow } => {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
            }
            // Who frames one request this badly is not asked for another: what follows may be smuggled.
            Self::Host => {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Self::NotFound => {}
        }
        response
    }
}
