//! What a server says of a database in its database `_Server` (ovsdb-server(5)), and whether it is
//! worth following.

use std::collections::BTreeMap;

use weir_data::Uuid;
use weir_json::{Text, Value};

use crate::updates::object;

/// The rows of the table `Database` of `_Server`, as a monitor tells them.
#[derive(Debug, Default)]
pub(crate) struct ServerRows {
    rows: BTreeMap<Vec<u8>, BTreeMap<String, Value>>,
}

/// Which database is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search<'a> {
    pub(crate) database: &'a str,
    pub(crate) cluster: Option<&'a str>,
    /// Only a leader will do.
    pub(crate) leader_only: bool,
    /// The highest index of the database that was seen anywhere: who is behind that is stale.
    pub(crate) index_min: u64,
}

/// What the server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The text of the schema.
    pub(crate) schema: String,
    /// The last entry of the cluster's log that has taken effect.
    pub(crate) index: Option<u64>,
    /// The server is not cut off from where its rows come from.
    pub(crate) is_connected: bool,
    /// The server is a member of the database's cluster.
    pub(crate) is_clustered: bool,
}

/// Why a server will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// For the log.
    pub(crate) why: String,
    pub(crate) cause: Cause,
}

/// Of what kind that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nothing else is wrong but that it is behind others.
    Behind,
    /// The way of its rows.
    Path,
    Other,
}

impl Unfit {
    fn other(why: &str) -> Self {
        Self { why: format!("{why}; trying another server"), cause: Cause::Other }
    }

    /// A relay has lost its source.
    pub(crate) fn lost_relay() -> Self {
        Self::other("relay database server is disconnected from the relay source")
    }
}

impl ServerRows {
    /// Whether the server has not said anything of its databases.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes a `<table-updates2>`. False if it makes no sense.
    pub(crate) fn update(&mut self, updates: Text<'_>) -> bool {
        let Some(tables) = object(updates) else { return false };
        for (_, rows) in tables.filter(|(name, _)| **name == *b"Database") {
            let Some(rows) = object(rows) else { return false };
            for (uuid, row) in rows {
                let Some(row) = object(row) else { return false };
                for (operation, columns) in row {
                    if *operation == *b"delete" {
                        self.rows.remove(&*uuid);
                        continue;
                    }
                    let Some(columns) = object(columns) else { return false };
                    // Each column has one value or none, so that differences are values.
                    let row = self.rows.entry(uuid.to_vec()).or_default();
                    for (name, value) in columns {
                        let name = String::from_utf8_lossy(&name).into_owned();
                        row.insert(name, value.to_value());
                    }
                }
            }
        }
        true
    }

    /// The UUID of the database's row, if it is there.
    pub(crate) fn row_of(&self, database: &str, cluster: Option<&str>) -> Option<&[u8]> {
        self.meant(database, cluster).map(|(uuid, _)| &**uuid)
    }

    /// The text of its schema, if it is there and has one.
    pub(crate) fn schema_of(&self, database: &str, cluster: Option<&str>) -> Option<&str> {
        self.meant(database, cluster).and_then(|(_, row)| string(row, "schema"))
    }

    /// The cluster that it is of, if it is there and of one.
    pub(crate) fn cid_of(&self, database: &str, cluster: Option<&str>) -> Option<Uuid> {
        self.meant(database, cluster).and_then(|(_, row)| Uuid::parse(uuid(row, "cid")?))
    }

    fn meant(
        &self,
        database: &str,
        cluster: Option<&str>,
    ) -> Option<(&Vec<u8>, &BTreeMap<String, Value>)> {
        self.rows.iter().find(|(_, row)| {
            string(row, "name") == Some(database)
                && cluster.is_none_or(|cluster| {
                    uuid(row, "cid").is_some_and(|cid| cid.starts_with(cluster))
                })
        })
    }

    /// The database, if it is there and worth following.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn find(&self, search: Search<'_>) -> Result<Row, Unfit> {
        let Search { database, cluster, leader_only, index_min } = search;
        let Some((_, row)) = self.meant(database, cluster) else {
            let why = format!("server does not have {database} database");
            return Err(Unfit { why, cause: Cause::Other });
        };
        let model = string(row, "model").unwrap_or("standalone");
        let is_true = |column: &str| matches!(row.get(column), Some(Value::Bool(true)));
        let schema = string(row, "schema").filter(|schema| !schema.is_empty());
        let index = integer(row, "index");
        let is_clustered = model == "clustered";
        let other = |why: &str| Err(Unfit::other(why));
        match schema {
            None if is_clustered => other("clustered database server has not yet joined cluster"),
            None => other("relay database server has not yet connected to the relay source"),
            Some(_) if is_clustered && !is_true("connected") => {
                other("clustered database server is disconnected from cluster")
            }
            Some(_) if model == "relay" && !is_true("connected") => Err(Unfit::lost_relay()),
            Some(_) if model == "relay" && leader_only => {
                other("relay database server cannot be a leader")
            }
            Some(_) if leader_only && !is_true("leader") => {
                other("clustered database server is not cluster leader")
            }
            Some(_) if index.is_some_and(|index| index < index_min) => {
                let why = format!("{model} database server has stale data");
                Err(Unfit { cause: Cause::Behind, ..Unfit::other(&why) })
            }
            Some(schema) => {
                let (schema, is_connected) = (schema.to_owned(), is_true("connected"));
                Ok(Row { schema, index, is_connected, is_clustered: model == "clustered" })
            }
        }
    }
}

fn string<'a>(row: &'a BTreeMap<String, Value>, column: &str) -> Option<&'a str> {
    row.get(column)?.as_str()
}

fn integer(row: &BTreeMap<String, Value>, column: &str) -> Option<u64> {
    u64::try_from(row.get(column)?.as_i64()?).ok()
}

fn uuid<'a>(row: &'a BTreeMap<String, Value>, column: &str) -> Option<&'a str> {
    match row.get(column)?.as_array()? {
        [tag, uuid] if tag.as_str() == Some("uuid") => uuid.as_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#""name":"D","model":"clustered","connected":true,"leader":false,
        "schema":"{}","cid":["uuid","77aa"],"sid":["uuid","88"],"index":5"#;

    fn rows(updates: &[&str]) -> ServerRows {
        let mut rows = ServerRows::default();
        for text in updates {
            let text = format!(r#"{{"Database":{{"u":{text}}}}}"#);
            assert!(rows.update(weir_json::validate(text.as_bytes()).unwrap()));
        }
        rows
    }

    fn search(database: &str) -> Search<'_> {
        Search { database, cluster: None, leader_only: false, index_min: 0 }
    }

    #[test]
    fn a_row_changes_and_goes() {
        let initial = format!(r#"{{"initial":{{{ROW}}}}}"#);
        let found = rows(&[&initial]).find(search("D")).unwrap();
        assert_eq!(
            found,
            Row { schema: "{}".into(), index: Some(5), is_connected: true, is_clustered: true }
        );
        let cid = Uuid::from_u128(0x77aa).to_string();
        let joined = format!(r#"{{"modify":{{"cid":["uuid","{cid}"]}}}}"#);
        let cid_of = |rows: ServerRows| rows.cid_of("D", None).map(|cid| cid.to_string());
        assert_eq!(
            (cid_of(rows(&[&initial])), cid_of(rows(&[&initial, &joined]))),
            (None, Some(cid))
        );
        let newer = rows(&[&initial, r#"{"modify":{"index":6}}"#]).find(search("D")).unwrap();
        assert_eq!(newer.index, Some(6));
        let gone = rows(&[&initial, r#"{"delete":null}"#]).find(search("D"));
        assert_eq!(gone.unwrap_err().why, "server does not have D database");
    }

    #[test]
    fn servers_that_will_not_do() {
        let initial = format!(r#"{{"initial":{{{ROW}}}}}"#);
        let with = |change: &str, search: Search<'_>| {
            let error = rows(&[&initial, change]).find(search).unwrap_err();
            error.why.split(';').next().unwrap().to_owned()
        };
        let change = |change: &str| with(&format!(r#"{{"modify":{{{change}}}}}"#), search("D"));
        assert_eq!(
            change(r#""connected":false"#),
            "clustered database server is disconnected from cluster"
        );
        assert_eq!(
            change(r#""schema":["set",[]]"#),
            "clustered database server has not yet joined cluster"
        );
        assert_eq!(
            change(r#""schema":["set",[]],"model":"relay""#),
            "relay database server has not yet connected to the relay source"
        );
        let relay = r#""model":"relay","connected":false"#;
        assert_eq!(change(relay), "relay database server is disconnected from the relay source");
        let stale = Search { index_min: 6, ..search("D") };
        assert_eq!(with(r#"{"modify":{}}"#, stale), "clustered database server has stale data");
        let leader = Search { leader_only: true, ..search("D") };
        assert_eq!(
            with(r#"{"modify":{}}"#, leader),
            "clustered database server is not cluster leader"
        );
        let other = Search { cluster: Some("78"), ..search("D") };
        assert_eq!(with(r#"{"modify":{}}"#, other), "server does not have D database");
    }
}
