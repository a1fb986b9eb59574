//! Tables, operations and the commit pipeline.
