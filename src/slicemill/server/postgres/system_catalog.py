"""PostgreSQL's system catalog for clients: pg_class, pg_attribute and related tables.

Every stream, query and table appears as a table of the schema `public`, and every view as a view. DuckDB
runs queries on the catalog over the tables built here, after a rewrite of the syntax. Catalog tables without
a counterpart (indexes, triggers, privileges) exist but are empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from slicemill.adhoc.postgres_catalog import postgres_tree
from slicemill.adhoc.query import open_connection
from slicemill.server.postgres.values import ARRAYS, describe_columns, type_size

_PLACE = "table_catalog table_schema table_name"
_SCHEMAS = {11: "pg_catalog", 2200: "public", 13000: "information_schema"}
_PUBLIC = 2200
_OWNER, _DATABASE = 10, "slicemill"
_FIRST_RELATION = 16384  # first oid of user objects in PostgreSQL

# Types as oid, name, SQL name, category
_TYPES = (
    (16, "bool", "boolean", "B"),
    (17, "bytea", "bytea", "U"),
    (19, "name", "name", "S"),
    (20, "int8", "bigint", "N"),
    (21, "int2", "smallint", "N"),
    (23, "int4", "integer", "N"),
    (25, "text", "text", "S"),
    (26, "oid", "oid", "N"),
    (114, "json", "json", "U"),
    (700, "float4", "real", "N"),
    (701, "float8", "double precision", "N"),
    (1043, "varchar", "character varying", "S"),
    (1082, "date", "date", "D"),
    (1114, "timestamp", "timestamp without time zone", "D"),
    (1184, "timestamptz", "timestamp with time zone", "D"),
    (1186, "interval", "interval", "T"),
    (1700, "numeric", "numeric", "N"),
)

# Empty tables with their columns; `_rows` explains the type marks
_EMPTY = {
    "pg_attrdef": "oid# adrelid# adnum# adbin",
    "pg_index": "indexrelid# indrelid# indnatts# indnkeyatts# indisunique? indisprimary? indisexclusion? "
    "indimmediate? indisclustered? indisvalid? indisready? indislive? indisreplident? indnullsnotdistinct? "
    "indkey* indclass* indoption* indcollation* indexprs indpred",
    "pg_constraint": "oid# conname connamespace# contype condeferrable? condeferred? convalidated? conrelid# "
    "contypid# conindid# conparentid# confrelid# confupdtype confdeltype confmatchtype conislocal? "
    "coninhcount# connoinherit? conkey* confkey* conbin",
    "pg_inherits": "inhrelid# inhparent# inhseqno# inhdetachpending?",
    "pg_trigger": "oid# tgrelid# tgparentid# tgname tgfoid# tgtype# tgenabled tgisinternal? tgconstraint#",
    "pg_rewrite": "oid# rulename ev_class# ev_type ev_enabled is_instead?",
    "pg_policy": "oid# polname polrelid# polcmd polpermissive? polroles* polqual polwithcheck",
    "pg_statistic_ext": "oid# stxrelid# stxname stxnamespace# stxowner# stxstattarget# stxkeys* stxkind*",
    "pg_publication": "oid# pubname pubowner# puballtables? pubinsert? pubupdate? pubdelete? pubtruncate?",
    "pg_publication_rel": "oid# prpubid# prrelid# prqual prattrs*",
    "pg_publication_namespace": "oid# pnpubid# pnnspid#",
    "pg_description": "objoid# classoid# objsubid# description",
    "pg_shdescription": "objoid# classoid# description",
    "pg_sequence": "seqrelid# seqtypid# seqstart# seqincrement# seqmax# seqmin# seqcache# seqcycle?",
    "pg_sequences": "schemaname sequencename sequenceowner last_value#",
    "pg_depend": "classid# objid# objsubid# refclassid# refobjid# refobjsubid# deptype",
    "pg_enum": "oid# enumtypid# enumsortorder# enumlabel",
    "pg_range": "rngtypid# rngsubtype# rngmultitypid# rngcollation# rngsubopc#",
    "pg_proc": "oid# proname pronamespace# proowner# prolang# prokind proretset? prorettype# proargtypes* "
    "proacl* prosrc provolatile proparallel prosecdef?",
    "pg_aggregate": "aggfnoid# aggkind aggnumdirectargs#",
    "pg_operator": "oid# oprname oprnamespace# oprkind oprleft# oprright# oprresult# oprcode#",
    "pg_opclass": "oid# opcmethod# opcname opcnamespace# opcdefault? opcintype#",
    "pg_collation": "oid# collname collnamespace# collowner# collprovider collencoding# collcollate",
    "pg_extension": "oid# extname extowner# extnamespace# extversion",
    "pg_foreign_table": "ftrelid# ftserver# ftoptions*",
    "pg_foreign_server": "oid# srvname srvowner# srvfdw#",
    "pg_tablespace": "oid# spcname spcowner#",
    "pg_partitioned_table": "partrelid# partstrat partnatts# partattrs*",
    "pg_auth_members": "roleid# member# grantor# admin_option?",
    "pg_db_role_setting": "setdatabase# setrole# setconfig*",
    "pg_event_trigger": "oid# evtname evtevent evtowner# evtfoid# evtenabled evttags*",
    "pg_subscription": "oid# subname subowner# subenabled?",
    "pg_stat_activity": "datid# datname pid# usename application_name state query",
    "pg_matviews": "schemaname matviewname matviewowner definition",
    "pg_indexes": "schemaname tablename indexname indexdef",
    "pg_timezone_names": "name abbrev is_dst?",
}

# Functions of the catalog as DuckDB macros, except functions that DuckDB has itself
_MACROS = {
    "pg_table_is_visible(a)": "true",
    "pg_type_is_visible(a)": "true",
    "pg_function_is_visible(a)": "true",
    "pg_opclass_is_visible(a)": "true",
    "pg_collation_is_visible(a)": "true",
    "pg_relation_is_publishable(a)": "false",
    "pg_is_other_temp_schema(a)": "false",
    "pg_is_in_recovery()": "false",
    "pg_my_temp_schema()": "0",
    "pg_backend_pid()": "0",
    "pg_encoding_to_char(a)": "'UTF8'",
    "pg_get_userbyid(a)": f"'{_DATABASE}'",
    "pg_get_expr(a, b, c := false)": "NULL::VARCHAR",
    "pg_get_viewdef(a, b := false)": "NULL::VARCHAR",
    "pg_get_constraintdef(a, b := false)": "NULL::VARCHAR",
    "pg_get_indexdef(a, b := 0, c := false)": "NULL::VARCHAR",
    "pg_get_ruledef(a, b := false)": "NULL::VARCHAR",
    "pg_get_triggerdef(a, b := false)": "NULL::VARCHAR",
    "pg_get_partkeydef(a)": "NULL::VARCHAR",
    "pg_get_statisticsobjdef_columns(a)": "NULL::VARCHAR",
    "pg_get_serial_sequence(a, b)": "NULL::VARCHAR",
    "pg_get_function_result(a)": "NULL::VARCHAR",
    "pg_get_function_arguments(a)": "NULL::VARCHAR",
    "pg_get_function_identity_arguments(a)": "NULL::VARCHAR",
    "pg_get_partition_constraintdef(a)": "NULL::VARCHAR",
    "pg_tablespace_location(a)": "NULL::VARCHAR",
    "pg_relation_size(a)": "0",
    "pg_table_size(a)": "0",
    "pg_total_relation_size(a)": "0",
    "pg_size_pretty(a)": "a::VARCHAR || ' bytes'",
    "obj_description(a, b := '')": "NULL::VARCHAR",
    "col_description(a, b)": "NULL::VARCHAR",
    "shobj_description(a, b)": "NULL::VARCHAR",
    "has_table_privilege(a, b, c := '')": "true",
    "has_schema_privilege(a, b, c := '')": "true",
    "has_database_privilege(a, b, c := '')": "true",
    "has_any_column_privilege(a, b, c := '')": "true",
    "quote_ident(a)": "a",
    "set_config(a, b, c)": "b",
    "array_upper(a, b)": "len(a)",
    "array_lower(a, b)": "1",
    "format_type(a, b)": "(SELECT word FROM pg_type AS own WHERE own.oid = a)",
    "slicemill_oid(a)": "coalesce(try_cast(a AS BIGINT), (SELECT own.oid FROM pg_class AS own "
    "WHERE own.relname = replace(replace(a::VARCHAR, 'public.', ''), '\"', '')))",
    "slicemill_name(a)": "coalesce((SELECT own.relname FROM pg_class AS own WHERE own.oid = a), a::VARCHAR)",
    "slicemill_type_name(a)": "format_type(a, -1)",
    "slicemill_type(a)": "(SELECT own.oid FROM pg_type AS own WHERE a::VARCHAR IN (own.typname, own.word))",
    "current_setting(a, b := false)": "(SELECT own.setting FROM pg_settings AS own "
    "WHERE lower(own.name) = lower(a))",
}
_NOW = {
    "current_database": _DATABASE,
    "current_catalog": _DATABASE,
    "current_schema": "public",
    "current_user": _DATABASE,
    "session_user": _DATABASE,
}


def system_answer(
    sql: str,
    values: Sequence[object],
    relations: Mapping[str, pa.Table],
    views: Collection[str],
    settings: Mapping[str, str],
) -> pa.Table:
    """Execute a query on the system catalog.

    `relations` are the visible relations as empty tables, and `views` names the views. `values` are the
    values of $1, $2, … Raises errors of duckdb or sqlglot if the query is not supported.
    """
    tree = _for_duckdb(postgres_tree(sql))
    connection = open_connection()
    try:
        for name, rows in _tables(relations, views, settings).items():
            connection.register(name, rows)
        for head, body in _MACROS.items():
            connection.execute(f"CREATE TEMP MACRO {head} AS {body}")
        return connection.sql(tree.sql("duckdb"), params=list(values) or None).to_arrow_table()
    finally:
        connection.close()


def _tables(
    relations: Mapping[str, pa.Table], views: Collection[str], settings: Mapping[str, str]
) -> dict[str, pa.Table]:
    made = {name: _rows(columns) for name, columns in _EMPTY.items()}
    known = list(enumerate(sorted(relations.items()), _FIRST_RELATION))
    made["pg_namespace"] = _rows(
        "oid# nspname nspowner# nspacl@",
        [(oid, name, _OWNER, None) for oid, name in _SCHEMAS.items()],
    )
    made["pg_class"] = _rows(_CLASS, [_class(oid, name, rows, name in views) for oid, (name, rows) in known])
    made["pg_attribute"] = _rows(
        _ATTRIBUTE,
        [
            (oid, column.name, column.oid, column.size, index, not field.nullable, *_ATTRIBUTE_REST)
            for oid, (_, rows) in known
            for index, (column, field) in enumerate(
                zip(describe_columns(rows.schema), rows.schema, strict=True), 1
            )
        ],
    )
    made["pg_type"] = _rows(_TYPE, list(_type_rows()))
    made["pg_am"] = _rows("oid# amname amtype", [(2, "heap", "t")])
    made["pg_database"] = _rows(
        "oid# datname datdba# encoding# datlocprovider datistemplate? datallowconn? datcollate "
        "datctype daticulocale datacl@ dattablespace#",
        [(1, _DATABASE, _OWNER, 6, "c", False, True, "C", "C", None, None, 0)],
    )
    made["pg_roles"] = made["pg_authid"] = made["pg_user"] = _rows(
        "oid# rolname usename usesysid# rolsuper? rolinherit? rolcreaterole? rolcreatedb? "
        "rolcanlogin? rolreplication? rolbypassrls? rolconnlimit# rolvaliduntil",
        [(_OWNER, _DATABASE, _DATABASE, _OWNER, False, True, False, False, True, False, False, -1, None)],
    )
    made["pg_settings"] = _rows(
        "name setting unit context",
        [(name, value, None, "user") for name, value in settings.items()],
    )
    tables = [("public", name, _DATABASE) for name in sorted(relations) if name not in views]
    made["pg_tables"] = _rows("schemaname tablename tableowner", tables)
    made["pg_views"] = _rows(
        "schemaname viewname viewowner definition",
        [("public", name, _DATABASE, None) for name in sorted(views)],
    )
    return made | {f"information_schema_{name}": rows for name, rows in _standard(relations, views).items()}


_CLASS = (
    "oid# relname relnamespace# reltype# reloftype# relowner# relam# relfilenode# reltablespace# "
    "relpages# reltuples% reltoastrelid# relhasindex? relisshared? relpersistence relkind relnatts# "
    "relchecks# relhasrules? relhastriggers? relhasoids? relrowsecurity? relforcerowsecurity? "
    "relispartition? relreplident relpartbound relacl@ reloptions@"
)
_ATTRIBUTE = (
    "attrelid# attname atttypid& attlen# attnum# attnotnull? atttypmod# attndims# atthasdef? "
    "attidentity attgenerated attisdropped? attislocal? attcollation# attstorage attfdwoptions@ "
    "attcompression attstattarget# attacl@ attinhcount#"
)
_ATTRIBUTE_REST = (-1, 0, False, "", "", False, True, 0, "p", None, "", -1, None, 0)
_TYPE = (
    "oid# typname word typcategory typnamespace# typowner# typlen# typtype typrelid# typelem# "
    "typarray# typbasetype# typtypmod# typnotnull? typcollation# typdefault typdelim typisdefined? "
    "typinput typreceive typbyval? typndims#"
)


def _class(oid: int, name: str, rows: pa.Table, is_view: bool) -> tuple[object, ...]:
    return (
        *(oid, name, _PUBLIC, 0, 0, _OWNER),
        *(0 if is_view else 2, oid, 0, 0, -1.0),
        *(0, False, False, "p"),
        *("v" if is_view else "r", rows.num_columns, 0, False, False),
        *(False, False, False, False),
        *("d", None, None, None),
    )


def _type_rows() -> list[tuple[object, ...]]:
    rest = (-1, False, 0, None, ",", True, "", "", False, 0)
    rows: list[tuple[object, ...]] = []
    for oid, name, word, category in _TYPES:
        array = ARRAYS.get(oid, 0)
        rows.append((oid, name, word, category, 11, _OWNER, type_size(oid), "b", 0, 0, array, 0, *rest))
        if array:
            rows.append((array, f"_{name}", f"{word}[]", "A", 11, _OWNER, -1, "b", 0, oid, 0, 0, *rest))
    return rows


def _standard(relations: Mapping[str, pa.Table], views: Collection[str]) -> dict[str, pa.Table]:
    """Return the tables of the information schema of the SQL standard."""
    words = {oid: word for oid, _, word, _ in _TYPES} | dict.fromkeys(ARRAYS.values(), "ARRAY")
    names = {oid: name for oid, name, _, _ in _TYPES}
    names |= {array: f"_{names[oid]}" for oid, array in ARRAYS.items() if oid in names}
    return {
        "schemata": _rows(
            "catalog_name schema_name schema_owner",
            [(_DATABASE, name, _DATABASE) for name in _SCHEMAS.values()],
        ),
        "tables": _rows(
            f"{_PLACE} table_type is_insertable_into",
            [
                (_DATABASE, "public", name, "VIEW" if name in views else "BASE TABLE", "NO")
                for name in sorted(relations)
            ],
        ),
        "views": _rows(
            f"{_PLACE} view_definition", [(_DATABASE, "public", name, None) for name in sorted(views)]
        ),
        "columns": _rows(
            f"{_PLACE} "
            "column_name ordinal_position# column_default is_nullable data_type "
            "character_maximum_length# numeric_precision# numeric_scale# udt_schema udt_name "
            "is_identity",
            [
                (
                    *(_DATABASE, "public", name, column.name, index, None, "YES" if field.nullable else "NO"),
                    *(words.get(column.oid, "text"), None, None, None),
                    *("pg_catalog", names.get(column.oid, "text"), "NO"),
                )
                for name, rows in sorted(relations.items())
                for index, (column, field) in enumerate(
                    zip(describe_columns(rows.schema), rows.schema, strict=True), 1
                )
            ],
        ),
        **{name: _rows(columns) for name, columns in _EMPTY_STANDARD.items()},
    }


_EMPTY_STANDARD = {
    "table_constraints": "constraint_catalog constraint_schema constraint_name table_catalog table_schema "
    "table_name constraint_type",
    "key_column_usage": "constraint_catalog constraint_schema constraint_name table_catalog table_schema "
    "table_name column_name ordinal_position#",
    "constraint_column_usage": "table_catalog table_schema table_name column_name constraint_name",
    "referential_constraints": "constraint_catalog constraint_schema constraint_name unique_constraint_name",
    "routines": "specific_schema specific_name routine_schema routine_name routine_type data_type",
    "sequences": "sequence_catalog sequence_schema sequence_name data_type",
}
_MARKS = {
    "#": pa.int64(),
    "&": pa.uint32(),
    "%": pa.float64(),
    "?": pa.bool_(),
    "*": pa.list_(pa.int64()),
    "@": pa.list_(pa.string()),
}


def _rows(columns: str, rows: Sequence[tuple[object, ...]] = ()) -> pa.Table:
    """Build a table from a column list such as `oid# name live? list*`.

    The marks are the keys of `_MARKS`. A column without a mark is text.
    """
    names = columns.split()
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table(
        {
            name.rstrip("#&%?*@"): pa.array(found, _MARKS.get(name[-1], pa.string()))
            for name, found in zip(names, values, strict=True)
        }
    )


def _for_duckdb(tree: exp.Expr) -> exp.Expr:
    """Rewrite a syntax tree for DuckDB, bottom-up, so that parents contain rewritten children."""
    for node in reversed(list(tree.walk())):
        if (made := _rewrite_node(node)) is not node:
            tree = made if node is tree else tree
            node.replace(made)
    return tree


def _rewrite_node(node: exp.Expr) -> exp.Expr:
    """Rewrite one node from the PostgreSQL dialect for DuckDB and the tables built here."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return _rewrite_table(node)
    if isinstance(node, exp.Table) and node.db.lower() == "pg_catalog":  # for example FROM pg_catalog.f(…)
        node.set("db", None)
    if isinstance(node, exp.Collate):
        collated: exp.Expr = node.this
        return collated
    if isinstance(node, exp.Operator):  # for example a OPERATOR(pg_catalog.~) b
        return _operator(node)
    if isinstance(node, exp.Dot) and node.this.name.lower() == "pg_catalog":  # for example pg_catalog.f(…)
        return _rewrite_node(node.expression)
    if isinstance(node, exp.Cast):
        return _cast(node)
    # For example pg_catalog.pg_class.relname.
    if isinstance(node, exp.Column) and node.db.lower() == "pg_catalog":
        return exp.column(node.this.copy(), table=node.args.get("table"))
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in _NOW:
        return exp.Literal.string(_NOW[node.name.lower()])
    if isinstance(node, exp.Anonymous) and node.name.lower() == "json_build_object":
        return exp.func("json_object", *node.expressions)
    if (known := _NOW.get(_call(node))) is not None:
        return exp.Literal.string(known)
    return node


def _call(node: exp.Expr) -> str:
    """Return the name of a function called without arguments, or an empty string."""
    if isinstance(node, exp.Anonymous):
        return "" if node.expressions else node.name.lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) and not node.args.get("this") else ""


def _rewrite_table(table: exp.Table) -> exp.Expr:
    name, schema = table.name.lower(), table.db.lower()
    if schema not in ("pg_catalog", "information_schema", ""):
        return table
    own = f"information_schema_{name}" if schema == "information_schema" else name
    made = exp.to_table(own)
    made.set("alias", table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name)))
    made.set("joins", table.args.get("joins"))
    return made


_OPERATORS: dict[str, type[exp.Expr]] = {
    "~": exp.RegexpLike,
    "~*": exp.RegexpILike,
    "~~": exp.Like,
    "+": exp.Add,
}


def _operator(node: exp.Operator) -> exp.Expr:
    word = str(node.args["operator"]).rpartition(".")[2].strip()
    made = _OPERATORS.get(word, exp.EQ)
    right = node.expression.this if isinstance(node.expression, exp.Collate) else node.expression
    return made(this=node.this, expression=right)


def _type_word(node: exp.Cast) -> str:
    return node.to.sql("postgres").lower().removeprefix("pg_catalog.").strip('"')


def _cast(node: exp.Cast) -> exp.Expr:
    """Rewrite a cast. Casts to regclass and regtype convert between names and oids."""
    word = _type_word(node)
    if word in ("regclass", "regtype", "regproc", "regnamespace"):
        if isinstance(node.parent, exp.Cast) and _type_word(node.parent) in ("text", "varchar", "name"):
            return exp.func("slicemill_type_name" if word == "regtype" else "slicemill_name", node.this)
        return exp.func("slicemill_type" if word == "regtype" else "slicemill_oid", node.this)
    plain = {"oid": "BIGINT", "name": "VARCHAR", "char": "VARCHAR", "text": "VARCHAR", "text[]": "VARCHAR[]"}
    if word in plain:
        return exp.cast(node.this, plain[word])
    return node
