//! Values of columns: numbers of rows, and times in nanoseconds since 1970.

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::catalog::model::ids::{DocumentId, NameId, PackageId, SetId, VersionId};
use crate::document::Datetime;

macro_rules! integer {
    ($($type:ident: $to:ident, $from:ident;)*) => {$(
        impl ToSql for $type {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.$to().into())
            }
        }

        impl FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map(Self::$from)
            }
        }
    )*};
}

integer! {
    VersionId: number, new;
    NameId: number, new;
    SetId: number, new;
    DocumentId: number, new;
    PackageId: number, new;
    Datetime: nanos, from_nanos;
}
