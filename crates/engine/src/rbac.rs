//! Role-based access control (ovsdb-server(7) §4.1.3, ovsdb(7) "RBAC"): what a role may change.
//!
//! It is in force if the schema has a table `RBAC_Role` and the client came with a role. The rows
//! of roles and permissions are read before the transaction's first operation: a transaction
//! cannot give itself rights. Which rows a client may change is judged by the rows as they stand
//! when an operation reaches them.

use std::collections::{BTreeMap, BTreeSet};

use weir_data::{
    AtomRef, AtomType, ColumnId, DatumRef, Error, Row, Schema, Store, TableId, TableSchema,
};

/// The client that asks for something, as role-based access control sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client<'a> {
    /// The role of the remote that the client came through; empty for none.
    pub role: &'a str,
    /// The common name of the client's verified certificate.
    pub id: Option<&'a str>,
}

/// The rules for one client.
#[derive(Debug)]
pub(crate) struct Rbac {
    role: String,
    id: Option<String>,
    /// By table name.
    permissions: BTreeMap<String, Permission>,
}

/// A row of `RBAC_Permission`.
#[derive(Debug)]
struct Permission {
    authorization: Vec<Authorization>,
    insert_delete: bool,
    update: Option<BTreeSet<String>>,
}

/// Which rows a client may change.
#[derive(Debug)]
enum Authorization {
    /// Every row.
    Anyone,
    /// Rows in which this column is the client's id.
    Column(String),
    /// Rows in which this map has the client's id for this key.
    Key(String, String),
}

/// What an operation does, as refusals put it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action<'a> {
    /// `insert`
    Insert,
    /// `update` of these columns
    Update(&'a [ColumnId]),
    /// `mutate` of these columns
    Mutate(&'a [ColumnId]),
    /// `delete`
    Delete,
}

impl Rbac {
    /// The rules for `client`; `None` if there are none.
    pub(crate) fn new(store: &Store, client: Client<'_>) -> Option<Self> {
        let roles = store.schema().table_id("RBAC_Role").filter(|_| !client.role.is_empty())?;
        let permissions = find_role(store, roles, client.role)
            .map(|row| permissions(store, roles, row))
            .unwrap_or_default();
        let (role, id) = (client.role.to_owned(), client.id.map(str::to_owned));
        Some(Self { role, id, permissions })
    }

    /// Whether the client may do this to all these rows.
    ///
    /// # Errors
    /// `permission error`.
    pub(crate) fn check<'r>(
        &self,
        table: &TableSchema,
        action: Action<'_>,
        rows: impl IntoIterator<Item = &'r Row>,
    ) -> Result<(), Error> {
        if self.permits(table, action, rows) {
            return Ok(());
        }
        let (id, role, table) = (self.id.as_deref().unwrap_or("(null)"), &self.role, &table.name);
        let what = match action {
            Action::Insert => "row insertion into",
            Action::Update(_) => "modification of",
            Action::Mutate(_) => "mutate operation on",
            Action::Delete => "row deletion from",
        };
        let details = format!(
            "RBAC rules for client \"{id}\" role \"{role}\" prohibit {what} table \"{table}\"."
        );
        Err(Error::new("permission error", details))
    }

    fn permits<'r>(
        &self,
        table: &TableSchema,
        action: Action<'_>,
        rows: impl IntoIterator<Item = &'r Row>,
    ) -> bool {
        let (Some(id), Some(permission)) = (&self.id, self.permissions.get(&table.name)) else {
            return false;
        };
        let is_allowed = match action {
            Action::Insert | Action::Delete => permission.insert_delete,
            Action::Update(columns) | Action::Mutate(columns) => {
                // Without the column `update` not even an operation without rows passes.
                let Some(update) = &permission.update else { return false };
                columns.iter().all(|column| update.contains(&table.column(*column).name))
            }
        };
        rows.into_iter().all(|row| is_allowed && permission.authorizes(table, row, id))
    }
}

/// The refusal of a conversion to a client with a role, whatever its permissions are.
pub fn conversion_refused(client: Client<'_>, database: &str) -> Error {
    let (id, role) = (client.id.unwrap_or("(null)"), client.role);
    let details = format!(
        "RBAC rules for client \"{id}\" role \"{role}\" prohibit \"convert\" of database \
         {database} (only the root role may convert databases)"
    );
    Error::new("permission error", details)
}

impl Permission {
    fn of_row(table: &TableSchema, row: &Row) -> Self {
        let strings = |name| typed(table, row, name, (AtomType::String, None), u32::MAX);
        let flag = typed(table, row, "insert_delete", (AtomType::Boolean, None), 1);
        let texts =
            |datum: DatumRef<'_>| datum.keys().filter_map(text).map(str::to_owned).collect();
        Self {
            authorization: strings("authorization")
                .into_iter()
                .flat_map(DatumRef::keys)
                .filter_map(text)
                .filter_map(Authorization::parse)
                .collect(),
            insert_delete: matches!(flag.and_then(DatumRef::scalar), Some(AtomRef::Boolean(true))),
            update: strings("update").map(texts),
        }
    }

    fn authorizes(&self, table: &TableSchema, row: &Row, id: &str) -> bool {
        self.authorization.iter().any(|authorization| {
            let value = match authorization {
                Authorization::Anyone => return true,
                Authorization::Column(column) => {
                    let value = typed(table, row, column, (AtomType::String, None), 1);
                    value.and_then(DatumRef::scalar)
                }
                Authorization::Key(column, key) => {
                    let strings = (AtomType::String, Some(AtomType::String));
                    let map = typed(table, row, column, strings, u32::MAX);
                    map.and_then(|map| map.value_of(AtomRef::String(&key.as_str().into())))
                }
            };
            value.and_then(text) == Some(id)
        })
    }
}

impl Authorization {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::Anyone);
        }
        if !text.contains(':') {
            return Some(Self::Column(text.to_owned()));
        }
        let mut words = text.split(':').filter(|word| !word.is_empty());
        Some(Self::Key(words.next()?.to_owned(), words.next()?.to_owned()))
    }
}

/// The row of `RBAC_Role` with this name.
fn find_role<'s>(store: &'s Store, roles: TableId, role: &str) -> Option<&'s Row> {
    let name = store.schema().table(roles).column_id("name")?;
    store.table(roles).iter().find(|row| row.get(name).keys().filter_map(text).any(|t| t == role))
}

/// The tables that say what roles may do.
pub(crate) fn tables(schema: &Schema) -> impl Iterator<Item = TableId> {
    let roles = schema.table_id("RBAC_Role");
    let permissions = roles.and_then(|roles| {
        let table = schema.table(roles);
        let (target, _) = table.column(table.column_id("permissions")?).refs.value?;
        Some(target)
    });
    roles.into_iter().chain(permissions)
}

/// A role's permissions by table name.
fn permissions(store: &Store, roles: TableId, role: &Row) -> BTreeMap<String, Permission> {
    let table = store.schema().table(roles);
    let strings = (AtomType::String, Some(AtomType::Uuid));
    let Some(column) = table.column_id("permissions") else { return BTreeMap::new() };
    let Some((target, _)) = table.column(column).refs.value else { return BTreeMap::new() };
    let entries = typed(table, role, "permissions", strings, u32::MAX);
    let entries = entries.into_iter().flat_map(DatumRef::entries);
    let permission = |(name, uuid): (AtomRef<'_>, Option<AtomRef<'_>>)| {
        let Some(AtomRef::Uuid(uuid)) = uuid else { return None };
        let row = store.get(target, uuid)?;
        Some((text(name)?.to_owned(), Permission::of_row(store.schema().table(target), row)))
    };
    entries.filter_map(permission).collect()
}

/// A column's value, if it is of these types and has at most `n_max` elements.
fn typed<'r>(
    table: &TableSchema,
    row: &'r Row,
    column: &str,
    (key, value): (AtomType, Option<AtomType>),
    n_max: u32,
) -> Option<DatumRef<'r>> {
    let column = table.column_id(column)?;
    let ty = &table.column(column).ty;
    let fits = ty.key.ty == key && ty.value.as_ref().map(|value| value.ty) == value;
    (fits && ty.n_max <= n_max).then(|| row.get(column))
}

fn text(atom: AtomRef<'_>) -> Option<&str> {
    match atom {
        AtomRef::String(text) => Some(text.as_str()),
        _ => None,
    }
}
