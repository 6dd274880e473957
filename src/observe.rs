//! Logs to standard error and metrics for Prometheus: the concrete types behind the `tracing` and `metrics` facades.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::config::{LogFormat, ServerSection};

/// Sends logs to standard error as the configuration says. Once per process.
pub fn logs(server: &ServerSection) -> anyhow::Result<()> {
    let filter: Targets = server.log.parse().context("server.log")?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match server.log_format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().context("cannot set up logging")
}

/// Installs the recorder that all counters go to. Once per process.
pub fn metrics() -> anyhow::Result<PrometheusHandle> {
    // Seconds, from what a memory read takes to what a person waits for.
    const SECONDS: [f64; 14] =
        [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
    // Bytes, from an empty message to the largest taken.
    const BYTES: [f64; 9] =
        [512.0, 2048.0, 8192.0, 32768.0, 131_072.0, 524_288.0, 2_097_152.0, 8_388_608.0, 33_554_432.0];
    // Anything counted in batches.
    const COUNTS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1024.0];
    let recorder = PrometheusBuilder::new()
        .set_buckets(&COUNTS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS))
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES))
        .context("histogram buckets")?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).context("cannot set up metrics")?;
    metrics::gauge!("posthouse_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

/// How often the recorder's samples are folded into its histograms, so that they do not pile up unread.
pub const UPKEEP: Duration = Duration::from_secs(5);
