"""One search over calls, audit events, log lines and recorded messages: a query language, streams of rows merged by
time, and what a page shows about them (histogram, facets, timeline)."""
