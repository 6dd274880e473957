//! The outbound queue's scheduler, MX delivery, bounces and reports.
