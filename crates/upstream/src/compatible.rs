//! Whether the rows of a remote schema fit into a local one.

use weir_data::Schema;

/// Whether the local schema has every table and column of the remote one, equally defined; if not,
/// what is missing, for the log.
pub(crate) fn fits(local: &Schema, remote: &Schema) -> Result<(), String> {
    for (_, table) in remote.table_ids() {
        let name = &table.name;
        let Some(local) = local.table_id(name).map(|id| local.table(id)) else {
            return Err(format!("Table {name} not present in the local db schema"));
        };
        for (_, column) in table.data_columns() {
            let column_name = &column.name;
            let Some(found) = local.column_id(column_name).map(|id| local.column(id)) else {
                return Err(format!(
                    "Column {column_name} not present in the local db schema table {name}."
                ));
            };
            let equal = found.ty.to_value() == column.ty.to_value()
                && found.mutable == column.mutable
                && found.persistent == column.persistent;
            if !equal {
                return Err(format!(
                    "Column {column_name} mismatch in local db schema table {name}."
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(local: &str, remote: &str) -> String {
        let schema = |tables: &str| {
            let text = format!(r#"{{"name":"D","version":"1.0.0","tables":{tables}}}"#);
            Schema::parse_bytes(text.as_bytes()).unwrap()
        };
        fits(&schema(local), &schema(remote)).map_or_else(|why| why, |()| "fits".to_owned())
    }

    #[test]
    fn the_local_schema_may_have_more_but_not_less() {
        let small = r#"{"T":{"columns":{"a":{"type":"string"}}}}"#;
        let wide = r#"{"T":{"columns":{"a":{"type":"string"},"b":{"type":"integer"}}},"U":{"columns":{"c":{"type":"real"}}}}"#;
        let other = r#"{"T":{"columns":{"a":{"type":"integer"}}}}"#;
        assert_eq!(verdict(wide, small), "fits");
        assert_eq!(verdict(small, small), "fits");
        assert_eq!(verdict(small, wide), "Column b not present in the local db schema table T.");
        let table = r#"{"U":{"columns":{"c":{"type":"real"}}}}"#;
        assert_eq!(verdict(small, table), "Table U not present in the local db schema");
        assert_eq!(verdict(small, other), "Column a mismatch in local db schema table T.");
    }
}
